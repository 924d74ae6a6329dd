"""Our own drafters behind the same calls. The engine's lists are made into arrays within what is timed."""

from __future__ import annotations

import itertools
from typing import Any, ClassVar
from unittest.mock import patch

import numpy as np

import ngramspec as ns
from benchmarks import memory
from benchmarks.rivals.base import Drafted, Variant
from ngramspec import arena
from ngramspec.native.build import build

VOCAB = 262_144
CACHES: dict[str, tuple[type, type]] = {
    "ngramspec": (ns.Drafter, ns.DrafterConfig),
    "rolling-hash": (ns.RollingHashCache, ns.HashConfig),
    "suffix-trie": (ns.SuffixTrieCache, ns.TrieConfig),
}


class Own:
    name: ClassVar[str]

    def __init__(self, variant: Variant) -> None:
        cache, config = CACHES[self.name]
        settings: dict[str, Any] = {"capacity_tokens": 1_000_000, "max_requests": 64} | variant.options
        engine = settings.pop("engine", "numba")
        if engine == "native":
            build()
        with patch.object(arena, "_zeros", memory.fresh):
            self.cache = cache(config(vocab_size=VOCAB, eos_ids=variant.eos_ids, **settings), engine=engine)
        self.cache.touch()  # as the plugin does when a server starts
        self.out = ns.DraftBatch.allocate(settings["max_requests"], variant.max_draft)
        self.ask = {"max_draft": variant.max_draft, "topology": variant.topology}
        self.slots: dict[str, int] = {}

    def hold(self, request: str, prompt: np.ndarray) -> None:
        """Texts are the drafter's own."""

    def append(self, requests: list[str], emitted: list[list[int]]) -> None:
        """Texts are the drafter's own."""

    def ingest(self, request: str, prompt: np.ndarray) -> None:
        self.slots[request] = self.cache.begin(request, prompt)

    def _rows(self, requests: list[str]) -> np.ndarray:
        return np.array([self.slots[request] for request in requests], np.int32)

    def propose(self, requests: list[str]) -> int:
        self.cache.draft_batch(self._rows(requests), self.out, **self.ask)
        return len(requests)

    def learn(self, requests: list[str], emitted: list[list[int]]) -> None:
        tokens = np.fromiter(itertools.chain.from_iterable(emitted), np.int32)
        offsets = np.fromiter(itertools.accumulate(map(len, emitted), initial=0), np.int32)
        self.cache.accept_batch(self._rows(requests), tokens, offsets)

    def finish(self, request: str) -> None:
        self.cache.finish(request)
        del self.slots[request]

    def read(self, proposed: int) -> list[Drafted]:
        found = []
        for i in range(proposed):
            n = int(self.out.n_draft[i])
            found.append((self.out.tokens[i, :n].tolist(), self.out.parents[i, :n].tolist()))
        return found


class Ngramspec(Own):
    name = "ngramspec"


class RollingHash(Own):
    name = "rolling-hash"


class SuffixTrie(Own):
    name = "suffix-trie"
