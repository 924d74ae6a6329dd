"""The same steps with other times of the drafter: what measured times would change, without deciding anything."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..schedule import successors
from ..trace import Int64, Trace
from .queue import arrivals_ns
from .settings import Serving
from .timeline import DECODING, DURATION, FORWARD, INGESTED, LEARNED, START, Timeline


def retimed(line: Timeline, trace: Trace, serving: Serving) -> Timeline:
    """When everything would have happened; each step holds what it held, and begins once the one before has ended.

    Longer steps would have let in more requests at a time, which this leaves out.

    Parameters
    ----------
    line : Timeline
        A run in which no time of the drafter was charged.
    trace : Trace
        What was served.
    serving : Serving
        How it was served, with the times to charge.

    Returns
    -------
    Timeline
        Of the same steps; `row_ms` grows as the steps do, evenly.
    """
    steps = line.steps
    starts, ends = steps[:, START], steps[:, START] + steps[:, DURATION]
    waited = np.ones(len(steps), np.bool_)
    waited[1:] = starts[1:] > ends[:-1]
    draft, accept, ingest = (
        np.rint(1000.0 * us * steps[:, column]).astype(np.int64)
        for us, column in (
            (serving.draft_us, DECODING),
            (serving.accept_us, LEARNED),
            (serving.ingest_us, INGESTED),
        )
    )
    taken: Int64 = draft + steps[:, FORWARD] + accept + ingest
    if serving.overlap:
        taken = draft + np.maximum(steps[:, FORWARD], _unlearned(starts, waited, steps, draft, accept, ingest) + ingest)
    # A step ends at the latest of: its arrival and all times since, for every arrival that an idle server waited for.
    total = np.cumsum(taken)
    since = np.where(waited, starts - (total - taken), np.iinfo(np.int64).min // 2)
    new_ends = np.maximum.accumulate(since) + total
    new = Timeline(line.n_rows)
    for what in ("first", "ended"):
        old = getattr(line, what)
        happened = old >= 0
        getattr(new, what)[happened] = new_ends[np.searchsorted(ends, old[happened])]
    if serving.arrivals == "closed":
        new.sent[:] = (new_ends - taken)[np.searchsorted(starts, line.sent)]
    else:
        after = successors(trace)
        earlier = np.flatnonzero(after >= 0)
        new.sent[:] = arrivals_ns(trace, serving)
        new.sent[after[earlier]] = np.maximum(new.sent[after[earlier]], new.ended[earlier])
    new.row_ms[:] = line.row_ms * (taken.sum() / max(int(steps[:, DURATION].sum()), 1))
    new.end = int(new_ends[-1]) if len(steps) else 0
    new.idle = new.end - int(taken.sum())
    changed = steps.copy()
    changed[:, START], changed[:, DURATION] = new_ends - taken, taken
    for step in changed.tolist():
        new.log(step)
    return new


def _unlearned(
    starts: Int64, waited: NDArray[np.bool_], steps: Int64, draft: Int64, accept: Int64, ingest: Int64
) -> Int64:
    """What each step still has to learn of the one before it, less what an idle time in between took."""
    left = np.zeros_like(accept)
    end = learning = 0
    columns = (starts, waited, steps[:, FORWARD], draft, accept, ingest)
    for i, (start, idle, forward, drafting, learned, read) in enumerate(
        zip(*(c.tolist() for c in columns), strict=True)
    ):
        begun = max(end, start) if idle else end
        left[i] = learning = max(0, learning - (begun - end))
        end = begun + drafting + max(forward, learning + read)
        learning = learned
    return left
