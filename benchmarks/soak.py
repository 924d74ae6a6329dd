"""Serve for long, with everything that goes wrong in a server: `python -m benchmarks.soak [--tokens N] --json FILE`.

Requests of the bundled sample, each copy in ids of its own, 32 at a time, from prompts read in pieces. Requests are
aborted, put back (their last tokens taken away and emitted again), refused their drafts; ids are reused, sessions go
on, tenants change, everything is forgotten now and then, and memory holds a fraction of the text, so that something is
evicted at any moment. Every decision is drawn from a seed: two runs do the same, whatever they run on.

Recorded for each tenth of the tokens: resident memory, µs a request-step (CPU time of drafting and learning, median
and 99th percentile) and accept length, and the state's integrity is checked. The run fails where integrity does, where
resident memory grew by more than `GROWTH` after the first tenth, where the last tenth's 99th percentile is `STEADY`
times the first's, or where engines or numbers of threads end in different states.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import ngramspec as ns
from benchmarks.machine import machine, resident_bytes
from benchmarks.replay import long
from ngramspec.kernels.verify import EMITTED, POS, ROW, STEPS, verify_batch
from ngramspec.native import Engine
from ngramspec.replay import Trace, write_json
from ngramspec.replay.batch import Batch
from ngramspec.replay.counts import Counts

BATCH, MAX_DRAFT, VOCAB = 32, 11, 262_144
CAPACITY = 400_000

#: Bytes by which resident memory may grow after the first tenth: what Python and the system keep at hand.
GROWTH = 16 * 2**20

#: Last tenth's 99th percentile to the first's; a shared machine moves it by a third.
STEADY = 1.5

#: Mean number of steps of the batch from one event to the next.
ABORT, RETRACT, REFUSE, FLUSH = 40, 50, 30, 40_000

#: Ids in use, few, so that each is reused at once; and prompt tokens read in at a time.
N_IDS, PIECE = 64, 700


@dataclass
class Tenth:
    """What is recorded of a tenth of the run."""

    resident_bytes: int
    accept_length: float
    step_us: float
    step_p99_us: float


@dataclass
class Soak:
    """One drafter under load; `run` serves until so many tokens were emitted.

    Parameters
    ----------
    cache : Drafter
        With room for `BATCH` requests and as many whose prompts are being read.
    trace : Trace
        What is served, from the front, again and again.
    seed : int
        Of every decision.
    """

    cache: ns.Drafter
    trace: Trace
    seed: int = 0
    tenths: list[Tenth] = field(default_factory=list)
    events: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.batch = Batch(BATCH, MAX_DRAFT)
        self.counts = Counts.zeros(len(self.trace), MAX_DRAFT)
        self.outputs, self.prompts = np.array(self.trace.output.tokens), np.array(self.trace.prompt.tokens)
        self.fixed, _ = self.batch.arguments(self.outputs, self.counts)
        self.ids: list[str] = []  # of the batch, in its order
        self.free = [f"id {i}" for i in range(N_IDS)]
        self.reading: list[tuple[str, int, int]] = []  # id, slot, row
        self.next_row = self.n_begun = 0
        self.events = dict.fromkeys(("ended", "aborted", "retracted", "refused", "flushed"), 0)

    def run(self, n_tokens: int) -> None:
        """Serve until `n_tokens` were emitted; every tenth is recorded and checked."""
        times: list[float] = []
        done, at_tenth, steps_before = 0, 1, 0
        emitted_before = 0
        while done < n_tokens:
            self.admit()
            if self.batch.n:
                done += self.step(times)
            if done >= at_tenth * n_tokens // 10:
                self.cache.check_integrity()
                steps = int(self.counts.per_row[:, STEPS].sum())
                length = (done - emitted_before) / (steps - steps_before)
                cost = np.percentile(times, (50, 99)) if times else (0.0, 0.0)
                self.tenths.append(Tenth(resident_bytes(), length, float(cost[0]), float(cost[1])))
                steps_before, emitted_before, at_tenth = steps, done, at_tenth + 1
                times.clear()

    def admit(self) -> None:
        """Begin requests while there is room; read a piece of each waiting prompt."""
        while len(self.ids) + len(self.reading) < BATCH:
            row, self.next_row = self.next_row, (self.next_row + 1) % len(self.trace)
            start, end = self.trace.output.offsets[row : row + 2].tolist()
            if end - start < 2:
                continue
            request, draw = self.free.pop(int(self.random.integers(len(self.free)))), self.random.random(3)
            # Half of the sessions are of one request, half go on for as long as their name is drawn.
            session = f"s{int(40 * draw[1])}" if draw[0] < 0.2 else f"once {self.n_begun}" if draw[0] < 0.4 else None
            share = "all" if draw[2] < 0.1 else "none" if draw[2] > 0.9 else "outputs"
            first, last = self.trace.prompt.offsets[row : row + 2]
            slot = self.cache.begin(
                request, self.prompts[first:last], session=session, tenant=f"t{row % 4}", share=share, max_tokens=PIECE
            )
            self.n_begun += 1
            self.reading.append((request, slot, row))
        waiting, self.reading = self.reading, []
        for request, slot, row in waiting:
            if self.cache.ingest(request, PIECE):
                self.reading.append((request, slot, row))
                continue
            start, end = self.trace.output.offsets[row : row + 2].tolist()
            self.cache.accept(request, self.outputs[start : start + 1])
            self.batch.add(slot, start + 1, end, -1, row)
            self.ids.append(request)

    def step(self, times: list[float]) -> int:
        """Draft, verify and learn; then what may happen to a request between two steps. Returns tokens emitted."""
        batch, n = self.batch, self.batch.n
        slots, offsets = batch.slots[:n], batch.offsets[: n + 1]
        start = time.thread_time_ns()
        self.cache.draft_batch(slots, batch.draft, max_draft=MAX_DRAFT)
        drafted = time.thread_time_ns()
        n_emitted, _ = verify_batch(n, -1, *self.fixed)
        verified = time.thread_time_ns()
        self.cache.accept_batch(slots, batch.emitted[:n_emitted], offsets)
        times.append((time.thread_time_ns() - verified + drafted - start) / 1000 / n)
        # Aborted ones end where they are.
        happens = self.random.random(4) * (ABORT, RETRACT, REFUSE, FLUSH) < 1
        if happens[0]:
            batch.state[int(self.random.integers(n)), 1] = 0
            self.events["aborted"] += 1
        going = batch.state[:n, POS] < batch.state[:n, 1]
        ids, self.ids = self.ids, []
        for request, goes in zip(ids, going, strict=True):
            if goes:
                self.ids.append(request)
            else:
                self.cache.finish(request)
                self.free.append(request)
        self.events["ended"] += len(batch.remove_ended())
        if batch.n and happens[1]:
            self.retract(int(self.random.integers(batch.n)))
        if batch.n and happens[2]:
            self.cache.accept(self.ids[int(self.random.integers(batch.n))], [])
            self.events["refused"] += 1
        if happens[3]:
            self.flush()
        return int(n_emitted)

    def retract(self, i: int) -> None:
        """Take back the last tokens of a request, the one of its prefill apart."""
        pos, row = int(self.batch.state[i, POS]), int(self.batch.state[i, ROW])
        first = int(self.trace.output.offsets[row])
        back = int(self.random.integers(0, pos - first))
        self.batch.state[i, POS] = pos - back
        n_prompt = int(self.trace.prompt.lengths[row])
        self.cache.truncate(self.ids[i], n_prompt + pos - back - first)
        self.events["retracted"] += 1

    def flush(self) -> None:
        """Forget everything; what ran is gone."""
        self.cache.reset()
        self.free += self.ids + [request for request, _, _ in self.reading]
        self.ids, self.reading, self.batch.n = [], [], 0
        self.events["flushed"] += 1


def soaked(trace: Trace, n_tokens: int, seed: int = 0, engine: Engine = "numba", **settings: Any) -> dict[str, Any]:
    """Serve with a fresh drafter; what was recorded, and the digest that it ended with."""
    config = ns.DrafterConfig(
        capacity_tokens=CAPACITY, vocab_size=VOCAB, max_requests=2 * BATCH, max_sessions=256, **settings
    )
    soak = Soak(ns.Drafter(config, engine=engine), trace, seed)
    soak.cache.touch()
    soak.run(n_tokens)
    stats, per_row = soak.cache.stats(), soak.counts.per_row.sum(0)
    return {
        "tokens": int(per_row[EMITTED]),
        "request_steps": int(per_row[STEPS]),
        "accept_length": float(per_row[EMITTED] / per_row[STEPS]),
        "prompt_tokens": stats["prompt_tokens"],
        "cache_bytes": soak.cache.nbytes,
        "evicted_tokens": stats["own_tokens_evicted"] + stats["shared_tokens_evicted"],
        "events": soak.events,
        "tenths": [vars(tenth) for tenth in soak.tenths],
        "digest": soak.cache.digest(),
    }


def together(trace: Trace, n_tokens: int, seeds: Sequence[int], **settings: Any) -> list[str]:
    """Digests of drafters that serve at the same time, a thread each."""
    with ThreadPoolExecutor(len(seeds)) as pool:
        runs = [pool.submit(soaked, trace, n_tokens, seed, **settings) for seed in seeds]
        return [run.result()["digest"] for run in runs]


def faults(results: dict[str, Any]) -> list[str]:
    """What went wrong, in words."""
    found = []
    for engine, result in results["engines"].items():
        grown = max(t["resident_bytes"] for t in result["tenths"]) - result["tenths"][0]["resident_bytes"]
        if grown > GROWTH:
            found.append(f"{engine}: resident memory grew by {grown} bytes after the first tenth, allowed {GROWTH}")
        first, last = (result["tenths"][k]["step_p99_us"] for k in (0, -1))
        if last > STEADY * first:
            found.append(
                f"{engine}: 99th percentile of a step {first:.1f} µs in the first tenth, {last:.1f} in the last"
            )
    digests = {engine: result["digest"] for engine, result in results["engines"].items()}
    if len(set(digests.values())) > 1:
        found.append(f"engines end in different states: {digests}")
    return found + [f"{what}: ends in another state" for what, same in results["threads"].items() if not same]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE")
    parser.add_argument("--tokens", type=int, default=10_000_000, metavar="N", help="to emit (default 10,000,000)")
    parser.add_argument("--engine", action="append", choices=("numba", "native"), help="default: both")
    options = parser.parse_args()
    trace = long(4_000_000)
    soaked(trace, 20_000)  # compile
    results: dict[str, Any] = {
        "kind": "measured-cpu", "machine": machine(), "batch": BATCH, "max_draft": MAX_DRAFT,
        "capacity_tokens": CAPACITY, "engines": {}, "threads": {},
    }  # fmt: skip
    for engine in options.engine or ("numba", "native"):
        results["engines"][engine] = result = soaked(trace, options.tokens, engine=engine)
        print(engine, {name: value for name, value in result.items() if name != "tenths"}, flush=True)
        for tenth in result["tenths"]:
            print("   ", tenth, flush=True)
        few = options.tokens // 50
        alone = [soaked(trace, few, seed, engine=engine)["digest"] for seed in range(4)]
        results["threads"] |= {
            f"{engine}, four drafters at the same time": together(trace, few, range(4), engine=engine) == alone,
            f"{engine}, four drafting threads": soaked(trace, few, engine=engine, draft_threads=4)["digest"]
            == alone[0],
        }
    print(results["threads"])
    if options.json:
        write_json(results, options.json)
    found = faults(results)
    print("\n".join(found) or "nothing went wrong")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
