"""From arrival times to step times.

Only the window in which every stream runs is looked at: from the first token of the last one to start to the last token
of the first one to end. There the batch is as large as it was meant to be, and no prompt is being prefilled. Within it,
time over steps does not depend on how tokens are bundled on their way.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

#: Least events of each stream in the window.
MIN_EVENTS = 6


class Stream(NamedTuple):
    """What one request streamed."""

    times: list[float]  #: arrival of each event with tokens, seconds, ascending
    n_prompt: int  #: tokens of its prompt
    n_tokens: int  #: tokens of its output
    n_steps: int  #: decode or verify steps that emitted them, the first token's prefill left out


class Pace(NamedTuple):
    """How fast a batch ran in its window."""

    step_s: float  #: seconds a step, median over streams
    tokens_per_second: float  #: of all streams together


def pace(streams: Sequence[Stream]) -> Pace | None:
    """Measure a batch; None where its streams did not run together for long enough.

    Parameters
    ----------
    streams : sequence of Stream
        Requests of one batch, each with an event at least.
    """
    start = max(stream.times[0] for stream in streams)
    end = min(stream.times[-1] for stream in streams)
    steps: list[float] = []
    rate = 0.0
    for times, _, n_tokens, n_steps in streams:
        first, last = bisect_left(times, start), bisect_right(times, end) - 1
        if last - first < MIN_EVENTS or times[last] <= times[first]:
            return None
        seconds, share = times[last] - times[first], (last - first) / (len(times) - 1)
        steps.append(seconds / (share * n_steps))
        rate += share * (n_tokens - 1) / seconds
    return Pace(median(steps), rate)
