"""Saving, loading and mapping what is shared: `python -m benchmarks.snapshots --json FILE`.

A drafter learns the text of the bundled sample, repeated with other ids and a share of random tokens, until it holds so
many tokens of shared text; it is saved, and then loaded and mapped by processes of their own, whose kernels are
compiled already. Times are seconds on the wall, minimum of several runs, with the file in the system's page cache:
`ready_s` until the cache is there and checked, `first_draft_s` for the request that follows, its prompt of 1,000 tokens
included. Memory is what the process holds privately beyond what it held before. Loaded and mapped state must have the
same digest and the same first draft, or the run fails.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import ngramspec as ns
from benchmarks.machine import machine
from benchmarks.steps import VOCAB, text
from ngramspec import snapshot
from ngramspec.replay import write_json

WAYS = ("load", "map")
PROMPT = 1_000  # tokens
OUTPUT = 100_000  # tokens
RANDOM = 0.2  # share of tokens that no text has


def config(n_tokens: int) -> ns.DrafterConfig:
    """Settings with room for so many shared tokens, and as many of running requests."""
    return ns.DrafterConfig(vocab_size=VOCAB, capacity_tokens=2 * n_tokens + 100_000, max_requests=64)


def seconds(call: Callable[..., Any], *args: Any) -> tuple[float, Any]:
    """How long a call takes, and what it returns."""
    start = time.perf_counter()
    result = call(*args)
    return time.perf_counter() - start, result


def learned(n_tokens: int) -> ns.Drafter:
    """A drafter that holds so many tokens of outputs."""
    drafter, rng = ns.Drafter(config(n_tokens)), np.random.default_rng(0)
    for i, done in enumerate(range(0, n_tokens, OUTPUT)):
        output = text(OUTPUT, shift=i)[: n_tokens - done]
        other = rng.integers(0, VOCAB, len(output), np.int32)
        drafter.begin(str(i), output[:8])
        drafter.accept(str(i), np.where(rng.random(len(output)) < RANDOM, other, output))
        drafter.finish(str(i))
    return drafter


def private_bytes() -> int:
    """Bytes that are this process's own; 0 where the system does not tell."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * int(next(line for line in lines if line.startswith("RssAnon")).split()[1])


def first_draft(drafter: ns.Drafter) -> list[int]:
    """What is drafted for a request that repeats shared text."""
    drafter.begin("first", text(PROMPT))
    return drafter.draft("first", max_draft=8).tokens.tolist()


def opened(way: str, path: str, n_tokens: int) -> dict[str, Any]:
    """Times of one way, in a process that has done nothing of the kind before."""
    first_draft(ns.Drafter(config(n_tokens)))  # compiles, or reads what was compiled
    before = private_bytes()

    def ready() -> ns.Drafter:
        if way == "map":
            return snapshot.map(ns.Drafter, config(n_tokens), path)
        drafter = ns.Drafter(config(n_tokens))
        snapshot.load(drafter, path)
        return drafter

    ready_s, drafter = seconds(ready)
    first_s, tokens = seconds(first_draft, drafter)
    private = private_bytes() - before
    return {"ready_s": ready_s, "first_draft_s": first_s, "private_mib": private / 2**20, "draft": tokens,
            "digest": drafter.digest()}  # fmt: skip


def measured(n_tokens: int, runs: int) -> dict[str, Any]:
    """Times by way; raises `RuntimeError` where the two lead to different states."""
    drafter = learned(n_tokens)
    found: dict[str, Any] = {"shared_tokens": drafter.stats()["shared_tokens"]}
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "state.ngs")
        found["save_s"] = round(min(seconds(snapshot.save, drafter, path)[0] for _ in range(runs)), 2)
        del drafter
        found["file_mib"] = round(Path(path).stat().st_size / 2**20, 1)
        found["inspect_s"] = round(seconds(snapshot.inspect, path)[0], 2)
        ends = set()
        for way in WAYS:
            command = [sys.executable, "-m", "benchmarks.snapshots", "--open", way, path, "--tokens", str(n_tokens)]
            said = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(runs)]
            times = [json.loads(line) for line in said]
            ends |= {(str(one.pop("draft")), one.pop("digest")) for one in times}
            found[way] = {key: round(min(one[key] for one in times), 4) for key in times[0]}
    if len(ends) != 1 or "[]" in str(ends):
        raise RuntimeError(f"loading and mapping differ, or nothing was drafted: {ends}")
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE")
    parser.add_argument("--runs", type=int, default=3, help="runs of which the minimum counts (default 3)")
    parser.add_argument("--tokens", type=int, default=10_000_000, help="shared tokens (default 10,000,000)")
    parser.add_argument("--open", nargs=2, metavar=("WAY", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.open:
        print(json.dumps(opened(*options.open, options.tokens)))
        return
    found = measured(options.tokens, options.runs)
    print(json.dumps(found, indent=1))
    if options.json:
        write_json({"kind": "measured-cpu", "machine": machine(), "snapshots": found}, options.json)


if __name__ == "__main__":
    main()
