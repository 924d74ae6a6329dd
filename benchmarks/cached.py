"""Steps and memory beside a full cache: `python -m benchmarks.cached [--quick] --json FILE`.

Each drafter that remembers other requests takes in 0.1, 1 and 10 million tokens of finished outputs, then serves the
bundled sample at batch 32. Each run has a process of its own, whose resident memory is looked at before and after.
Memory a cached token is what that grew by; for ours also the size of the buffer, which is known before and never grows.

Accepted tokens must be those of `expected.json`, whatever the cache holds besides: its text is in ids of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import drafters, memory, workloads
from benchmarks.expected import Expectations
from benchmarks.machine import machine
from benchmarks.rivals.base import Rival
from benchmarks.serve import serve
from benchmarks.workloads import Workload
from ngramspec.replay.sample import sample

BATCH = 32
SIZES = (100_000, 1_000_000, 10_000_000)

#: Tokens of an output that fills the cache.
OUTPUT = 400

#: Those that remember other requests' text.
DRAFTERS = [name for name, measured in drafters.DRAFTERS.items() if measured.shares and "chain" not in name]

#: Processes of a drafter and size, of whose numbers the least counts.
RUNS = {100_000: 2, 1_000_000: 1, 10_000_000: 1}

#: What would take long or more memory than there is, and why.
LIMITS = {
    "SGLang": (1_000_000, "inserting more takes minutes, and its ten million nodes are full"),
    "llama.cpp ngram-mod": (1_000_000, "its table of four million entries wipes itself when a quarter is used"),
}


def fill(rival: Rival, n_tokens: int) -> None:
    """Let finished outputs of `n_tokens` tokens go by."""
    text = workloads.text(n_tokens, shift=100)
    for at in range(0, n_tokens, OUTPUT):
        name, part = f"cached {at}", text[at : at + OUTPUT]
        if hasattr(rival, "fill"):
            rival.fill(part)
            continue
        rival.hold(name, part[:1])
        rival.ingest(name, part[:1])
        rival.learn([name], [part[1:].tolist()])
        rival.append([name], [part[1:].tolist()])
        rival.finish(name)


def one(name: str, n_tokens: int) -> dict[str, Any]:
    """Fill one drafter and serve; for a process of its own."""
    memory.keep_freed()
    ours = drafters.DRAFTERS[name].package == "ngramspec"
    workload = workloads.batches("sample", sample("test"), (BATCH,))[0]
    small = {"capacity_tokens": 10_000} if ours else {"capacity_nodes": 10_000}
    serve(drafters.build(name, **small), Workload("", 1, workload.requests[:2]))  # compile and load
    before = memory.resident()
    rival = drafters.build(name, **({"capacity_tokens": n_tokens} if ours else {}))
    start = time.process_time()
    fill(rival, n_tokens)
    filled = time.process_time() - start
    grown = memory.resident() - before
    memory.touch()
    costs = serve(rival, workload)
    found = costs.describe() | {
        "accepted_tokens": costs.n_accepted,
        "fill_us_per_token": 1e6 * filled / n_tokens,
        "resident_bytes_per_token": grown / n_tokens,
    }
    if ours:
        found["buffer_bytes_per_token"] = rival.cache.nbytes / n_tokens  # type: ignore[attr-defined]
    return found


def apart(name: str, n_tokens: int) -> dict[str, Any]:
    """`one` in a new process."""
    command = [sys.executable, "-m", "benchmarks.cached", "--one", name, "--tokens", str(n_tokens)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name} at {n_tokens} tokens failed:\n{done.stderr[-2000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def at_size(n_tokens: int, names: list[str], runs: int, expected: Expectations) -> dict[str, Any]:
    """All drafters beside so many cached tokens."""
    digest = workloads.batches("sample", sample("test"), (BATCH,))[0].digest
    found: dict[str, Any] = {}
    for name in names:
        most, reason = LIMITS.get(name, (n_tokens, ""))
        if n_tokens > most:
            found[name] = {"not_measured": reason}
            continue
        taken = [apart(name, n_tokens) for _ in range(runs)]
        for run in taken:
            workload = f"sample, batch {BATCH}, {n_tokens} cached"
            expected.count(workload, f"{digest}-{n_tokens}", name, run["accepted_tokens"])
        entry = found[name] = {part: round(min(run[part] for run in taken), 4) for part in taken[0]}
        print(
            f"{n_tokens:,} tokens cached, {name}: {entry['whole_us']:.1f} µs a request-step, all of it; "
            f"{entry['resident_bytes_per_token']:.0f} bytes a cached token",
            flush=True,
        )
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="0.1 million tokens only, one run")
    parser.add_argument("--size", type=int, action="append", choices=SIZES, help="this size; FILE keeps the others'")
    parser.add_argument("--record", action="store_true", help="note the accepted tokens as those to expect")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE")
    parser.add_argument("--one", metavar="DRAFTER", help="one run, in this process")
    parser.add_argument("--tokens", type=int, default=SIZES[0], help="tokens in the cache for --one")
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(one(asked.one, asked.tokens)))
        return
    versions, missing = drafters.present(DRAFTERS)
    expected = Expectations()
    kept = json.loads(asked.json.read_text())["cached"] if asked.size and asked.json and asked.json.exists() else {}
    results: dict[str, Any] = {
        "kind": "measured-cpu",
        "machine": machine(),
        "batch": BATCH,
        "versions": versions,
        "missing": missing,
        "cached": kept,
    }
    for n_tokens in asked.size or SIZES[: 1 if asked.quick else None]:
        runs = 1 if asked.quick else RUNS[n_tokens]
        results["cached"][str(n_tokens)] = at_size(n_tokens, list(versions), runs, expected)
        expected.write(results, asked.json, asked.record)
    expected.close(asked.record)


if __name__ == "__main__":
    main()
