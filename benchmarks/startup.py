"""What a drafter costs before its first draft: `python -m benchmarks.startup [--quick] --json FILE`.

CPU seconds of a new process that imports the drafter, constructs it and drafts once for a short prompt, and of what it
starts (compilers). `again`: with what an earlier start compiled and kept. `first`: with nothing compiled yet, once.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks import drafters
from benchmarks.machine import machine
from ngramspec.replay import write_json

START = """
import sys
import numpy as np
from benchmarks import drafters
rival = drafters.build(sys.argv[1])
prompt = np.array([1, 2, 3, 4, 1, 2, 3] * 8, np.int32)
rival.hold("r", prompt)
rival.ingest("r", prompt)
rival.learn(["r"], [[4]])
rival.append(["r"], [[4]])
rival.read(rival.propose(["r"]))
"""

#: Where compiled code is kept: numba's kernels, SGLang's corpus built by tvm-ffi, our C core.
KEPT = ("NUMBA_CACHE_DIR", "TVM_FFI_CACHE_DIR", "XDG_CACHE_HOME")

#: As many starts whose least counts.
RUNS = 3


def started(code: str, *arguments: str, kept: str | None = None) -> float:
    """CPU seconds of a new process and its children; `kept` is the folder for what it compiles."""
    environment = os.environ | (dict.fromkeys(KEPT, kept) if kept else {})
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{arguments or code}: ended with {process.returncode}")
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one start each, nothing compiled anew")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE")
    asked = parser.parse_args()
    versions, missing = drafters.present()
    bare = min(started("import numpy") for _ in range(RUNS))
    results: dict[str, Any] = {
        "kind": "measured-cpu",
        "machine": machine(),
        "versions": versions,
        "missing": missing,
        "python_and_numpy_cpu_s": round(bare, 3),
        "starts": {},
    }
    for name in versions:
        entry = results["starts"][name] = {}
        entry["again_cpu_s"] = round(min(started(START, name) for _ in range(1 if asked.quick else RUNS)), 3)
        if not asked.quick:
            with tempfile.TemporaryDirectory() as folder:
                entry["first_cpu_s"] = round(started(START, name, kept=folder), 3)
        print(f"{name}: " + ", ".join(f"{what} {value}" for what, value in entry.items()), flush=True)
        if asked.json:
            write_json(results, asked.json)


if __name__ == "__main__":
    main()
