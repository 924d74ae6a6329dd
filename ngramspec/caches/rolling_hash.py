"""The rolling hash: where have we been? Earlier positions with the same last tokens, copied on without a depth cap."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..arena import NO_TEXT, S_EVICTED, S_TOKENS, SHARE_ALL, T_LENGTH, T_SHARE
from ..config import HashConfig
from ..draft import DraftBatch
from ..kernels import hash_draft
from ..kernels.evidence import C_CLASS, C_LENGTH, G_SIZE, W_CONTEXT, W_SIZE, gather
from ..kernels.tree import TREE_ROWS
from ..native import Engine
from .base import Int32
from .integrity import check_store
from .sessions import SessionCache


class RollingHashCache(SessionCache):
    """Drafts from earlier occurrences of the last 1, 2, 4, 8 tokens in own and shared text.

    Parameters
    ----------
    config : HashConfig
        Sizes and limits.
    buffer : uint8[config.nbytes], optional
        A state to attach to; None starts empty.
    engine : {"numba", "native"}, optional
        What runs it; None: `NGRAMSPEC_ENGINE`, or numba. State and drafts are the same.

    Examples
    --------
    >>> import ngramspec as ns
    >>> cache = ns.RollingHashCache(ns.HashConfig(capacity_tokens=100_000, vocab_size=1000))
    >>> slot = cache.begin("r1", [7, 8, 9, 5, 7, 8])
    >>> print(cache.draft("r1", max_draft=3, topology="chain"))
    └─ 9  0.317
       └─ 5  0.128
          └─ 7  0.059
    """

    name: ClassVar[str] = "rolling-hash"
    config_type = HashConfig

    def __init__(
        self, config: HashConfig, buffer: NDArray[np.uint8] | None = None, engine: Engine | None = None
    ) -> None:
        super().__init__(config, buffer, engine)
        self._shared = self.arena.header("shared")
        self._w = np.zeros(W_SIZE, np.int32)
        self._context = self._w[W_CONTEXT:]
        self._g = np.zeros(G_SIZE, np.int32)
        self._t = np.zeros((TREE_ROWS, 65), np.int32)

    @property
    def _state(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], Int32]:
        return self._requests, self._own, self._shared, self._m

    @property
    def _look_up(self) -> tuple[Any, ...]:
        """The state as look-ups take it: this cache has no frozen text."""
        header, mem = NO_TEXT
        return self._requests, self._own, self._shared, header, self._m, mem

    def _ingest_row(self, row: int, tokens: Int32) -> None:
        hash_draft.ingest(*self._state, row, tokens, self._field(row, T_SHARE) == SHARE_ALL, self._w)

    def _accept_rows(self, slots: Int32, tokens: Int32, offsets: Int32) -> None:
        hash_draft.accept_batch(*self._state, slots, tokens, offsets, self._context)

    def _truncate_row(self, row: int, n_tokens: int) -> None:
        hash_draft.truncate(*self._state, row, n_tokens)

    def _draft_rows(
        self, slots: Int32, out: DraftBatch, max_draft: Int32, remaining: Int32, chain: bool, min_q30: int
    ) -> None:
        if self._t.shape[1] <= out.width:
            self._t = np.zeros((TREE_ROWS, out.width + 1), np.int32)
        hash_draft.draft_batch(
            *self._look_up, slots, max_draft, remaining, chain, min_q30, self._w, self._g, self._t,
            out.tokens, out.parents, out.path_q30, out.sources, out.n_draft, out.match_length, out.reason,
        )  # fmt: skip

    def stats(self) -> dict[str, int]:
        """Counters and gauges; see `Cache.stats`."""
        own, shared = self._own, self._shared
        return super().stats() | {
            "own_tokens": int(own[S_TOKENS]),
            "shared_tokens": int(shared[S_TOKENS]),
            "own_tokens_evicted": int(own[S_EVICTED]),
            "shared_tokens_evicted": int(shared[S_EVICTED]),
        }

    def check_integrity(self) -> None:
        """Check every invariant; see `Cache.check_integrity`."""
        self._check_rows()
        check_store(self.arena, "own")
        check_store(self.arena, "shared")

    def explain(self, request_id: str) -> dict[str, Any]:
        """Matches behind the next draft: class, length and follower count; see `Cache.explain`."""
        row = self._row(request_id)
        n, n_context = gather(*self._look_up, row, self._w)
        classes, lengths = self._w[C_CLASS : C_CLASS + n], self._w[C_LENGTH : C_LENGTH + n]
        return {
            "tokens": self._field(row, T_LENGTH),
            "context_tokens": n_context,
            "own_matches": sorted(lengths[classes == 0].tolist(), reverse=True),
            "shared_matches": sorted(lengths[classes == 1].tolist(), reverse=True),
        }
