"""When each request is sent, and which of those sent is let in next."""

from __future__ import annotations

import heapq

import numpy as np

from ...errors import ConfigError, TraceError
from ..schedule import successors
from ..trace import Int64, Trace
from .settings import Serving

NS_PER_S = 1_000_000_000
LATEST_S = 1e8  # three years; the clock itself counts nanoseconds in 64 bits


def arrivals_ns(trace: Trace, serving: Serving) -> Int64:
    """Earliest time at which each request is sent, int64[n_rows] in nanoseconds.

    By time stamps, the first is at 0. Poisson arrivals go in file order. Closed: 0.

    Raises
    ------
    TraceError
        Arrivals are to be the trace's own, and some request has no time stamp, or they span more than `LATEST_S`.
    ConfigError
        At the given rate the last request comes after `LATEST_S`.
    """
    n = len(trace)
    if serving.arrivals == "trace":
        known = np.isfinite(trace.arrival)
        if not known.all():
            raise TraceError(
                f"{trace.name}: {n - int(known.sum())} of {n} requests have no time stamp, the first is "
                f"{trace.ids[int(np.argmin(known))]!r}; take arrivals 'poisson' or 'closed'"
            )
        seconds = (trace.arrival - trace.arrival.min(initial=np.inf)) / serving.speed
    elif serving.rate is not None:
        # By inverting the distribution: raw uniform numbers of a seed are the same in every release of numpy.
        uniform = np.random.Generator(np.random.PCG64(serving.seed)).random(n)
        seconds = np.cumsum(-np.log1p(-uniform)) / serving.rate
    else:
        seconds = np.zeros(n)
    latest = float(seconds.max(initial=0.0))
    if not latest <= LATEST_S:
        message = f"the last request would be sent after {latest:.3g} s, allowed are {LATEST_S:g} s"
        if serving.arrivals == "trace":
            raise TraceError(f"{trace.name}: {message}: time stamps are in seconds; or take a larger speed")
        raise ConfigError(f"rate: got {serving.rate}, {message}: take a larger one")
    nanoseconds: Int64 = np.rint(seconds * NS_PER_S).astype(np.int64)
    return nanoseconds


class Queue:
    """Requests that wait to be let in: first sent, first in; of two sent at once, the lower row.

    With closed arrivals the lowest row goes first, and is sent when it is let in.

    Parameters
    ----------
    trace : Trace
        Recorded requests.
    serving : Serving
        How they arrive.
    """

    def __init__(self, trace: Trace, serving: Serving) -> None:
        self._closed = serving.arrivals == "closed"
        self._arrivals = arrivals_ns(trace, serving).tolist()
        self._after = successors(trace).tolist()
        waiting = set(self._after)
        self._sent = [(at, row) for row, at in enumerate(self._arrivals) if row not in waiting]
        heapq.heapify(self._sent)

    def next_ns(self) -> int | None:
        """When the next request is sent, now or later; None where none will be before another has ended."""
        return self._sent[0][0] if self._sent else None

    def take(self, now: int) -> tuple[int, int]:
        """The next request and when it was sent; row -1 where none has been."""
        if not self._sent or self._sent[0][0] > now:
            return -1, now
        at, row = heapq.heappop(self._sent)
        return row, now if self._closed else at

    def ended(self, row: int, now: int) -> None:
        """Let the turn after `row` be sent."""
        after = self._after[row]
        if after >= 0:
            heapq.heappush(self._sent, (0 if self._closed else max(self._arrivals[after], now), after))


def cached_prefixes(trace: Trace, ends: Int64, serving: Serving) -> list[int]:
    """Prompt tokens of each row that the KV cache holds from the session's earlier turn; at least one is computed.

    Parameters
    ----------
    trace : Trace
        Recorded requests.
    ends : int64[n_rows]
        Where each output ends, as positions in the outputs.
    serving : Serving
        Whether there is a cache.
    """
    cached = [0] * len(trace)
    if not serving.prefix_cache:
        return cached
    for earlier, row in enumerate(successors(trace).tolist()):
        if row < 0:
            continue
        output = trace.output.tokens[trace.output.offsets[earlier] : ends[earlier]]
        before, prompt = np.concatenate((trace.prompt[earlier], output)), trace.prompt[row]
        n = min(len(before), len(prompt))
        differs = np.flatnonzero(before[:n] != prompt[:n])
        cached[row] = max(min(int(differs[0]) if len(differs) else n, len(prompt) - 1), 0)
    return cached
