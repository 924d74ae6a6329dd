"""The C core beside numba's kernels: `python -m benchmarks.native --json FILE`.

CPU time of the calling thread, minimum of several runs that take turns, on text of the bundled sample. Insert: µs a
prompt token. Draft and accept (two tokens): µs a request-step, the whole Python call included; median over steps.
Start: CPU seconds of a process that imports the package and drafts once, with nothing cached by numba and with all of
it. Both engines must end in the same bytes, or the run fails.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.steps import CACHES, cpu_us, step_us, text
from ngramspec.native import VARIABLE
from ngramspec.native.build import build, compiler
from ngramspec.replay import write_json

ENGINES = ("numba", "native")
BATCHES = ((1, 11), (32, 11), (32, 2))

START = """
import resource, ngramspec as ns
drafter = ns.Drafter(ns.DrafterConfig(vocab_size=99, capacity_tokens=65_536, max_requests=4))
drafter.begin("a", list(range(20)) * 10)
assert len(drafter.draft("a", max_draft=4)) == 4
drafter.accept("a", [0, 1])
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime)
"""


def inserted(name: str, engine: str, n_tokens: int) -> tuple[float, str]:
    """µs a token of a long prompt, and the digest of the state after it."""
    os.environ[VARIABLE] = engine
    tokens = text(n_tokens)
    cache = CACHES[name](capacity_tokens=4 * n_tokens, max_requests=32)
    cache.arena.mem[::1024] = cache.arena.mem[::1024]  # no page is new, as in a server that runs
    return cpu_us(cache.begin, "r", tokens) / n_tokens, cache.digest()


def side_by_side(name: str, runs: int, n_tokens: int) -> dict[str, Any]:
    """Times of one cache by engine; raises `RuntimeError` where the engines' states differ."""
    found: dict[str, dict[str, list[float]]] = {engine: {} for engine in ENGINES}
    for run in range(runs + 1):
        ends = set()
        for engine in ENGINES:
            us, digest = inserted(name, engine, n_tokens)
            ends.add(digest)
            times = {"insert_us_per_token": us}
            for batch, n_draft in BATCHES:
                steps = step_us(name, batch, n_draft, 1)
                for part in ("draft", "accept_2_tokens"):
                    times[f"{part}_us_batch_{batch}_drafted_{n_draft}"] = steps[f"{part}_us"]
            if run:  # the first compiles
                for key, value in times.items():
                    found[engine].setdefault(key, []).append(value)
        if len(ends) != 1:
            raise RuntimeError(f"{name}: the engines' states differ")
    return {engine: {key: round(min(values), 3) for key, values in found[engine].items()} for engine in ENGINES}


def start_s(engine: str, cache_folder: str) -> float:
    """CPU seconds of a process from its start to the first draft."""
    environment = {**os.environ, VARIABLE: engine, "NUMBA_CACHE_DIR": cache_folder}
    done = subprocess.run([sys.executable, "-c", START], env=environment, capture_output=True, text=True, check=True)
    return round(float(done.stdout), 2)


def starts() -> dict[str, float]:
    """CPU seconds to the first draft by engine, numba's with an empty compile cache and with a full one."""
    with tempfile.TemporaryDirectory() as folder:
        empty = start_s("numba", folder)
        return {
            "numba_not_cached": empty,
            "numba_cached": start_s("numba", folder),
            "native": start_s("native", folder),
        }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE")
    parser.add_argument("--runs", type=int, default=3, help="runs of which the minimum counts (default 3)")
    parser.add_argument(
        "--part", choices=("start", "calls", "all"), default="all", help="what to measure (default all)"
    )
    parser.add_argument("--tokens", type=int, default=100_000, help="prompt tokens inserted (default 100,000)")
    options = parser.parse_args()
    build()
    results: dict[str, Any] = {"kind": "measured-cpu", "machine": machine(), "compiler": version()}
    if options.part != "calls":
        results["start_cpu_s"] = starts()
        print(results["start_cpu_s"], flush=True)
    for name in CACHES if options.part != "start" else ():
        found = side_by_side(name, options.runs, options.tokens)
        results.setdefault("caches", {})[name] = found
        for key, numba in found["numba"].items():
            native = found["native"][key]
            print(f"{name:13} {key:38} numba {numba:8.3f}  native {native:8.3f}  {native / numba:5.2f}x", flush=True)
    if options.json:
        write_json(results, options.json)


def version() -> str:
    """First line of what the compiler says about itself."""
    said = subprocess.run([*compiler(), "--version"], capture_output=True, text=True, check=True)
    return said.stdout.splitlines()[0]


if __name__ == "__main__":
    main()
