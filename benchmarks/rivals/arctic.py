"""Arctic Inference's suffix cache, called as vLLM's `SuffixDecodingProposer` calls it."""

from __future__ import annotations

from typing import Any

import numpy as np
from arctic_inference.suffix_decoding import SuffixDecodingCache

from benchmarks.rivals.base import Drafted, Variant


class Arctic:
    def __init__(self, variant: Variant) -> None:
        options = variant.options
        self.depth = options["max_tree_depth"]
        self.cache = SuffixDecodingCache(
            max_tree_depth=self.depth, max_cached_requests=options.get("max_cached_requests", 10_000)
        )
        self.settings = {
            "max_spec_tokens": variant.max_draft,
            "max_spec_factor": options.get("max_spec_factor", 1.0),
            "max_spec_offset": options.get("max_spec_offset", 0.0),
            "min_token_prob": options.get("min_token_prob", 0.1),
            "use_tree_spec": variant.topology == "tree",
        }
        self.texts: dict[str, np.ndarray] = {}  # the engine's matrix of ids holds room for what will be emitted
        self.lengths: dict[str, int] = {}

    def hold(self, request: str, prompt: np.ndarray) -> None:
        self.texts[request] = np.concatenate([prompt, np.zeros(4096, np.int32)])
        self.lengths[request] = len(prompt)

    def append(self, requests: list[str], emitted: list[list[int]]) -> None:
        for request, tokens in zip(requests, emitted, strict=True):
            n = self.lengths[request]
            if n + len(tokens) > len(self.texts[request]):
                self.texts[request] = np.concatenate([self.texts[request], np.zeros(n, np.int32)])
            self.texts[request][n : n + len(tokens)] = tokens
            self.lengths[request] = n + len(tokens)

    def ingest(self, request: str, prompt: np.ndarray) -> None:
        self.cache.start_request(request, prompt)

    def propose(self, requests: list[str]) -> list[Any]:
        drafts = []
        for request in requests:
            n = self.lengths[request]
            pattern = self.texts[request][max(0, n - self.depth) : n]
            drafts.append(self.cache.speculate(request, pattern, **self.settings))
        return drafts

    def learn(self, requests: list[str], emitted: list[list[int]]) -> None:
        for request, tokens in zip(requests, emitted, strict=True):
            self.cache.add_active_response(request, tokens)

    def finish(self, request: str) -> None:
        self.cache.stop_request(request)
        del self.texts[request], self.lengths[request]

    def read(self, proposed: list[Any]) -> list[Drafted]:
        return [(draft.token_ids, draft.parents) for draft in proposed]
