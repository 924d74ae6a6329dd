"""What a step costs: `python -m benchmarks.steps --json FILE`.

CPU time of the calling thread, minimum of several runs, on text of the bundled sample (repeated with other ids until
it is long enough). Insert: µs a token. Draft and accept (two tokens): µs a request-step by batch size and number of
drafted tokens, the whole call included; median over steps, and the 99th percentile of both together. Context: µs a
candidate gathered at 2,048 and 131,072 tokens. Memory: bytes a token of capacity.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ngramspec as ns
from benchmarks.machine import machine
from benchmarks.workloads import VOCAB, text
from ngramspec.kernels.evidence import gather
from ngramspec.replay import write_json
from ngramspec.replay.sample import sample

CACHES: dict[str, Callable[..., Any]] = {
    "rolling-hash": lambda **s: ns.RollingHashCache(ns.HashConfig(vocab_size=VOCAB, **s)),
    "suffix-trie": lambda **s: ns.SuffixTrieCache(ns.TrieConfig(vocab_size=VOCAB, **s)),
    "ngramspec": lambda **s: ns.Drafter(ns.DrafterConfig(vocab_size=VOCAB, **s)),
}


def cpu_us(call: Callable[..., object], *args: Any, repeats: int = 1, **settings: Any) -> float:
    """CPU time of a call in µs."""
    start = time.thread_time_ns()
    for _ in range(repeats):
        call(*args, **settings)
    return (time.thread_time_ns() - start) / 1000 / repeats


def insert_us(name: str, runs: int) -> dict[str, float]:
    """µs a token of a long prompt, into an empty cache and into one that holds text already."""
    tokens = text(200_000)
    times: dict[str, list[float]] = {"cold": [], "warm": []}
    for _ in range(runs):
        cache = CACHES[name](capacity_tokens=1_000_000, max_requests=32)
        for kind, part in (("cold", tokens[:100_000]), ("warm", tokens[100_000:])):
            times[kind].append(cpu_us(cache.begin, kind, part) / len(part))
    return {f"insert_{kind}_us_per_token": round(min(values), 4) for kind, values in times.items()}


def step_us(name: str, batch: int, n_draft: int, runs: int) -> dict[str, float]:
    """µs a request-step of `draft_batch`, `accept_batch` and both, over recorded outputs; minimum over runs."""
    trace = sample("test")
    rows = np.argsort(-trace.output.lengths)[: 2 * batch]
    found: dict[str, list[float]] = {}
    for _ in range(runs):
        cache = CACHES[name](capacity_tokens=1_000_000, max_requests=2 * batch)
        backing = cache.arena.mem
        backing[::1024] = backing[::1024]  # as in a server that runs: no page is new
        for row in rows[batch:]:  # text of others
            cache.begin(f"o{row}", trace.prompt[row])
            cache.accept(f"o{row}", trace.output[row])
            cache.finish(f"o{row}")
        slots = np.array([cache.begin(str(row), trace.prompt[row]) for row in rows[:batch]], np.int32)
        outputs = [trace.output[row] for row in rows[:batch]]
        out, drafts, learns = ns.DraftBatch.allocate(batch, n_draft), [], []
        for step in range(1, 60):
            drafts.append(cpu_us(cache.draft_batch, slots, out, max_draft=n_draft) / batch)
            spans = [output[(2 * step) % len(output) :][:2] for output in outputs]
            offsets = np.concatenate([[0], np.cumsum([len(span) for span in spans])]).astype(np.int32)
            emitted = np.concatenate(spans).astype(np.int32)
            learns.append(cpu_us(cache.accept_batch, slots, emitted, offsets) / batch)
        wholes = np.add(drafts, learns)
        for part, times in (("draft", drafts), ("accept_2_tokens", learns), ("step", wholes)):
            found.setdefault(f"{part}_us", []).append(float(np.median(times)))
        found.setdefault("step_p99_us", []).append(float(np.percentile(wholes, 99)))
    return {part: round(min(times), 2) for part, times in found.items()}


def context_us(runs: int) -> dict[str, float]:
    """µs a candidate gathered, by length of the request's own context."""
    result = {}
    for n_tokens in (2_048, 131_072):
        best = []
        for _ in range(runs):
            cache = CACHES["rolling-hash"](capacity_tokens=400_000, max_requests=4)
            row = cache.begin("r", text(n_tokens))
            found = gather(*cache._look_up, row, cache._w)[0]
            gather(*cache._look_up, row, cache._w)
            best.append(cpu_us(gather, *cache._look_up, row, cache._w, repeats=2000) / max(found, 1))
        result[f"gather_us_per_candidate_{n_tokens}"] = round(min(best), 4)
    return result


def memory(name: str) -> dict[str, float]:
    """Bytes a token of capacity, and the time to construct at the default size."""
    start = time.perf_counter()
    cache = CACHES[name]()
    built = time.perf_counter() - start
    return {
        "bytes_per_capacity_token": round(cache.nbytes / cache.config.capacity_tokens, 2),
        "construct_ms": round(1000 * built, 2),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE")
    parser.add_argument("--runs", type=int, default=3, help="runs of which the minimum counts (default 3)")
    options = parser.parse_args()
    results: dict[str, Any] = {"kind": "measured-cpu", "machine": machine(), "caches": {}, "context": {}}
    for name in CACHES:
        step_us(name, 1, 2, 1)  # compile
        entry: dict[str, Any] = {**memory(name), **insert_us(name, options.runs), "steps": []}
        for batch in (1, 8, 32, 64):
            for n_draft in (2, 11):
                entry["steps"].append(
                    {"batch": batch, "n_draft": n_draft, **step_us(name, batch, n_draft, options.runs)}
                )
        results["caches"][name] = entry
        print(name, entry, flush=True)
    results["context"] = context_us(options.runs)
    print(results["context"])
    if options.json:
        write_json(results, options.json)


if __name__ == "__main__":
    main()
