"""What the project set out to reach against the released rivals, and whether a run of the benchmarks reached it."""

from __future__ import annotations

from statistics import geometric_mean
from typing import Any, NamedTuple

from benchmarks.frontier import NODES

OURS, CORE = "ngramspec", "ngramspec, C core"
CACHED = "1000000"  #: tokens in the cache where costs and memory are compared

#: (rival, times as fast) at batch 32, everything that the drafter does counted.
FASTER = (("Arctic, depth 24", 2.0), ("SGLang", 10.0))
SMALLER = ("Arctic, depth 24", 2.0)

#: Behind SGLang: times as fast as its corpus calls at the batch sizes, and µs that the model waits for at the last.
BEHIND, BEHIND_BATCHES, EXPOSED = 5.0, ("1", "8", "32", "64"), (300.0, "128")


class Target(NamedTuple):
    """One number that was to be reached."""

    what: str
    ours: str
    rival: str
    ratio: float
    needed: float

    @property
    def met(self) -> bool:
        return self.ratio >= self.needed


def of_speed(place: str, entry: dict[str, Any]) -> list[Target]:
    """Whole steps at batch 32, where both were measured."""
    found = []
    for rival, needed in FASTER:
        for mine in (OURS, CORE):
            if {"whole_us"} <= entry.get(rival, {}).keys() & entry.get(mine, {}).keys():
                ours, theirs = entry[mine]["whole_us"], entry[rival]["whole_us"]
                what = f"whole step{by(mine)} against {rival}, batch 32, {place}"
                found.append(Target(what, f"{ours:.1f} µs", f"{theirs:.1f} µs", theirs / ours, needed))
    return found


def by(mine: str) -> str:
    """Which of our engines is meant; numba goes without saying."""
    return " of the C core" if mine == CORE else ""


def of_behind(steps: dict[str, Any]) -> list[Target]:
    """Steps behind SGLang beside a full cache: the batch size where they are nearest decides."""
    if CACHED not in steps:
        return []
    at, found = steps[CACHED], []
    for mine, name in (("ours", OURS), ("ours, C core", CORE)):
        nearest = min(BEHIND_BATCHES, key=lambda batch: at[batch]["SGLang"]["step_us"] / at[batch][mine]["step_us"])
        ours, theirs = at[nearest][mine]["step_us"], at[nearest]["SGLang"]["step_us"]
        what = f"CPU of a step behind SGLang{by(name)} against its corpus calls, a million tokens cached, nearest batch"
        found.append(Target(f"{what}: {nearest}", f"{ours:.0f} µs", f"{theirs:.0f} µs", theirs / ours, BEHIND))
    most, batch = EXPOSED
    waits = at[batch]["ours"]["exposed_beside_look_ups_us"]
    what = f"what the model waits for beside look-ups at batch {batch}, a million tokens cached"
    return [*found, Target(what, f"{waits:.0f} µs", f"{most:.0f} µs allowed", most / waits, 1.0)]


def of_traces(batches: dict[str, Any]) -> list[Target]:
    """Whole steps at batch 32 over all traces: their geometric mean."""
    entries = [entry for name, entry in batches.items() if name.endswith(", batch 32")]
    found = []
    for rival, needed in FASTER:
        for mine in (OURS, CORE):
            both = [e for e in entries if {rival, mine} <= e.keys()]
            if len(both) > 1:
                ours, theirs = (geometric_mean(e[name]["whole_us"] for e in both) for name in (mine, rival))
                what = f"whole step{by(mine)} against {rival}, batch 32, mean of {len(both)} traces"
                found.append(Target(what, f"{ours:.1f} µs", f"{theirs:.1f} µs", theirs / ours, needed))
    return found


def of_memory(entry: dict[str, Any]) -> list[Target]:
    """Resident bytes a cached token."""
    rival, needed = SMALLER
    part = "resident_bytes_per_token"
    if not {part} <= entry.get(rival, {}).keys() & entry.get(OURS, {}).keys():
        return []
    ours, theirs = entry[OURS][part], entry[rival][part]
    return [Target(f"memory a cached token against {rival}", f"{ours:.0f} B", f"{theirs:.0f} B", theirs / ours, needed)]


def of_length(traces: dict[str, Any]) -> list[Target]:
    """Accept length above every rival's on every trace: the trace where it is nearest decides."""
    found = []
    for nodes in NODES:
        closest = min(traces, key=lambda name: traces[name]["at"][str(nodes)]["ratio"])
        at = traces[closest]["at"][str(nodes)]
        rival = at["strongest_rival"]
        what = f"accept length at {nodes} drafted tokens a step, nearest of {len(traces)} traces: {closest}"
        lengths = at["accept_length"]
        found.append(Target(what, f"{lengths[OURS]:.3f}", f"{lengths[rival]:.3f} ({rival})", at["ratio"], 1.0))
    return found


def targets(results: dict[str, Any]) -> list[Target]:
    """All targets that the results at hand can judge, by benchmark name."""
    found: list[Target] = []
    if "cost" in results:
        batches = results["cost"]["batches"]
        found += of_speed("sample, empty cache", batches.get("sample, batch 32", {})) + of_traces(batches)
    if "cached" in results:
        entry = results["cached"]["cached"].get(CACHED, {})
        found += of_speed("sample, a million tokens cached", entry) + of_memory(entry)
    if "sglang_step" in results:
        found += of_behind(results["sglang_step"]["steps"])
    if "frontier" in results:
        found += of_length(results["frontier"]["traces"])
    return found
