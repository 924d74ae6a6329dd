"""The page of recorded results: `python -m benchmarks.page` writes benchmarks/README.md and its plots.

Everything on it stands in the JSON files of the results folder; a test writes it again and compares.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from benchmarks import sections
from benchmarks.plots import PLOTS, plots
from benchmarks.targets import targets

HERE = Path(__file__).parent
NAMES = ("cost", "contexts", "cached", "sglang_step", "startup", "frontier", "parity", "replay")

INTRO = """\
# Benchmarks

`make bench` measures everything anew, with the released rivals installed by pip into an environment of its own, and
`BENCH=quick make bench` runs a short form. `NGRAMSPEC_TRACES` names further traces, separated by `:`. This page is
written by `python -m benchmarks.page` from `benchmarks/results/`; do not edit it.

"""


def page(results: dict[str, Any]) -> str:
    """The page as Markdown."""
    parts = (
        ("frontier", sections.of_frontier),
        ("cost", sections.of_cost),
        ("contexts", sections.of_contexts),
        ("cached", sections.of_cached),
        ("sglang_step", sections.of_behind),
        ("startup", sections.of_startup),
        ("parity", sections.of_parity),
        ("replay", sections.of_replay),
    )
    text = (
        INTRO + sections.of_targets(results) + "".join(make(results[name]) for name, make in parts if name in results)
    )
    text += sections.of_notes(results)
    drawn = plots(results)
    for name in PLOTS:
        if name not in drawn:
            text = text.replace(sections.plot(name), "")
    return text.rstrip("\n") + "\n"


def read(folder: Path) -> dict[str, Any]:
    """Results by benchmark name, those that the page shows."""
    files = {name: folder / f"{name}.json" for name in NAMES}
    return {name: json.loads(file.read_text()) for name, file in files.items() if file.exists()}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=HERE / "results", metavar="FOLDER", help="JSON files")
    parser.add_argument("--out", type=Path, default=HERE, metavar="FOLDER", help="where README.md and plots/ go")
    asked = parser.parse_args()
    results = read(asked.results)
    (asked.out / "plots").mkdir(parents=True, exist_ok=True)
    for name, drawing in plots(results).items():
        (asked.out / "plots" / f"{name}.svg").write_text(drawing)
    (asked.out / "README.md").write_text(page(results))
    for target in targets(results):
        verdict = "met" if target.met else "NOT MET"
        print(f"{verdict}: {target.what}: {target.ours} to {target.rival}, {target.ratio:.2f} of {target.needed:g}")


if __name__ == "__main__":
    main()
