"""Accept length against verified tokens, every rival rule: `python -m benchmarks.frontier --json FILE [TRACE...]`.

Traces: the bundled sample's test half, those named on the command line, and those in NGRAMSPEC_TRACES. Sequential
replay, cold start, outputs shared, exact accept lengths.

Each drafter is replayed with many settings, its defaults among them; a setting is a point of drafted tokens a step
(those that would be verified besides the committed one) and accept length. At a number of drafted tokens a drafter is
worth what its best settings reach, mixed linearly; one that cannot draft so many keeps its best at fewer.

Rivals are our re-implementations, which `python -m benchmarks.parity` finds equal to the released packages draft by
draft; `vllm-suffix-adaptive` is of a version that is not released and is equal to nothing but its source as read.
"""

from __future__ import annotations

import argparse
import itertools
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.machine import machine
from benchmarks.traces import load, named
from ngramspec.replay import Options, Trace, run, write_json

#: Drafted tokens a step at which drafters are compared.
NODES = (2, 5, 11, 24)

#: Probabilities below which a drafter that knows any drafts no token.
LEAST = (0.6, 0.4, 0.28, 0.2, 0.14, 0.1, 0.07, 0.05, 0.03, 0.015, 0.005)
LEAST_QUICK = (0.4, 0.1, 0.015)
LONGEST = 64

#: Points nearer than this are the same: accept lengths of ties.
CLOSE = 1e-9


class Setting(NamedTuple):
    """One way to set a drafter up."""

    options: dict[str, Any]
    topology: str
    max_draft: int
    min_prob: float = 0.0


def settings(drafter: str, quick: bool = False) -> list[Setting]:
    """The settings of a drafter that are replayed."""
    least = LEAST_QUICK if quick else LEAST
    widths = NODES if quick else (1, 2, 3, 5, 8, 11, 16, 24, 32, 48)
    match drafter:
        case "ngramspec":
            sized = [Setting({}, shape, LONGEST, p) for shape in ("tree", "chain") for p in least]
            return sized + [Setting({}, "tree", n) for n in widths]
        case "suffix-decoding":
            free = {"min_token_prob": 0.0}
            shapes = [
                Setting(free | {"max_tree_depth": 24}, "chain", 24),
                Setting(free | {"max_tree_depth": 64}, "chain", LONGEST),
                Setting(free | {"max_tree_depth": 64, "max_spec_factor": 4.0}, "chain", LONGEST),
                Setting(free | {"max_tree_depth": 24, "max_spec_factor": 2.0}, "tree", 24),
                Setting(free | {"max_tree_depth": 64, "max_spec_factor": 8.0, "max_spec_offset": 2.0}, "tree", LONGEST),
            ]
            return [shape._replace(min_prob=p) for shape in shapes for p in least]
        case "vllm-suffix-adaptive":
            return [Setting({}, "chain", 32, p) for p in least]
        case "sglang-ngram":
            kinds = ("BFS", "PROB")
            return [
                Setting({"num_draft_tokens": n + 1, "match_type": kind}, "tree", n) for kind in kinds for n in widths
            ]
        case "vllm-ngram":
            lengths = ((5, 5), (2, 5)) if quick else ((5, 5), (3, 5), (2, 5), (1, 5))
            return [Setting({"min_n": low, "max_n": high}, "chain", n) for low, high in lengths for n in widths]
        case "prompt-lookup":
            return [Setting({"max_ngram": m, "num_tokens": n}, "chain", n) for m in (2, 3, 5) for n in widths]
        case "ngram-mod":
            tried = [Setting({"n_match": m, "n_min": 2, "n_max": n}, "chain", n) for m in (12, 4) for n in widths]
            return [Setting({}, "chain", 64), *tried]
    raise ValueError(f"no settings for {drafter}")


DRAFTERS = (
    "ngramspec",
    "suffix-decoding",
    "vllm-suffix-adaptive",
    "sglang-ngram",
    "vllm-ngram",
    "prompt-lookup",
    "ngram-mod",
)


def point(trace: Trace, drafter: str, setting: Setting) -> dict[str, Any]:
    """One replay: drafted tokens a step and accept length."""
    options = Options(topology=setting.topology, max_draft=setting.max_draft, min_prob=setting.min_prob)
    result = run(trace, drafter, options, drafter_options=setting.options)
    return {
        "setting": setting._asdict(),
        "drafted_per_step": result["drafted_tokens"] / result["steps"],
        "accept_length": result["accept_length"],
    }


def best(points: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """Corners of the upper hull of settings, decoding without drafts the first: (drafted tokens, accept length)."""
    cloud = sorted([(0.0, 1.0), *((p["drafted_per_step"], p["accept_length"]) for p in points)])
    hull: list[tuple[float, float]] = []
    for x, y in cloud:
        if hull and y <= hull[-1][1] + CLOSE:
            continue
        while hull and hull[-1][0] == x:
            hull.pop()
        while len(hull) > 1:
            (x0, y0), (x1, y1) = hull[-2:]
            if (y1 - y0) * (x - x0) > (y - y0) * (x1 - x0):
                break
            hull.pop()
        hull.append((x, y))
    return hull


def at(hull: list[tuple[float, float]], nodes: float) -> float:
    """Accept length at `nodes` drafted tokens a step or fewer."""
    for (x0, y0), (x1, y1) in itertools.pairwise(hull):
        if nodes <= x1:
            return y0 + (y1 - y0) * (nodes - x0) / (x1 - x0)
    return hull[-1][1]


def judge(curves: dict[str, list[tuple[float, float]]]) -> dict[str, Any]:
    """Accept lengths at each of `NODES`, and by how much ours is above the best rival's."""
    found: dict[str, Any] = {}
    for nodes in NODES:
        values = {name: at(hull, nodes) for name, hull in curves.items()}
        rivals = {name: value for name, value in values.items() if name != "ngramspec"}
        strongest = max(rivals, key=rivals.__getitem__)
        found[str(nodes)] = {
            "accept_length": values,
            "strongest_rival": strongest,
            "ratio": values["ngramspec"] / rivals[strongest],
        }
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path, metavar="TRACE")
    parser.add_argument("--limit", type=int, help="first requests of each named trace only")
    parser.add_argument("--quick", action="store_true", help="fewer settings")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE")
    asked = parser.parse_args()
    results: dict[str, Any] = {"kind": "measured-cpu", "machine": machine(), "limit": asked.limit, "traces": {}}
    for path in [None, *named(asked.traces)]:
        name, trace = load(path, asked.limit)
        began = time.monotonic()
        points = {one: [point(trace, one, s) for s in settings(one, asked.quick)] for one in DRAFTERS}
        curves = {one: best(found) for one, found in points.items()}
        verdict = judge(curves)
        results["traces"][name] = {"requests": len(trace), "curves": curves, "at": verdict}
        told = ", ".join(
            f"{n}: {v['accept_length']['ngramspec']:.3f} ({v['ratio']:.3f} of {v['strongest_rival']})"
            for n, v in verdict.items()
        )
        print(f"{name}: accept length at drafted tokens a step: {told}; {time.monotonic() - began:.0f} s", flush=True)
        if asked.json:
            write_json(results, asked.json)


if __name__ == "__main__":
    main()
