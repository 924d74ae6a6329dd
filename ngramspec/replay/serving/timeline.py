"""What happened when: every step, and when each request was sent, answered and done."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..trace import Int64
from .settings import Serving

#: Columns of `Timeline.steps`: times in nanoseconds, requests that decoded and that prefilled, tokens that the model
#: computed, tokens emitted (first ones included) and prompt tokens ingested.
START, DURATION, FORWARD, DECODING, PREFILLING, COMPUTED, LEARNED, INGESTED = range(8)
N_COLUMNS = 8


@dataclass
class Timeline:
    """One simulated run; the clock starts at 0 and counts whole nanoseconds, so that times add up exactly.

    Parameters
    ----------
    n_rows : int
        Requests.

    Attributes
    ----------
    sent, first, ended : int64[n_rows]
        When each request was sent, had its first token (-1 where its output is empty), and its last.
    row_ms : float64[n_rows]
        Time of the steps that each request took part in, shared evenly among all that did, milliseconds.
    idle : int
        Time in which nothing ran, nanoseconds.
    end : int
        When the last step ended.
    """

    n_rows: int
    sent: Int64 = field(init=False)
    first: Int64 = field(init=False)
    ended: Int64 = field(init=False)
    row_ms: NDArray[np.float64] = field(init=False)
    idle: int = field(default=0, init=False)
    end: int = field(default=0, init=False)
    _log: array[int] = field(default_factory=lambda: array("q"), init=False, repr=False)

    def __post_init__(self) -> None:
        self.sent, self.first, self.ended = (np.full(self.n_rows, -1, np.int64) for _ in range(3))
        self.row_ms = np.zeros(self.n_rows)

    def log(self, step: tuple[int, ...]) -> None:
        """Append one step, a number for each column."""
        self._log.extend(step)

    @property
    def steps(self) -> Int64:
        """Every step in its order, int64[n_steps, 8]; columns as named above."""
        return np.array(self._log, np.int64).reshape(-1, N_COLUMNS)


class Served(NamedTuple):
    """The same requests, arriving alike, with a drafter and without speculation."""

    drafting: Timeline
    plain: Timeline


def durations(steps: Int64, serving: Serving) -> Int64:
    """How long each step would have taken had the drafter's times been others; what was decided stays as it is.

    Parameters
    ----------
    steps : int64[n_steps, 8]
        Of a timeline.
    serving : Serving
        With the times to charge.

    Returns
    -------
    int64[n_steps]
        Nanoseconds.
    """
    draft, accept, ingest = (
        np.rint(1000.0 * us * steps[:, column]).astype(np.int64)
        for us, column in (
            (serving.draft_us, DECODING),
            (serving.accept_us, LEARNED),
            (serving.ingest_us, INGESTED),
        )
    )
    if not serving.overlap:
        total: Int64 = draft + steps[:, FORWARD] + accept + ingest
        return total
    learning = np.zeros_like(accept)
    learning[1:] = accept[:-1]
    # What an idle time follows has been learned by the next step.
    learning[1:][steps[1:, START] > steps[:-1, START] + steps[:-1, DURATION]] = 0
    hidden: Int64 = draft + np.maximum(steps[:, FORWARD], learning + ingest)
    return hidden
