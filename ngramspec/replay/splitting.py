"""Two halves of a trace: one to tune on or warm up with, one to judge by."""

from __future__ import annotations

import numpy as np

from ..caches.arguments import at_least
from ..errors import ConfigError, TraceError
from .trace import Int64, Trace

#: How rows are dealt out.
BY = ("session", "time")


def split(trace: Trace, fraction: float = 0.5, by: str = "session", seed: int = 0) -> tuple[Trace, Trace]:
    """Divide a trace; each part keeps the trace's order.

    Parameters
    ----------
    trace : Trace
        What to divide.
    fraction : float
        Share of the rows that the first part gets, about: sessions are not torn apart.
    by : str
        `"session"`: sessions are drawn at random (a row without one is its own). `"time"`: the first part holds the
        earliest arrivals, as a server that learns from its past would have seen them.
    seed : int
        Seed of the draw; has no effect by time.

    Returns
    -------
    tuple of Trace
        Two parts, neither empty, without a row in common.

    Raises
    ------
    ConfigError
        `fraction`, `by` or `seed` is not allowed.
    TraceError
        By time, and rows have no time; or one part would be empty.
    """
    at_least(seed, "seed", 0, None)
    if not isinstance(fraction, float) or not 0 < fraction < 1:
        raise ConfigError(f"fraction: got {fraction!r}, allowed between 0 and 1, neither of them")
    if by not in BY:
        raise ConfigError(f"by: got {by!r}, allowed {', '.join(BY)}")
    first = _earliest(trace, fraction) if by == "time" else _drawn(trace, fraction, seed)
    if not 0 < len(first) < len(trace):
        raise TraceError(f"{trace.name}: cannot be split by {by}, one part would be empty; it holds too little")
    chosen = np.zeros(len(trace), np.bool_)
    chosen[first] = True
    return trace.select(chosen), trace.select(~chosen)


def _earliest(trace: Trace, fraction: float) -> Int64:
    unknown = int(np.isnan(trace.arrival).sum())
    if unknown:
        raise TraceError(f"{trace.name}: {unknown} of {len(trace)} requests have no time of arrival; split by session")
    return np.argsort(trace.arrival, kind="stable")[: round(fraction * len(trace))]


def _drawn(trace: Trace, fraction: float, seed: int) -> Int64:
    # Rows without a session get numbers behind those of the sessions, one each.
    alone = trace.session.codes < 0
    group = trace.session.codes.astype(np.int64)
    group[alone] = len(trace.session.names) + np.arange(alone.sum())
    sizes = np.bincount(group)
    order = np.random.default_rng(seed).permutation(len(sizes))
    taken = np.cumsum(sizes[order])
    # As close to the share as whole sessions come, and at least one session on each side.
    n_groups = int(np.abs(taken - fraction * len(trace)).argmin()) + 1
    n_groups = min(n_groups, len(sizes) - 1)
    return np.flatnonzero(np.isin(group, order[:n_groups])).astype(np.int64)
