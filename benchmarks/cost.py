"""What a step costs beside the released rivals: `python -m benchmarks.cost [--quick] --json FILE [TRACE...]`.

All drafters serve the same requests at the same pace in one run, one after the other, again and again; of each number
the least of the repeats counts. Batch sizes 1 to 64 on the bundled sample, and 32 on the traces named and on those in
NGRAMSPEC_TRACES. A drafter whose package is missing is listed with the reason. Accepted tokens must be those of
`expected.json`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from benchmarks import drafters, memory, workloads
from benchmarks.expected import Expectations
from benchmarks.machine import machine
from benchmarks.serve import serve
from benchmarks.traces import load, named
from benchmarks.workloads import PACE, Workload
from ngramspec.replay.sample import sample

BATCHES, QUICK_BATCHES = (1, 8, 32, 64), (1, 32)

#: Of a named trace, so many requests are served, 32 at a time.
TRACE_REQUESTS = 48


def least(runs: list[dict[str, float]]) -> dict[str, float]:
    """The least of each number."""
    return {part: round(min(run[part] for run in runs), 4) for part in runs[0]}


def measure(found: list[Workload], names: list[str], repeats: int, expected: Expectations) -> dict[str, Any]:
    """Costs by workload and drafter, repeats interleaved."""
    results: dict[str, Any] = {}
    for workload in found:
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
        about: dict[str, dict[str, float]] = {}
        for _ in range(repeats):
            for name in names:
                costs = serve(drafters.build(name), workload)
                expected.count(workload.name, workload.digest, name, costs.n_accepted)
                runs[name].append(costs.describe())
                about[name] = {
                    "request_steps": costs.n_steps,
                    "accepted_tokens": costs.n_accepted,
                    "drafted_tokens": costs.n_drafted,
                }
        for name in names:  # how far the repeats lie apart tells how noisy the machine was
            about[name]["whole_us_most"] = round(max(run["whole_us"] for run in runs[name]), 4)
        results[workload.name] = {name: least(runs[name]) | about[name] for name in names}
        told = ", ".join(f"{name} {entry['whole_us']:.1f}" for name, entry in results[workload.name].items())
        print(f"{workload.name}: µs a request-step, all of it: {told}", flush=True)
    return results


def warm(names: list[str], workload: Workload) -> None:
    """Compile and load what is compiled and loaded at first use."""
    few = Workload(workload.name, workload.batch, workload.requests[: workload.batch])
    for name in names:
        serve(drafters.build(name), few)


def start(asked: argparse.Namespace) -> tuple[list[str], dict[str, Any]]:
    """Drafters that can be measured here, and the head of a result."""
    memory.keep_freed()
    versions, missing = drafters.present(asked.drafter)
    for name, reason in missing.items():
        print(f"{name}: not measured, {reason}")
    repeats = asked.repeats or (1 if asked.quick else 3)
    head = {
        "kind": "measured-cpu",
        "machine": machine(),
        "tokens_a_step": PACE,
        "repeats": repeats,
        "versions": versions,
        "missing": missing,
    }
    return list(versions), head


def options(about: str | None) -> argparse.ArgumentParser:
    """Options of a cost benchmark."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer workloads, one repeat")
    parser.add_argument("--repeats", type=int, help="runs of which the least counts (default 3, quick 1)")
    parser.add_argument("--drafter", action="append", choices=list(drafters.DRAFTERS), help="default: all")
    parser.add_argument("--record", action="store_true", help="note the accepted tokens as those to expect")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE")
    return parser


def main() -> None:
    """Command line."""
    parser = options(__doc__)
    parser.add_argument("traces", nargs="*", type=Path, metavar="TRACE")
    asked = parser.parse_args()
    names, results = start(asked)
    expected = Expectations()
    served = workloads.batches("sample", sample("test"), QUICK_BATCHES if asked.quick else BATCHES)
    warm(names, served[-1])
    for path in named(asked.traces):
        name, trace = load(path, TRACE_REQUESTS)
        served += workloads.batches(name, trace, (32,))
    results["batches"] = measure(served, names, results["repeats"], expected)
    expected.write(results, asked.json, asked.record)
    expected.close(asked.record)


if __name__ == "__main__":
    main()
