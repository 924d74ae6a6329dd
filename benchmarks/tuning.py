"""Tuning against a full grid, and its verdicts: `python -m benchmarks.tuning [--limit N] --json FILE [TRACE...]`.

Traces: those named on the command line and in NGRAMSPEC_TRACES; without any, the bundled sample.

Grid: `tune` searches each trace at batch 8 with a budget of trials, once our drafter and once vLLM's n-gram drafts;
then the whole grid of the same values is replayed, on the same sessions and for the same objective. The search must
reach 98 % of the best point of the grid, or this fails. The grid of our drafter is smaller than what `tune` tries by
itself: its values are `GRID`. vLLM's is the whole one.

Verdicts: each category of enough requests is tuned for chains (what vLLM verifies) at batch 1 and 8, and at 32 and 64
where the requests can fill them; beside each stand the repeats that an n-gram drafter could find: output 4-grams that
are in the request's own prompt, or in an earlier output.

Every speed-up is modelled, with the step times of the example profile `dense-8b-h100`.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.traces import load, named
from ngramspec.drafting.profiles import profile
from ngramspec.replay import Trace, inspect, tune, write_json
from ngramspec.replay.sample import sample

COST = profile("dense-8b-h100")
BATCH, TRIALS = 8, 24

#: What the search must reach of the best point of the grid.
REACHED = 0.98

#: Requests of a named trace that the grid is replayed on, half of them tuned on.
GRID_REQUESTS = 100

GRID: dict[str, dict[str, list[Any]]] = {
    "ngramspec": {
        "orders": [(1, 2, 4, 8), (2, 4, 8)],
        "max_match": [32],
        "max_hops": [8],
        "counted_per_token": [0.5],
        "capacity_tokens": [1_000_000],
        "share": ["outputs", "none"],
        "max_draft": [3, 7, 11, 15, 31, 47],
        "topology": ["tree", "chain"],
        "verify": ["all", "0.05", "0.1", "0.2", "0.4", "cost"],
    },
    "vllm": {},
}

CHAINS: dict[str, list[Any]] = {
    **{name: values for name, values in GRID["ngramspec"].items() if len(values) == 1},
    "orders": [(1, 2, 4, 8)],
    "share": ["outputs"],
    "max_draft": [1, 3, 7, 15, 31, 63],
    "verify": ["all", "0.1", "0.3", "cost"],
}
BATCHES = ((1, 8), (32, 64))

#: Requests of a category below which a verdict says little; the sample's few are told all the same.
MIN_REQUESTS = 60


def modelled(row: dict[str, Any]) -> dict[str, Any]:
    """What came out at one batch size, without what depends on the load of this machine."""
    scores = {name: item for name, item in row.items() if isinstance(item, dict) and "speedup" in item}
    kept = {
        name: {k: v for k, v in score.items() if k not in ("drafting_us", "exposed_speedup")}
        for name, score in scores.items()
    }
    return {name: item for name, item in row.items() if name != "alone"} | kept


def grid(trace: Trace, engine: str) -> dict[str, Any]:
    """Search, and the whole grid of the same values, on the sessions tuned on."""
    start = time.process_time()
    searched = tune(trace, COST, engine=engine, batches=[BATCH], settings=GRID[engine], trials=TRIALS)
    between = time.process_time()
    # What changes no draft stays where it is in both.
    fixed = {name: [value] for name, value in searched.left_out.items()}
    whole = tune(trace, COST, engine=engine, batches=[BATCH], settings=GRID[engine] | fixed, trials=1_000_000)
    assert whole.whole_grid
    reached = searched.batches[0].tuning.speedup
    best = max(speedup for setting in whole.sensitivity for speedup in setting.best.values())
    return {
        "searched_points": searched.n_points,
        "grid_points": whole.n_points,
        "settings": searched.describe()["settings"],
        "speedup_searched": reached,
        "speedup_best_of_grid": best,
        "reached": reached / best,
        "held_out": modelled(searched.batches[0].describe())["held_out"],
        "cpu_s": {
            "kind": "measured-cpu",
            "search": round(between - start, 1),
            "grid": round(time.process_time() - between, 1),
        },
    }


def verdicts(trace: Trace) -> dict[str, Any]:
    """What `tune` says of one kind of work, in small batches and in large ones."""
    # Requests of one session follow each other, and half of the sessions are held out.
    n_sessions = len(trace.session.names) + int((trace.session.codes < 0).sum())
    found: dict[str, Any] = {
        "requests": len(trace),
        "sessions": n_sessions,
        "output_tokens": len(trace.output.tokens),
        "repeats": inspect(trace)["repeats"],
    }
    for batches in BATCHES:
        if batches[0] > n_sessions / 2:
            continue
        tuned = tune(trace, COST, shape="vllm", batches=batches, settings=CHAINS, trials=1_000_000)
        found[" and ".join(map(str, batches))] = {
            "verdict": tuned.verdict,
            "max_draft": tuned.settings["max_draft"],
            "verify": tuned.settings["verify"],
            "batches": [modelled(row.describe()) for row in tuned.batches],
        }
    return found


def categories(trace: Trace, least: int) -> list[tuple[str, Trace]]:
    """The requests of each category that has `least` of them; all as one where none are told apart."""
    told = trace.category.tolist()
    names = list(dict.fromkeys(told))
    parts = [(name or "all", trace.select([i for i, here in enumerate(told) if here == name])) for name in names]
    return [(name, part) for name, part in parts if len(part) >= least]


def line(name: str, found: dict[str, Any]) -> str:
    """One line for a reader who waits."""
    repeats = found["repeats"]
    parts = [f"{name}: repeats {repeats['in_own_prompt']:.2f} own, {repeats['in_earlier_outputs']:.2f} earlier"]
    for batches in BATCHES:
        here = found.get(" and ".join(map(str, batches)))
        if here is None:
            continue
        told = [
            f"{row['batch']}: {row['verdict']}, {row['held_out']['speedup']:.3f}"
            f" [{', '.join(f'{x:.3f}' for x in row['held_out']['interval_95'] or ())}]"
            for row in here["batches"]
        ]
        parts.append(f"chain of {here['max_draft']} verified by {here['verify']}, batch {'; '.join(told)}")
    return " | ".join(parts)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path, metavar="TRACE")
    parser.add_argument("--limit", type=int, help="first requests of each category of a named trace only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE")
    parser.add_argument("--part", choices=["grid", "verdicts"], help="one of the two alone")
    asked = parser.parse_args()
    paths = named(asked.traces)
    results: dict[str, Any] = {
        "kind": "modelled",
        "machine": machine("optuna"),
        "cost": COST.describe(),
        "batch": BATCH,
        "trials": TRIALS,
        "limit": asked.limit,
        "grid": {},
        "verdicts": {},
    }

    def keep() -> None:
        if asked.json:
            write_json(results, asked.json)

    for path in [] if asked.part == "verdicts" else paths or [None]:
        name, trace = load(path, GRID_REQUESTS)
        for engine in GRID:
            entry = grid(trace, engine)
            results["grid"].setdefault(name, {})[engine] = entry
            seconds = entry["cpu_s"]
            print(
                f"{name} {engine}: {entry['speedup_searched']:.4f} of {entry['speedup_best_of_grid']:.4f} "
                f"({entry['reached']:.2%}) with {entry['searched_points']} of {entry['grid_points']} points; "
                f"{seconds['search']:.0f} s and {seconds['grid']:.0f} s",
                flush=True,
            )
            keep()
    bundled = [part for part in categories(sample("all"), 0) if part[0] in ("code_edit", "prose")]
    kinds = [("sample", bundled), *((load(p)[0], categories(load(p)[1], MIN_REQUESTS)) for p in paths)]
    for name, parts in [] if asked.part == "grid" else kinds:
        for category, part in parts:
            limited = part.select(range(min(asked.limit or len(part), len(part)))) if name != "sample" else part
            results["verdicts"].setdefault(name, {})[category] = entry = verdicts(limited)
            print(line(f"{name} {category}", entry), flush=True)
            keep()
    short = [
        f"{name} {engine}: {entry['reached']:.2%}"
        for name, engines in results["grid"].items()
        for engine, entry in engines.items()
        if entry["reached"] < REACHED
    ]
    if short:
        raise SystemExit(f"below {REACHED:.0%} of the best point of the grid: {', '.join(short)}")


if __name__ == "__main__":
    main()
