"""The requests that decode together, as arrays that the kernels take."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..draft import DraftBatch
from ..kernels.verify import END, POS, ROW
from .counts import Counts
from .trace import Int32, Int64, Trace


class Batch:
    """Arrays of the running requests, reused for every step; the first `n` entries are in use.

    Parameters
    ----------
    capacity : int
        Most requests at a time.
    width : int
        Most tokens drafted a request.
    """

    def __init__(self, capacity: int, width: int) -> None:
        self.n = 0
        self.draft = DraftBatch.allocate(capacity, width)
        self.state: Int64 = np.zeros((capacity, 4), np.int64)
        self.slots: Int32 = np.zeros(capacity, np.int32)
        self.remaining: Int32 = np.zeros(capacity, np.int32)
        self.emitted: Int32 = np.zeros(capacity * (width + 1), np.int32)
        self.offsets: Int32 = np.zeros(capacity + 1, np.int32)
        self.depths: Int32 = np.zeros(width, np.int32)

    def arguments(self, outputs: Int32, counts: Counts) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """What `verify_batch` takes after `n` and `width`, and what `calibrate_batch` takes after `n`.

        Parameters
        ----------
        outputs : int32[n_tokens]
            Recorded outputs, one after the other.
        counts : Counts
            Counted into.
        """
        draft = self.draft
        verified = (outputs, draft.tokens, draft.parents, draft.sources, draft.n_draft, draft.reason, self.state,
                    self.remaining, self.depths, self.emitted, self.offsets, counts.per_row, counts.per_depth,
                    counts.per_source, counts.per_reason)  # fmt: skip
        judged = (outputs, draft.tokens, draft.parents, draft.path_q30, draft.n_draft, self.state, self.depths,
                  counts.bins)  # fmt: skip
        return verified, judged

    def add(self, slot: int, pos: int, end: int, limit: int, row: int) -> None:
        """Put one request at the end.

        Parameters
        ----------
        slot : int
            As `begin` returned it.
        pos, end, limit : int
            Next token, end and known limit (-1: none), as positions in the outputs.
        row : int
            Row of the trace.
        """
        i = self.n
        self.state[i] = pos, end, limit, row
        self.slots[i] = slot
        self.remaining[i] = limit - pos if limit >= 0 else -1
        self.n += 1

    def remove_ended(self) -> list[int]:
        """Take out the requests that have ended, the order of the others kept; returns their rows."""
        state = self.state[: self.n]
        going = state[:, POS] < state[:, END]
        rows: list[int] = state[~going, ROW].tolist()
        self.n -= len(rows)
        for array in (self.state, self.slots, self.remaining):
            array[: self.n] = array[: len(going)][going]
        return rows


def known_limits(trace: Trace, max_tokens: int | None) -> Int64:
    """Position in the outputs at which the engine knows that it must stop, -1 where it knows of none, int64[n_rows].

    The recorded length counts only where the record says that a limit ended it: else it would leak the future.
    """
    starts, ends = trace.output.offsets[:-1], trace.output.offsets[1:]
    names = trace.finish_reason.names
    length: NDArray[np.bool_] = trace.finish_reason.codes == (names.index("length") if "length" in names else -2)
    limits = np.where(length, ends, -1)
    if max_tokens is not None:
        limits = np.where(length, np.minimum(ends, starts + max_tokens), starts + max_tokens)
    return limits
