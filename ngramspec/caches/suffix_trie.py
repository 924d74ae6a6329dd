"""The suffix trie: what usually follows? Counted contexts of own text and of the tenant's shared text."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..arena import (
    C_CHILD,
    C_COUNT,
    C_OLDER,
    C_SUFFIX,
    C_TOKEN,
    NODE,
    PLACE,
    S_EVICTED,
    S_TOKENS,
    SHARE_ALL,
    T_LENGTH,
    T_SHARE,
    X_BUMP,
    X_EVICTED,
    X_N_FREE,
    X_PLACE,
)
from ..config import TrieConfig
from ..draft import DraftBatch
from ..kernels import trie_draft, trie_rows
from ..kernels.requests import own_tail
from ..kernels.tree import TREE_ROWS
from ..kernels.trie import at
from ..native import Engine
from .base import Int32
from .integrity import check_store
from .sessions import SessionCache
from .trie_integrity import check_trie


class SuffixTrieCache(SessionCache):
    """Drafts from how often each token followed the last 1 to `depth` - 1 tokens, in own and in shared text.

    Parameters
    ----------
    config : TrieConfig
        Sizes and limits.
    buffer : uint8[config.nbytes], optional
        A state to attach to; None starts empty.
    engine : {"numba", "native"}, optional
        What runs it; None: `NGRAMSPEC_ENGINE`, or numba. State and drafts are the same.

    Examples
    --------
    >>> import ngramspec as ns
    >>> cache = ns.SuffixTrieCache(ns.TrieConfig(capacity_tokens=20_000, vocab_size=1000))
    >>> slot = cache.begin("r1", [1, 2, 1, 2, 1, 3, 1])
    >>> cache.draft("r1", max_draft=2).tokens  # 2 followed 1 twice, 3 once
    array([2, 3], dtype=int32)
    """

    name: ClassVar[str] = "suffix-trie"
    config_type = TrieConfig
    config: TrieConfig

    def __init__(
        self, config: TrieConfig, buffer: NDArray[np.uint8] | None = None, engine: Engine | None = None
    ) -> None:
        super().__init__(config, buffer, engine)
        self._trie = self.arena.header("trie")
        self._context = np.zeros(config.depth, np.int32)
        self._f = np.zeros((trie_draft.F_ROWS, trie_draft.CANDIDATES), np.int64)
        self._make_room(64)

    def _make_room(self, width: int) -> None:
        """Scratch for drafts of up to `width` tokens."""
        self._t = np.zeros((TREE_ROWS, width + 1), np.int32)
        self._k = np.zeros((trie_draft.K_ROWS, width * trie_draft.CANDIDATES + 1), np.int32)

    @property
    def _state(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], Int32]:
        return self._trie, self._requests, self._own, self._m

    def _before_begin(self, row: int, keep: int) -> None:
        trie_rows.before_begin(*self._state, row, keep, self._context)

    def _ingest_row(self, row: int, tokens: Int32) -> None:
        trie_rows.ingest(*self._state, row, tokens, self._field(row, T_SHARE) == SHARE_ALL, self._context)

    def _accept_rows(self, slots: Int32, tokens: Int32, offsets: Int32) -> None:
        trie_rows.accept_batch(*self._state, slots, tokens, offsets, self._context)

    def _truncate_row(self, row: int, n_tokens: int) -> None:
        trie_rows.truncate(*self._state, row, n_tokens, self._context)

    def _draft_rows(
        self, slots: Int32, out: DraftBatch, max_draft: Int32, remaining: Int32, chain: bool, min_q30: int
    ) -> None:
        if self._t.shape[1] <= out.width:
            self._make_room(out.width)
        trie_draft.draft_batch(
            *self._state, slots, max_draft, remaining, chain, min_q30, self._context, self._f, self._k, self._t,
            out.tokens, out.parents, out.path_q30, out.sources, out.n_draft, out.match_length, out.reason,
        )  # fmt: skip

    def stats(self) -> dict[str, int]:
        """Counters and gauges; see `Cache.stats`. `nodes` are those in use, of abandoned trees too."""
        return super().stats() | {
            "own_tokens": int(self._own[S_TOKENS]),
            "own_tokens_evicted": int(self._own[S_EVICTED]),
            "nodes": int(self._trie[X_BUMP]) - int(self._trie[X_N_FREE]),
            "nodes_evicted": int(self._trie[X_EVICTED]),
        }

    def check_integrity(self) -> None:
        """Check every invariant; see `Cache.check_integrity`."""
        self._check_rows()
        check_store(self.arena, "own")
        check_trie(self.arena)

    def explain(self, request_id: str) -> dict[str, Any]:
        """Contexts behind the next draft, longest first, with their counts and followers; see `Cache.explain`."""
        row = self._row(request_id)
        own, shared = self._ends(row)
        return {
            "tokens": self._field(row, T_LENGTH),
            "own_contexts": self._contexts(*own),
            "shared_contexts": self._contexts(*shared),
        }

    def _ends(self, row: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """Node and length of the longest known context in a row's own and in its tenant's tree; does not modify."""
        first = int(self._trie[X_PLACE]) + row * PLACE
        place = self._m[first : first + PLACE]
        before = place.copy()
        p = own_tail(self._requests, self._own, self._m, row)
        own = trie_rows.own_place(self._trie, self._own, self._m, first, p, self._context)
        shared = trie_rows.shared_place(*self._state, row, p, self._context)
        place[:] = before
        return own, shared

    def _contexts(self, node: int, length: int) -> list[dict[str, Any]]:
        """A context and its suffixes, as far as they have followers: length, count, followers by recency, counted."""
        found = []
        while length > 0:
            fields = self._node(node)
            followers: dict[int, int] = {}
            child = int(fields[C_CHILD])
            while child and len(followers) < self.config.max_followers:
                below = self._node(child)
                followers[int(below[C_TOKEN]) - 1] = int(below[C_COUNT])
                child = int(below[C_OLDER])
            if followers:
                found.append({"length": length, "count": int(fields[C_COUNT]), "followers": followers})
            node, length = int(fields[C_SUFFIX]), length - 1
        return found

    def _node(self, node: int) -> Int32:
        first = int(at(self._trie, node))
        return self._m[first : first + NODE]
