"""Every benchmark in turn, for `make bench`: `python -m benchmarks.run [--quick] [--only NAME] [--out FOLDER]`.

A benchmark is a module of this folder with a `--json` option; each writes FOLDER/NAME.json. One that fails is told of
at the end, and the others run on. Then the targets are checked and the page is written to FOLDER. `--quick` takes the
forms below, and leaves out what has none.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent

#: What --quick means to modules that do not name such an option themselves.
QUICK = {
    "parity": ["--max-steps", "300"],
    "contexts": ["--quick"],  # its options are those of `cost`
    "steps": ["--runs", "1"],
    "accuracy": ["--limit", "20"],
    "replay": ["--limit", "20", "--tokens", "200000"],
}

#: How a benchmark is known.
OPTION = re.compile(r"add_argument\(\"--json\"")

#: Run first: what the targets are about.
FIRST = ("parity", "cost", "contexts", "cached", "sglang_step", "startup", "frontier")


def modules() -> list[str]:
    """Names of the benchmarks, those of the targets first."""
    found = [path.stem for path in sorted(HERE.glob("*.py")) if OPTION.search(path.read_text())]
    return [*FIRST, *(name for name in found if name not in FIRST)]


def arguments(name: str, quick: bool) -> list[str] | None:
    """Arguments of a benchmark; None where it has no quick form."""
    if not quick:
        return []
    if name in QUICK:
        return QUICK[name]
    return ["--quick"] if '"--quick"' in (HERE / f"{name}.py").read_text() else None


def clock(seconds: float) -> str:
    """Minutes and seconds."""
    return f"{int(seconds) // 60} min {int(seconds) % 60} s"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few minutes, to see that everything runs")
    parser.add_argument("--only", action="append", choices=modules(), help="these benchmarks")
    parser.add_argument("--out", type=Path, default=Path(".bench"), metavar="FOLDER", help="default .bench")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    began, failed, wanted = time.monotonic(), [], asked.only or modules()
    for i, name in enumerate(wanted):
        more = arguments(name, asked.quick)
        head = f"[{i + 1} of {len(wanted)}, {clock(time.monotonic() - began)}] {name}"
        if more is None:
            print(f"{head}: left out, it has no quick form", flush=True)
            continue
        print(head, flush=True)
        command = [sys.executable, "-m", f"benchmarks.{name}", *more, f"--json={asked.out / name}.json"]
        if code := subprocess.run(command).returncode:
            failed.append(f"{name} (exit {code})")
    subprocess.run([sys.executable, "-m", "benchmarks.page", "--results", str(asked.out), "--out", str(asked.out)])
    print(f"{len(wanted)} benchmarks, {clock(time.monotonic() - began)} in all; results in {asked.out}", flush=True)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
