"""What happened when: every step, and when each request was sent, answered and done."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
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

    def log(self, step: Sequence[int]) -> None:
        """Append one step, a number for each column."""
        self._log.extend(step)

    @property
    def steps(self) -> Int64:
        """Every step in its order, int64[n_steps, 8]; columns as named above."""
        return np.array(self._log, np.int64).reshape(-1, N_COLUMNS)

    def request_ms(self, serving: Serving) -> NDArray[np.float64]:
        """What each request took, float64[n_rows] in milliseconds, as a modelled speed-up compares it.

        With closed arrivals, its part of the server's time: all together are the time in which it ran. With open ones,
        where a faster server idles more and runs less at a time, the time from when it was sent to its last token.
        """
        return self.row_ms if serving.arrivals == "closed" else (self.ended - self.sent) / 1e6


class Served(NamedTuple):
    """The same requests, arriving alike, with a drafter and without speculation."""

    drafting: Timeline
    plain: Timeline
