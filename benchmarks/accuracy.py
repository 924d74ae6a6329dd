"""Accept length against nodes on recorded traces: `python -m benchmarks.accuracy [--limit N] --json FILE [TRACE...]`.

Traces: the bundled sample's test half, what is named on the command line, and the files in NGRAMSPEC_TRACES
(separated by the system's path separator). Sequential replay, cold start, outputs shared, exact accept lengths.

For each trace: a tree of 11 drafted nodes with its calibration, and accept length at
two drafted tokens a step, interpolated between the nearest settings, for the drafter, the rival rule that sizes its own
drafts (`suffix-decoding`) and fixed shapes.
"""

from __future__ import annotations

import argparse
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from ngramspec.replay import Options, Trace, read, run, write_json
from ngramspec.replay.sample import sample

LEAN = 2.0
N_HALVINGS = 6
SIZED = ("ngramspec", "suffix-decoding")  # size their drafts by a probability, which is searched for
FIXED = {"rolling-hash": (1, 2, 3), "prompt-lookup": (1, 2, 3, 4), "vllm-ngram": (2, 5, 10)}  # tokens a draft


def point(trace: Trace, drafter: str, options: Options) -> dict[str, Any]:
    """One replay: drafted tokens a step and accept length."""
    result = run(trace, drafter, options)
    return {
        "max_draft": options.max_draft,
        "min_prob": options.min_prob,
        "drafted_per_step": result["drafted_tokens"] / result["steps"],
        "accept_length": result["accept_length"],
        "calibration": result.get("calibration"),
        "stats": result["stats"],
    }


def at(points: list[dict[str, Any]], nodes: float) -> float | None:
    """Accept length at `nodes` drafted tokens a step, linear between settings; None where they do not reach it."""
    curve = sorted([(0.0, 1.0), *((p["drafted_per_step"], p["accept_length"]) for p in points)])
    for (x0, y0), (x1, y1) in pairwise(curve):
        if x0 <= nodes <= x1 and x1 > x0:
            return y0 + (y1 - y0) * (nodes - x0) / (x1 - x0)
    return None


def lean(trace: Trace, drafter: str) -> list[dict[str, Any]]:
    """Settings of a drafter on both sides of LEAN drafted tokens a step, as close as the search comes."""
    points: list[dict[str, Any]] = []
    if drafter in FIXED:
        for n in FIXED[drafter]:
            points.append(point(trace, drafter, Options(topology="chain", max_draft=n)))
            if points[-1]["drafted_per_step"] > LEAN:
                break
        return points
    low, high = 0.02, 0.9
    for _ in range(N_HALVINGS):
        middle = (low * high) ** 0.5
        points.append(point(trace, drafter, Options(topology="chain", max_draft=31, min_prob=middle)))
        if points[-1]["drafted_per_step"] > LEAN:
            low = middle
        else:
            high = middle
    return points


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path, metavar="TRACE")
    parser.add_argument("--limit", type=int, help="first requests of each trace only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE")
    options = parser.parse_args()
    named = [Path(p) for p in os.environ.get("NGRAMSPEC_TRACES", "").split(os.pathsep) if p]
    results: dict[str, Any] = {"kind": "measured-cpu", "machine": machine(), "limit": options.limit, "traces": {}}
    for path in [None, *options.traces, *named]:
        trace = sample("test") if path is None else read(path)
        if options.limit and path is not None:
            trace = trace.select(list(range(min(options.limit, len(trace)))))
        entry: dict[str, Any] = {"tree_11": point(trace, "ngramspec", Options(calibration=True))}
        entry["lean"] = {name: lean(trace, name) for name in (*SIZED, *FIXED)}
        entry["at_two_drafted_tokens"] = {name: at(points, LEAN) for name, points in entry["lean"].items()}
        name = "sample" if path is None else path.name.split(".")[0]
        results["traces"][name] = entry
        shown = {k: v if v is None else round(v, 3) for k, v in entry["at_two_drafted_tokens"].items()}
        error = entry["tree_11"]["calibration"]["weighted_mean_error"]
        length = entry["tree_11"]["accept_length"]
        print(f"{name}: tree of 11 {length:.3f} (calibration error {error:.4f}); at two {shown}", flush=True)
        if options.json:
            write_json(results, options.json)


if __name__ == "__main__":
    main()
