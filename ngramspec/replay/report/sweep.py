"""Other budgets and batch sizes around what was asked for, whose runs make the frontier and the curve by batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...drafting.budget import Budget
from ...drafting.cost import CostModel
from ..options import Options
from ..trace import Trace

#: Most tokens drafted a step.
SIZES = (1, 2, 4, 8, 16, 32)

#: Path probabilities below which nothing is drafted, within the largest size.
THRESHOLDS = (0.02, 0.05, 0.1, 0.2, 0.4)

#: Requests at a time, where step times are known.
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)

#: Drafter whose probabilities are good enough to size drafts by.
CALIBRATED = "ngramspec"


def further(
    traces: Sequence[Trace], drafters: Sequence[str], options: Options, cost: CostModel | None = None
) -> list[tuple[str, Options]]:
    """What to replay beside `options` for a report: other budgets of every drafter, other batch sizes of the first.

    Parameters
    ----------
    traces : sequence of Trace
        What is replayed. Batch sizes beyond half of a trace's sessions are left out: the batch would soon run empty.
    drafters : sequence of str
        Names; `"none"` has no budget.
    options : Options
        What the compared runs were replayed with.
    cost : CostModel, optional
        Step times for the batch sizes. None: those of `options`; without any there are no batch sizes.

    Returns
    -------
    list of (str, Options)
        Drafter and options of each run.
    """
    plain = replace(options, calibration=False)
    active = [name for name in drafters if name != "none"]
    found = [(name, other) for name in active for other in budgets(plain, thresholds=name == CALIBRATED)]
    cost = cost or options.step_cost
    if cost is not None and active:
        most = min(at_a_time(trace) for trace in traces) // 2
        priced = [replace(plain, cost=cost)]
        if active[0] == CALIBRATED:
            free = replace(priced[0], max_draft=SIZES[-1], min_prob=0.0, verify_width=None)
            priced.append(replace(free, budget=Budget(mode="cost", cost=cost, uniform_width=options.shape == "sglang")))
        found += [
            (active[0], other)
            for one in dict.fromkeys(priced)
            for other in [one, *batches(one, most)]
            if other != plain
        ]
    return found


def budgets(options: Options, *, thresholds: bool) -> list[Options]:
    """Other budgets to replay with; batch size, engine and step times as in `options`.

    Parameters
    ----------
    options : Options
        What was asked for; not among the result.
    thresholds : bool
        Also sizes that each step chooses by path probability.
    """
    free = replace(options, budget=None, cost=options.step_cost, verify_width=None, min_prob=0.0)
    found = [replace(free, max_draft=size) for size in SIZES]
    if thresholds:
        found += [_threshold(replace(free, max_draft=SIZES[-1]), threshold) for threshold in THRESHOLDS]
    return [other for other in found if other != options]


def _threshold(options: Options, min_prob: float) -> Options:
    """Drafts down to a probability; an engine of one width pads them to the widest of the batch."""
    if options.shape == "sglang":
        return replace(options, budget=Budget(mode="threshold", min_prob=min_prob, uniform_width=True))
    return replace(options, min_prob=min_prob)


def batches(options: Options, most: int) -> list[Options]:
    """The other batch sizes up to `most` to replay with, everything else as in `options`."""
    return [replace(options, concurrency=n) for n in BATCHES if n != options.concurrency and n <= most]


def at_a_time(trace: Trace) -> int:
    """Most requests that can run at a time: sessions, and requests without one."""
    return len(trace.session.names) + int((trace.session.codes < 0).sum())
