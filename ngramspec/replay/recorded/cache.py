"""A drafter that knows the outcome: it offers in each step as many right tokens as were accepted when it was recorded.

Wrong tokens fill the rest. The replay loop then verifies, counts and prices these steps as any others, so that they end
at the same EOS and share batches and context with the same requests.
"""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from ...caches.base import Int32
from ...draft import ONE_Q30, DraftBatch, Reason, Source
from ..trace import Trace
from .steps import RecordedSteps

#: A token that no record holds.
WRONG = -1


class RecordedDrafts:
    """As much of the protocol of `caches.base.Cache` as a replay needs.

    Parameters
    ----------
    trace : Trace
        What is replayed; requests are begun under their row number.
    steps : RecordedSteps
        Of the same trace.
    """

    name = "recorded"
    nbytes = 0

    def __init__(self, trace: Trace, steps: RecordedSteps) -> None:
        self._outputs = trace.output
        self._steps = steps
        self._slots: dict[str, int] = {}
        self._free: list[int] = []
        self._state: list[list[int]] = []  # of each slot: row, next step, tokens emitted

    def begin(self, request_id: str, prompt: Any, **settings: Any) -> int:
        """Take a slot for a row."""
        slot = heapq.heappop(self._free) if self._free else len(self._state)
        if slot == len(self._state):
            self._state.append([])
        self._state[slot] = [int(request_id), 0, 0]
        self._slots[request_id] = slot
        return slot

    def ingest(self, request_id: str, max_tokens: int | None = None) -> int:
        """Prompts are not read: none of one is left."""
        return 0

    def accept(self, request_id: str, tokens: Any) -> None:
        """Count tokens as emitted."""
        self._state[self._slots[request_id]][2] += len(tokens)

    def accept_batch(self, slots: Int32, tokens: Int32, offsets: Int32) -> None:
        """Count tokens as emitted, one step of each request."""
        for slot, n in zip(slots.tolist(), np.diff(offsets).tolist(), strict=True):
            self._state[slot][1] += 1
            self._state[slot][2] += n

    def draft_batch(self, slots: Int32, out: DraftBatch, **settings: Any) -> None:
        """Write a chain a request: what was accepted, and wrong tokens up to what was drafted."""
        for i, slot in enumerate(slots.tolist()):
            row, step, pos = self._state[slot]
            n_right, n = self._steps.lengths[row][step] - 1, self._steps.drafted[row][step]
            right = self._outputs[row][pos : pos + n_right]
            out.tokens[i, :n] = WRONG
            out.tokens[i, : len(right)] = right
            out.parents[i, :n] = np.arange(-1, n - 1, dtype=np.int32)
            out.path_q30[i, :n] = ONE_Q30
            out.sources[i, :n] = Source.NONE
            out.n_draft[i] = n
            out.match_length[i] = 0
            out.reason[i] = Reason.DRAFTED if n else Reason.NO_MATCH

    def finish(self, request_id: str) -> None:
        """Give the slot back."""
        heapq.heappush(self._free, self._slots.pop(request_id))

    def stats(self) -> dict[str, int]:
        """Steps and rows recorded."""
        return {"n_recorded_steps": sum(map(len, self._steps.lengths)), "n_recorded_rows": len(self._steps.lengths)}
