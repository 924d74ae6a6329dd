"""The plots of the page, from the results."""

from __future__ import annotations

from typing import Any

from benchmarks.drafters import DRAFTERS
from benchmarks.svg import Axis, Line, chart, decades
from benchmarks.targets import OURS

#: Name of a file, and title.
PLOTS = {
    "steps": "Whole step by batch size",
    "contexts": "Draft by length of the context",
    "cached": "Whole step by tokens in the cache",
    "frontier": "Accept length by drafted tokens a step, bundled sample",
}


def plots(results: dict[str, Any]) -> dict[str, str]:
    """SVG files by name."""
    found: dict[str, str] = {}

    def draw(name: str, x: tuple[str, list[float]], y: str, lines: list[Line]) -> None:
        values = [value for line in lines for _, value in line.points]
        axes = Axis(x[0], x[1], log=True), Axis(y, decades(values), log=True)
        found[name] = chart(PLOTS[name], *axes, lines)

    def lines(entries: dict[float, dict[str, Any]], part: str) -> list[Line]:
        rows = {one: [(x, e[one][part]) for x, e in entries.items() if part in e.get(one, {})] for one in DRAFTERS}
        return [Line(one, row, one == OURS, i) for i, (one, row) in enumerate(rows.items()) if row]

    if "cost" in results:
        batches = results["cost"]["batches"]
        by_size = {float(k.rpartition(" ")[2]): v for k, v in batches.items() if k.startswith("sample")}
        draw("steps", ("requests in the batch", list(by_size)), "µs of CPU a request-step", lines(by_size, "whole_us"))
    if "contexts" in results:
        by_context = {float(k.split()[1]): v for k, v in results["contexts"]["contexts"].items()}
        draw("contexts", ("tokens of context", list(by_context)), "µs of CPU a draft", lines(by_context, "draft_us"))
    if len(results.get("cached", {}).get("cached", {})) > 1:
        by_cached = {float(k): v for k, v in results["cached"]["cached"].items()}
        draw("cached", ("tokens cached", list(by_cached)), "µs of CPU a request-step", lines(by_cached, "whole_us"))
    if "frontier" in results:
        curves = results["frontier"]["traces"]["sample"]["curves"]
        seen = {one: [(x, y) for x, y in hull if x <= 30] for one, hull in curves.items()}
        shown = [Line(one, row, one == OURS, i) for i, (one, row) in enumerate(seen.items())]
        found["frontier"] = chart(
            PLOTS["frontier"],
            Axis("drafted tokens a step", [0, 5, 10, 15, 20, 25, 30]),
            Axis("tokens emitted a verify step", [1, 2, 3, 4, 5]),
            shown,
        )
    return found
