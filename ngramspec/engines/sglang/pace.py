"""Less when less pays: rows a request for each step, from step times as they are measured while serving.

One table holds the time of a step by batch size (in powers of two) and rows a request. A step takes the number of rows
that emits most a second by that table and the drafts' own probabilities; one row is plain decoding. Beside it stands a
guard that does not trust the probabilities: where what was really emitted over a window is less than plain decoding
would have emitted in the same time, a pause of plain decoding follows, each longer than the last. With a fixed width
only the guard is left, and plain steps now and then to measure what it compares with; where there can be none, it says
in the log what it would do.

This reads a clock, so it decides on one rank only, which tells the others (see `ranks`). `Frozen` reads none: it goes
by step times from a file, and every rank decides alike.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...draft import DraftBatch
from ...drafting.budget import Budget
from ...drafting.cost import CostModel
from ...kernels.plan import plan_fastest_width

_log = logging.getLogger("ngramspec")

SAMPLES = 3  # step times of a width before it is believed
TRY_EVERY = 4  # steps, until every width has its samples
RETRY_EVERY = 256  # steps after which the width not measured for longest is tried again
WEIGHT, WEIGHT_OLD = 0.2, 0.8  # of a new step time in the average, and in one that had not been renewed for long
LONGEST = 4.0  # a step that took so many times the average counts as so many: something else was in the way
WINDOW = 128  # steps
FIRST_PAUSE, MAX_PAUSE = 256, 8192  # steps
LOG_SECONDS = 60.0


class Began(NamedTuple):
    """A step that has begun."""

    n: int  #: requests
    n_rows: int  #: a request
    seconds: float  #: when
    emitted: int  #: tokens up to then


class Pace:
    """Chooses the rows of each step.

    Parameters
    ----------
    widths : sequence of int
        Rows a request to choose from, ascending, 1 first.
    clock : callable
        Seconds.
    cost : CostModel, optional
        Step times to start from, and for what plain steps take where no step may be one.
    fixed : bool
        Always the widest, but for plain steps to measure and to pause.

    Attributes
    ----------
    ms : float64[17, n_widths]
        Average time of a step, by bit length of the batch size and by width; NaN where never measured.
    pauses : int
        Times that the guard stopped speculation.
    """

    needs_kv: ClassVar[bool] = False

    def __init__(
        self,
        widths: Sequence[int],
        clock: Callable[[], float] = time.perf_counter,
        *,
        cost: CostModel | None = None,
        fixed: bool = False,
    ) -> None:
        self.widths, self._cost, self._fixed = list(widths), cost, fixed
        self._drafted = np.array(widths, np.int32) - 1
        self._clock = clock
        self.ms: NDArray[np.float64] = np.full((17, len(self.widths)), np.nan)
        self._n_samples = np.zeros(self.ms.shape, np.int64)
        self._measured_at = np.zeros(self.ms.shape, np.int64)
        if cost is not None:
            for place in range(1, len(self.ms)):
                n = 1 << (place - 1)
                self.ms[place] = [cost.step_ms(n * width, n) for width in self.widths]
            self._n_samples[:] = SAMPLES  # believed until measured
        self._times = np.zeros(self.widths[-1])
        self._began: Began | None = None
        self._n_steps = 0
        self.pauses = 0
        self._pause, self._left = FIRST_PAUSE, 0
        self._window: list[tuple[float, float]] = []  # of each step: what was emitted, what plain decoding would have
        self._logged = -LOG_SECONDS

    @property
    def paused(self) -> bool:
        """Whether the guard has stopped speculation for now."""
        return self._left > 0

    def begin(self, n: int, emitted: int, kv_tokens: int = 0) -> None:
        """Note that a decode step begins; modifies.

        Parameters
        ----------
        n : int
            Requests in it.
        emitted : int
            Tokens emitted by all steps until now.
        kv_tokens : int
            Tokens in the KV cache over the batch, where `needs_kv`.
        """
        now = self._clock()
        last = self._began
        if last is not None and last.n == n:
            self._measured(last, 1000.0 * (now - last.seconds), emitted - last.emitted)
        self._began = Began(n, 0, now, emitted)

    def interrupt(self) -> None:
        """Note that something else ran since the last step, so that its time says nothing; modifies."""
        self._began = None

    def choose(self, out: DraftBatch, n: int) -> int:
        """Rows a request for the step that `begin` announced; modifies.

        Parameters
        ----------
        out : DraftBatch
            Its drafts; shortened to what is worth verifying.
        n : int
            Requests in it.
        """
        n_rows = self._choose(out, n)
        if self._began is not None:
            self._began = self._began._replace(n_rows=n_rows)
        return n_rows

    def _choose(self, out: DraftBatch, n: int) -> int:
        self._n_steps += 1
        place = n.bit_length()
        if self._left > 0:
            self._left -= 1
            return self.widths[0]
        fewest = int(self._n_samples[place].argmin())
        if self._n_samples[place, fewest] < SAMPLES:
            return self.widths[fewest] if self._n_steps % TRY_EVERY == 0 else self.widths[-1]
        if self._n_steps % RETRY_EVERY == 0:
            return self.widths[int(self._measured_at[place].argmin())]
        if self._fixed:
            return self.widths[-1]
        self._times[self._drafted] = self.ms[place]
        drafted, _ = plan_fastest_width(n, out.path_q30, self._drafted, self._times, out.n_draft, out.reason)
        return int(drafted) + 1

    def _measured(self, step: Began, ms: float, n_emitted: int) -> None:
        if step.n_rows not in self.widths:
            return
        at = step.n.bit_length(), self.widths.index(step.n_rows)
        average = self.ms[at]
        if np.isnan(average):
            self.ms[at] = ms
        else:
            old = self._n_steps - self._measured_at[at] >= RETRY_EVERY // 2
            self.ms[at] += (WEIGHT_OLD if old else WEIGHT) * (min(ms, LONGEST * average) - average)
        self._n_samples[at] += 1
        self._measured_at[at] = self._n_steps
        if self.widths[0] == 1:
            plain, known = self.ms[at[0], 0], self._n_samples[at[0], 0] >= SAMPLES
        else:
            known = self._cost is not None
            plain = self._cost.decode_ms(step.n) if self._cost is not None else np.nan
        if step.n_rows > 1 and known:
            self._judge(n_emitted, step.n * min(ms, LONGEST * self.ms[at]) / plain)

    def _judge(self, emitted: float, plain: float) -> None:
        """Add a step to the window: what it emitted, and what plain decoding would have in the same time."""
        self._window.append((emitted, plain))
        if len(self._window) < WINDOW:
            return
        got, alternative = (sum(step[k] for step in self._window) for k in (0, 1))
        self._window.clear()
        if got >= alternative:
            self._pause = FIRST_PAUSE
            return
        advice = "this server cannot pause cheaply: restart it without speculation, or with fewer rows or `capture`"
        if self.widths[0] == 1:
            self.pauses += 1
            self._left = self._pause
            self._pause = min(MAX_PAUSE, 2 * self._pause)
            advice = f"plain decoding for {self._left} steps, then it is tried again"
        now = self._clock()
        if now - self._logged >= LOG_SECONDS:
            self._logged = now
            _log.warning(
                "ngramspec: speculation emitted %.2f of what plain decoding would have over %d steps; %s",
                got / alternative,
                WINDOW,
                advice,
            )


class Frozen:
    """Chooses the rows of each step by step times that nothing changes: no clock, so that every rank decides alike.

    Parameters
    ----------
    widths : sequence of int
        Rows a request to choose from, ascending, 1 first.
    cost : CostModel
        Step times.
    """

    paused: ClassVar[bool] = False

    def __init__(self, widths: Sequence[int], cost: CostModel) -> None:
        self.widths, self.needs_kv = list(widths), cost.needs_kv
        drafted = tuple(width - 1 for width in widths if width > 1)
        self._budget = Budget(mode="cost", cost=cost, uniform_width=True, widths=drafted)
        self._kv_tokens = 0

    def begin(self, n: int, emitted: int, kv_tokens: int = 0) -> None:
        """Note what the step's time depends on; modifies.

        Parameters
        ----------
        n, emitted, kv_tokens
            See `Pace.begin`.
        """
        self._kv_tokens = kv_tokens

    def interrupt(self) -> None:
        """Nothing is measured."""

    def choose(self, out: DraftBatch, n: int) -> int:
        """Rows a request for the step; modifies `out`, see `Pace.choose`."""
        return self._budget.apply(out, n, self._kv_tokens).width + 1


def chosen(width: str, guard: str, widths: Sequence[int], n_rows: int, cost: CostModel | None) -> Pace | Frozen | None:
    """What chooses the rows of a step; None where every step takes `n_rows` and nothing watches.

    Parameters
    ----------
    width, guard
        See `EngineConfig`.
    widths : sequence of int
        Rows that a step may verify; empty: `n_rows` alone.
    n_rows : int
        The server's.
    cost : CostModel, optional
        Step times from a file.
    """
    if width == "cost" and cost is not None:
        return Frozen(widths, cost)
    if widths:
        return Pace(widths, cost=cost, fixed=width == "fixed")
    return Pace((n_rows,), cost=cost, fixed=True) if guard == "auto" and cost is not None else None
