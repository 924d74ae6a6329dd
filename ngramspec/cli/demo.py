"""`ngramspec demo`: the bundled trace through several drafters, and what the numbers advise."""

from __future__ import annotations

from importlib.resources import as_file, files
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import TraceError
from ..replay.formats import read
from ..replay.results import document, write_json
from ..replay.simulator import Options
from ..replay.trace import Trace
from .output import stdout
from .replay import replay_all, show

DRAFTERS = ["ngramspec", "rolling-hash", "suffix-trie", "none"]


def demo(
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write every number to FILE.")] = None,
) -> None:
    """Replay a recorded trace that comes with the package, compare drafters, and say what the numbers advise."""
    trace = sample()
    runs = replay_all([trace], DRAFTERS, Options())
    show(runs)
    stdout().print(advice(runs), soft_wrap=True)
    if json is not None:
        write_json(document(runs), json)


def sample() -> Trace:
    """The bundled trace; raises `TraceError` where the installation lacks it."""
    resource = files("ngramspec") / "data" / "sample.jsonl.gz"
    if not resource.is_file():
        raise TraceError("the bundled sample trace is missing from this installation: install ngramspec anew")
    with as_file(resource) as path:
        return read(path)


def advice(runs: list[dict[str, Any]]) -> str:
    """One paragraph: the best drafter, what it saves, and when that pays."""
    best = max((run for run in runs if run["accept_length"]), key=lambda run: run["accept_length"], default=None)
    if best is None:
        return "There is no decode step in this trace: it says nothing about speculation."
    length, interval = best["accept_length"], best["accept_length_interval_95"]
    if length <= 1.0 or (interval is not None and interval[0] <= 1.02):
        return "No drafter saves decode steps on this trace: do not enable n-gram speculation for such traffic."
    width = best["verified_tokens"] / best["steps"]
    sure = "" if interval is None else f" (95 % interval {interval[0]:.2f} to {interval[1]:.2f})"
    parts = [
        f"{best['drafter']} emits {length:.2f} tokens a verify step{sure}: it needs {1 - 1 / length:.0%} fewer steps "
        f"than decoding without speculation. That pays as long as a step that verifies {width:.1f} tokens a request, "
        f"with {best['draft_us_per_step']:.0f} µs of drafting, takes less than {length:.2f} times a plain decode step."
    ]
    kinds = {name: kind for name, kind in best["by_category"].items() if name and kind["accept_length"]}
    if len(kinds) > 1:
        ranked = sorted(kinds, key=lambda name: kinds[name]["accept_length"])
        low, high = ranked[0], ranked[-1]
        parts.append(
            f"Most is gained on {high} ({kinds[high]['accept_length']:.2f}), "
            f"least on {low} ({kinds[low]['accept_length']:.2f})."
        )
    return " ".join(parts)
