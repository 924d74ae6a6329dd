"""How fast a replay is: `python -m benchmarks.replay [--limit N] [--tokens N] --json FILE [TRACE...]`.

Traces: the bundled sample's test half, those named on the command line, and those in NGRAMSPEC_TRACES.

Speed: emitted tokens a second of one core, from the CPU time of the whole replay loop: prompts read in, drafts, their
verification and learning; the best of several runs. The targets are what a replay must reach at any concurrency.

Length: a trace of `--tokens` tokens is made from the sample, replayed with both drafters, and has to come to its end
with every token accounted for. Each copy of the sample has other ids (a seeded permutation of the vocabulary) and one
token in fifty replaced, so that copies do not repeat each other; the drafters keep the last four million tokens.
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import machine
from benchmarks.traces import load, named
from ngramspec.kernels.verify import EMITTED, STEPS
from ngramspec.replay import Facts, Labels, Options, Ragged, Trace, build, simulate, write_json
from ngramspec.replay.results import compile_kernels, in_memory
from ngramspec.replay.sample import sample
from ngramspec.replay.verify import output_ends

#: Emitted tokens a second of one core.
TARGETS = {"rolling-hash": 100_000, "ngramspec": 40_000}
CONCURRENCY = (1, 32)

#: Runs of one trace whose best counts; long ones are told from one.
RUNS, LONG_S = 3, 2.0

#: Share of the tokens that a copy of the sample has replaced.
CHANGED = 0.02


def timed(trace: Trace, drafter: str, concurrency: int, runs: int = RUNS) -> dict[str, Any]:
    """Replay cold until the best time is known; times are CPU seconds of this thread."""
    options = Options(concurrency=concurrency)
    facts = Facts.of([trace], eos_ids=None, concurrency=concurrency)
    compile_kernels(drafter, facts, options)
    seconds: list[float] = []
    while len(seconds) < runs and sum(seconds) < LONG_S:
        cache = in_memory(build(drafter, facts))
        start = time.thread_time()
        counts = simulate(trace, cache, options)
        seconds.append(time.thread_time() - start)
    total = counts.per_row.sum(0).tolist()
    return {
        "emitted_tokens": total[EMITTED],
        "steps": total[STEPS],
        "accept_length": total[EMITTED] / total[STEPS],
        "prompt_tokens": counts.prompt_tokens,
        "prefill_tokens": counts.prefill_tokens,
        "cpu_s": min(seconds),
        "emitted_tokens_per_s": round(total[EMITTED] / min(seconds)),
        "us_per_step": 1e6 * min(seconds) / total[STEPS],
    }


def long(n_tokens: int, seed: int = 0) -> Trace:
    """Copies of the sample with at least `n_tokens` prompt and output tokens, each in ids of its own."""
    once = sample("all")
    random = np.random.default_rng(seed)
    vocab_size = 1 + max(int(part.tokens.max()) for part in (once.prompt, once.output))
    eos = np.array(once.eos_ids)
    others = np.setdiff1d(np.arange(vocab_size), eos)
    copies = []
    for k in range(-(-n_tokens // (len(once.prompt.tokens) + len(once.output.tokens)))):
        renamed = np.arange(vocab_size, dtype=np.int32)
        renamed[others] = random.permutation(others)

        def copy(part: Ragged, renamed: np.ndarray = renamed) -> Ragged:
            tokens = renamed[part.tokens]
            changed = (random.random(len(tokens)) < CHANGED) & ~np.isin(tokens, eos)
            tokens[changed] = random.choice(others, int(changed.sum()))
            return Ragged(tokens, part.offsets)

        copies.append(
            replace(
                once,
                ids=tuple(f"{name}-{k}" for name in once.ids),
                prompt=copy(once.prompt),
                output=copy(once.output),
                session=Labels(once.session.codes, tuple(f"{name}-{k}" for name in once.session.names)),
            )
        )
    return Trace.concat(copies, "long")


def finishes(trace: Trace, drafter: str) -> dict[str, Any]:
    """Replay a long trace once; every token that the record holds must be accounted for."""
    start = time.perf_counter()
    found = timed(trace, drafter, CONCURRENCY[-1], runs=1)
    due = int((output_ends(trace) - trace.output.offsets[:-1]).sum())
    if found["emitted_tokens"] + found["prefill_tokens"] != due:
        raise SystemExit(f"{drafter}: {found} emitted, {due} tokens are in the record")
    return found | {
        "requests": len(trace),
        "tokens": len(trace.prompt.tokens) + len(trace.output.tokens),
        "wall_s": time.perf_counter() - start,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path, metavar="TRACE")
    parser.add_argument("--limit", type=int, help="first requests of each named trace only")
    parser.add_argument("--tokens", type=int, default=10_000_000, help="length of the long trace; 0 leaves it out")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE")
    asked = parser.parse_args()
    results: dict[str, Any] = {
        "kind": "measured-cpu",
        "machine": machine(),
        "targets": TARGETS,
        "limit": asked.limit,
        "traces": {},
        "long": {},
    }
    for path in [None, *named(asked.traces)]:
        name, trace = load(path, asked.limit)
        for drafter, target in TARGETS.items():
            speeds = {f"concurrency_{n}": timed(trace, drafter, n) for n in CONCURRENCY}
            least = min(entry["emitted_tokens_per_s"] for entry in speeds.values())
            results["traces"].setdefault(name, {})[drafter] = speeds | {"target_reached": least >= target}
            told = ", ".join(f"{entry['emitted_tokens_per_s']:,}" for entry in speeds.values())
            print(f"{name} {drafter}: {told} tokens/s{'' if least >= target else f', below {target:,}'}", flush=True)
    if asked.tokens:
        trace = long(asked.tokens)
        for drafter in TARGETS:
            results["long"][drafter] = entry = finishes(trace, drafter)
            print(
                f"long {drafter}: {entry['tokens']:,} tokens in {entry['requests']:,} requests finish in "
                f"{entry['wall_s']:.0f} s, {entry['emitted_tokens_per_s']:,} tokens/s, peak {entry['peak_rss_mb']} MB",
                flush=True,
            )
    if asked.json:
        write_json(results, asked.json)


if __name__ == "__main__":
    main()
