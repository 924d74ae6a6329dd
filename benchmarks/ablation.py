"""What each part of the drafter is worth: `python -m benchmarks.ablation --json FILE [--limit N] [TRACE...]`.

Every variant is a copy of the package in a temporary folder with one line changed (the change must be found, or the run
fails), replayed in a process of its own: sequential, cold start, tree of 11 and a chain at path probability 0.1.
Without a TRACE the test half of the bundled sample is replayed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ngramspec
from benchmarks.machine import machine
from benchmarks.traces import named
from ngramspec.replay import write_json

# Variant: file, what stands there, what stands there instead, options of the replay.
VARIANTS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "all parts": ("", "", "", {}),
    "without counted contexts": (
        "kernels/drafter.py",
        "    n, n_levels = counted(hk, m, n_short, w, g, n, n_levels)\n",
        "",
        {},
    ),
    "without chains": ("kernels/evidence.py", "    n_context = own_context(", "    return 0, own_context(", {}),
    "without others' outputs": ("", "", "", {"share": "none"}),
    "without the final correction": (
        "kernels/mixer.py",
        "(int(SQUASH[logit + 2048]) + 3 * corrected) >> 2",
        "int(SQUASH[logit + 2048])",
        {},
    ),
    "without last-token weights": (
        "kernels/mixer.py",
        "((last_value * 40503) & (N_TOKEN_SETS - 1)) * SET",
        "0",
        {},
    ),
    "without the follower's own weights": (
        "kernels/mixer.py",
        "(int(g[i * G_COLUMNS + G_OWN]) * N_MATCHES + int(g[i * G_COLUMNS + G_SHARED])) * SET",
        "0",
        {},
    ),
    "learning from accepted tokens only": (
        "kernels/drafter.py",
        "            learn(hx",
        "            if i < n_emitted - 1:\n                learn(hx",
        {},
    ),
    "without the trained prior": (
        "drafting/prior.py",
        "    with resources",
        "    return start_values()\n    with resources",
        {},
    ),
    "learning one step late (deferred)": ("config.py", "    deferred: bool = False", "    deferred: bool = True", {}),
}

REPLAY = """
import json, sys
from benchmarks.traces import load
from ngramspec.replay import Options, run
from pathlib import Path
paths, limit, extra = json.loads(sys.argv[1])
rows = {}
for path in paths:
    name, trace = load(path and Path(path), limit)
    tree = run(trace, "ngramspec", Options(calibration=True, **extra))
    chain = run(trace, "ngramspec", Options(topology="chain", max_draft=31, min_prob=0.1, **extra))
    rows[name] = {
        "tree_11": tree["accept_length"], "calibration_error": tree["calibration"]["weighted_mean_error"],
        "chain_0.1": chain["accept_length"], "chain_drafted_per_step": chain["drafted_tokens"] / chain["steps"],
    }
print(json.dumps(rows))
"""


def replay(variant: str, traces: list[Path | None], limit: int | None) -> dict[str, dict[str, float]]:
    """Replay one variant in a process of its own; the result by trace."""
    file, old, new, extra = VARIANTS[variant]
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ)
        if file:
            here = Path(__file__).parent
            for package in (Path(ngramspec.__file__).parent, here):
                shutil.copytree(package, Path(folder) / package.name, ignore=shutil.ignore_patterns("__pycache__"))
            changed = Path(folder) / "ngramspec" / file
            text = changed.read_text()
            if text.count(old) != 1:
                raise SystemExit(
                    f"ablation {variant!r}: {old!r} stands {text.count(old)} times in {file}, must stand once"
                )
            changed.write_text(text.replace(old, new))
            environment |= {"PYTHONPATH": folder, "NUMBA_CACHE_DIR": str(Path(folder) / "cache")}
        else:  # what is compiled already will do
            environment |= {"PYTHONPATH": str(Path(ngramspec.__file__).parent.parent)}
        asked = json.dumps([[trace and str(trace.resolve()) for trace in traces], limit, extra])
        done = subprocess.run(
            [sys.executable, "-c", REPLAY, asked], env=environment, cwd=folder, capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(f"ablation {variant!r} failed: {done.stderr[-2000:]}")
        result: dict[str, dict[str, float]] = json.loads(done.stdout)
        return result


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path, metavar="TRACE")
    parser.add_argument("--limit", type=int, help="first requests of each trace only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE")
    options = parser.parse_args()
    results: dict[str, Any] = {"kind": "measured-cpu", "machine": machine(), "limit": options.limit, "variants": {}}
    traces: list[Path | None] = [*named(options.traces)] or [None]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        rows = pool.map(lambda variant: replay(variant, traces, options.limit), VARIANTS)
        for variant, row in zip(VARIANTS, rows, strict=True):
            results["variants"][variant] = row
            print(
                variant, {name: {k: round(v, 4) for k, v in entry.items()} for name, entry in row.items()}, flush=True
            )
            if options.json:
                write_json(results, options.json)


if __name__ == "__main__":
    main()
