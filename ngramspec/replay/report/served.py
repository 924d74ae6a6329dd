"""Times to first token and per output token, where runs were served in modelled time."""

from __future__ import annotations

from typing import Any

from .figure import Exhibit, Table, percent
from .group import Group, Run


def latencies(group: Group) -> Exhibit | None:
    """With each drafter and without speculation, under the same arrivals; None where nothing was served."""
    runs = [run for run in group.runs if "serving" in run]
    if not runs:
        return None
    rows = [_cells("without speculation", runs[0]["serving"]["plain"])]
    rows += [_cells(run["drafter"], run["serving"]["speculating"]) for run in runs]
    headers = [
        "",
        *(f"first token, ms: {what}" for what in ("mean", "median", "99 %")),
        *(f"each token after, ms: {what}" for what in ("mean", "median", "99 %")),
        *("tokens a second", "busy"),
    ]
    return Exhibit(
        "latencies",
        "How long requests wait",
        "modelled",
        f"Requests {sent(runs[0])}. From when a request is sent to its first token, waiting for room included; and "
        f"from then to its last, over the tokens after the first. {_charged(runs)}",
        table=Table(headers, rows),
    )


def sent(run: Run) -> str:
    """How requests came, in words that follow `Requests`."""
    how, most = run["config"]["serving"], run["config"]["concurrency"]
    at_a_time = f"at most {most} running at a time"
    if how["arrivals"] == "poisson":
        return f"were sent at random, {how['rate']:g} a second on average, {at_a_time}"
    if how["arrivals"] == "trace":
        faster = f", {how['speed']:g} times as fast" if how["speed"] != 1.0 else ""
        return f"were sent at their recorded times{faster}, {at_a_time}"
    return f"were sent when there was room, {at_a_time}"


def _cells(name: str, numbers: dict[str, Any]) -> list[str]:
    cells = [name]
    for what, digits in (("ttft_ms", 1), ("tpot_ms", 2)):
        spread = numbers[what]
        cells += ["–"] * 3 if spread is None else [f"{spread[key]:,.{digits}f}" for key in ("mean", "p50", "p99")]
    speed, busy = numbers["tokens_per_second"], numbers["busy_share"]
    return [*cells, "–" if speed is None else f"{speed:,.0f}", "–" if busy is None else percent(busy)]


def _charged(runs: list[Run]) -> str:
    found = []
    for run in runs:
        us = run["serving"]["charged_us"]
        if any(us.values()):
            found.append(
                f"{run['drafter']} is charged with {us['draft']:.3g} µs a draft, {us['accept']:.3g} µs a learned token "
                f"and {us['ingest']:.3g} µs a prompt token."
            )
    return " ".join(found) or "No time of a drafter is charged."
