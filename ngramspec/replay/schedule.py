"""Which recorded request starts next: file order, a later turn only after the earlier one has ended."""

from __future__ import annotations

import heapq

import numpy as np

from .trace import Int64, Trace


def successors(trace: Trace) -> Int64:
    """The row that waits for each row to end, -1 where none does, int64[n_rows].

    Rows of one session follow each other by turn, rows of the same turn in file order; a session in which some row
    has no turn is taken in file order. Rows without a session wait for nobody.
    """
    n = len(trace)
    session = trace.session.codes
    unordered = np.zeros(len(trace.session.names) + 1, np.bool_)
    unordered[session[trace.turn < 0]] = True
    turn = np.where(unordered[session], 0, trace.turn)
    order = np.lexsort((np.arange(n), turn, session))
    after = np.full(n, -1, np.int64)
    earlier, later = order[:-1], order[1:]
    together = (session[earlier] == session[later]) & (session[earlier] >= 0)
    after[earlier[together]] = later[together]
    return after


class Schedule:
    """Rows that may start, lowest row number first.

    Parameters
    ----------
    trace : Trace
        Recorded requests.
    """

    def __init__(self, trace: Trace) -> None:
        self._after = successors(trace).tolist()
        waiting = set(self._after)
        self._ready = [row for row in range(len(trace)) if row not in waiting]  # ascending: a heap already

    def start(self) -> int:
        """Take the next row to start; -1 when none may start now."""
        return heapq.heappop(self._ready) if self._ready else -1

    def ended(self, row: int) -> None:
        """Let the row that waits for `row` start."""
        if self._after[row] >= 0:
            heapq.heappush(self._ready, self._after[row])
