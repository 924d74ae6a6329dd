"""How long accepted runs were, and how much faster that is where step times are known, by drafter and category."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...drafting.cost_file import parse
from ...kernels.verify import EMITTED, STEPS
from ..trace import Int64
from .figure import (
    COLOURS,
    GREY,
    PALE,
    Exhibit,
    Table,
    colour,
    count_of,
    draw,
    kind_of,
    label,
    percent,
    scatter,
    symbol,
)
from .group import Group, Run, settings, width

#: Name of the axis of speed-ups.
FASTER = "times as fast as without speculation"


def accept_lengths(group: Group) -> Exhibit:
    """Accept length by drafter, with its interval."""
    runs = [run for run in group.runs if run["accept_length"]]
    return draw(
        "accept-length",
        "Accept length by drafter",
        kind_of(runs),
        [_bars(group, runs, "accept_length", "%{x:.3f} tokens a step")],
        "Tokens emitted a verify step, the model's own one included; 1 is decoding without speculation. The whiskers "
        "are the 95 % interval, from drawing whole sessions at random.",
        height=80 + 44 * len(runs),
        xaxis={"title": {"text": "accept length, tokens a step"}},
        yaxis={"autorange": "reversed", "showgrid": False},
        shapes=[_line_at_one()],
        showlegend=False,
    )


def speedups(group: Group) -> Exhibit | None:
    """Modelled speed-up by drafter, where a cost model was given."""
    runs = [run for run in group.runs if run.get("modelled_speedup")]
    if not runs:
        return None
    return draw(
        "speed-up",
        "Modelled speed-up by drafter",
        "modelled",
        [_bars(group, runs, "modelled_speedup", "%{x:.2f} ×")],
        f"{_compared(runs[0])}, {requests_at_a_time(runs[0])}. {step_times(runs[0])}",
        height=80 + 44 * len(runs),
        xaxis={"title": {"text": FASTER}},
        yaxis={"autorange": "reversed", "showgrid": False},
        shapes=[_line_at_one()],
        showlegend=False,
    )


def by_batch(group: Group) -> Exhibit | None:
    """Modelled speed-up over the number of requests at a time; None where runs of one size alone were priced."""
    lines = group.batches
    if not lines:
        return None
    names = [run["drafter"] for run in group.runs]
    dashes, seen = ("solid", "dash", "dot", "dashdot"), dict.fromkeys(names, 0)
    traces = []
    for (drafter, budget), runs in lines.items():
        sizes = [run["config"]["concurrency"] for run in runs]
        traces.append(
            scatter(
                x=sizes,
                y=[run["modelled_speedup"] for run in runs],
                error_y=_whiskers(runs, "modelled_speedup", PALE),
                name=f"{label(drafter)}: {budget}",
                mode="lines+markers",
                line={"color": colour(names, drafter), "width": 2, "dash": dashes[seen[drafter] % len(dashes)]},
                marker={"size": 9, "symbol": symbol(names, drafter) + ("-open" if seen[drafter] else "")},
                customdata=[run["modelled"]["batch_mean"] for run in runs],
                hovertemplate="at most %{x}, %{customdata:.1f} on average: %{y:.2f} ×<extra></extra>",
            )
        )
        seen[drafter] += 1
    ticks = sorted({run["config"]["concurrency"] for runs in lines.values() for run in runs})
    first = next(iter(lines.values()))[0]
    return draw(
        "speed-up-by-batch",
        "Modelled speed-up by batch size",
        "modelled",
        traces,
        "Tokens a second over those without speculation in a batch as large. The larger the batch, the more a verified "
        f"token costs. Toward the end of a trace the batch runs empty, which a server's does not. {step_times(first)}",
        height=400 + 18 * len(lines),
        xaxis={
            "title": {"text": "requests at a time"},
            "type": "log",
            "tickvals": ticks,
            "ticktext": [str(n) for n in ticks],
        },
        yaxis={"title": {"text": "modelled speed-up"}},
        shapes=[_line_at_one(vertical=False)],
    )


def by_category(group: Group, value: str = "accept_length") -> Exhibit | None:
    """Accept length, or modelled speed-up, of each category; None where the trace names none."""
    names = [run["drafter"] for run in group.runs]
    categories = {name for run in group.runs for name, part in run["by_category"].items() if part.get(value)}
    if not categories - {""} or group.main is None:
        return None
    main = group.main["by_category"]
    order = sorted(categories, key=lambda name: main.get(name, {}).get(value) or 0.0)
    traces = []
    for run in reversed(group.runs):  # the first is drawn last, over the others
        parts = [(name, run["by_category"].get(name, {})) for name in order]
        points = [(name, part) for name, part in parts if part.get(value)]
        traces.append(
            scatter(
                x=[part[value] for _, part in points],
                y=[label(name) for name, _ in points],
                customdata=[[part["requests"], part["steps"]] for _, part in points],
                name=label(run["drafter"]),
                mode="markers",
                marker={
                    "size": 11,
                    "color": GREY if not run["drafted_tokens"] else colour(names, run["drafter"]),
                    "symbol": symbol(names, run["drafter"]),
                },
                hovertemplate="%{y}: %{x:.2f}<br>%{customdata[0]} requests, %{customdata[1]} steps",
            )
        )
    modelled = value != "accept_length"
    return draw(
        "speed-up-by-category" if modelled else "by-category",
        "Modelled speed-up by category" if modelled else "Accept length by category",
        "modelled" if modelled else kind_of(group.runs),
        traces,
        "Each kind of request in the trace, the one with most to gain on top. Categories are the trace's own.",
        height=140 + 32 * len(order),
        xaxis={"title": {"text": FASTER if modelled else "accept length, tokens a step"}},
        legend={"traceorder": "reversed"},
        shapes=[_line_at_one()],
    )


def numbers(group: Group) -> Exhibit:
    """The main numbers in a table, for readers without figures."""
    rows = []
    for run in group.runs:
        interval = run["accept_length_interval_95"]
        rows.append(
            [
                run["drafter"] + (" (upper bound)" if run.get("upper_bound") else ""),
                settings(run),
                count_of(run["accept_length"], 3),
                "–" if interval is None else f"{interval[0]:.2f}–{interval[1]:.2f}",
                count_of(width(run), 2),
                percent(run["accept_rate"]),
                percent(run["draft_coverage"]),
                count_of(run["draft_us_per_step"] if run["drafted_tokens"] else None, 2),
            ]
        )
    headers = ["drafter", "settings", "accept length", "95 % interval", "verified a step", "accept rate"]
    return Exhibit(
        "numbers",
        "The same in numbers",
        kind_of(group.runs),
        "“Verified a step” is what the model has to run: the drafted tokens and the last committed one, padding "
        "included. Accept rate is accepted over drafted tokens.",
        table=Table([*headers, "steps with a draft", "draft µs a step"], rows, left=2),
    )


def by_request(group: Group, per_row: Int64) -> Exhibit | None:
    """Every request a point, from the counts of the main drafter's replay."""
    trace, run = group.trace, group.main
    if trace is None or run is None:
        return None
    rows: list[int] = np.flatnonzero(per_row[:, STEPS]).tolist()
    return draw(
        "requests",
        f"Every request, with {run['drafter']}",
        kind_of([run]),
        [
            scatter(
                x=[int(per_row[row, EMITTED]) for row in rows],
                y=[float(per_row[row, EMITTED] / per_row[row, STEPS]) for row in rows],
                text=[label(trace.ids[row]) for row in rows],
                mode="markers",
                marker={"size": 7, "color": COLOURS[0], "opacity": 0.55},
                hovertemplate="%{text}<br>%{x} tokens, accept length %{y:.2f}<extra></extra>",
            )
        ],
        "Each request's own accept length over the tokens that it emitted. The ones with most and least are below.",
        xaxis={"title": {"text": "tokens emitted in verify steps"}, "rangemode": "tozero"},
        yaxis={"title": {"text": "accept length, tokens a step"}, "rangemode": "tozero"},
        showlegend=False,
    )


def _bars(group: Group, runs: list[Run], value: str, hover: str) -> Any:
    names = [run["drafter"] for run in group.runs]
    return scatter(
        x=[run[value] for run in runs],
        y=[label(run["drafter"]) for run in runs],
        error_x=_whiskers(runs, value, GREY),
        mode="markers+text",
        text=[f"{run[value]:.2f}" for run in runs],
        textposition="top center",
        cliponaxis=False,
        marker={
            "size": 12,
            "color": [GREY if not run["drafted_tokens"] else colour(names, run["drafter"]) for run in runs],
            "symbol": [symbol(names, run["drafter"]) for run in runs],
        },
        hovertemplate=f"%{{y}}: {hover}<extra></extra>",
    )


def _whiskers(runs: list[Run], value: str, colour_of: str) -> dict[str, Any]:
    intervals = [run.get(f"{value}_interval_95") or [run[value]] * 2 for run in runs]
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - run[value] for run, (_, high) in zip(runs, intervals, strict=True)],
        "arrayminus": [run[value] - low for run, (low, _) in zip(runs, intervals, strict=True)],
        "color": colour_of,
        "thickness": 1.5,
        "width": 5,
    }


def _line_at_one(vertical: bool = True) -> dict[str, Any]:
    along, across = ("y", "x") if vertical else ("x", "y")
    ends = {f"{across}0": 1, f"{across}1": 1, f"{along}0": 0, f"{along}1": 1, f"{along}ref": "paper"}
    return {"type": "line", "line": {"color": GREY, "width": 1.5, "dash": "dot"}, "layer": "below", **ends}


def requests_at_a_time(run: Run) -> str:
    """Batch size, in words."""
    n, mean = run["config"]["concurrency"], run["modelled"]["batch_mean"]
    return "one request at a time" if n == 1 else f"at most {n} requests at a time, {mean:.1f} on average"


def _compared(run: Run) -> str:
    """What a speed-up is a ratio of."""
    if run["config"].get("serving", {}).get("arrivals", "closed") == "closed":
        return "Tokens a second over those without speculation"
    return "Time of requests without speculation over that with it, from when each is sent to its last token"


def step_times(run: Run) -> str:
    """Where the step times behind a speed-up come from, and what they are worth."""
    cost = run["config"]["cost"]
    note = f", {cost['note']}" if cost["note"] else ""
    charged = f"{cost['exposed_us']:g} µs a request and step" if cost["exposed_us"] else "nothing"
    if run["config"].get("serving", {}).get("draft_us"):
        charged = "what stands beside the latencies"
    worth = (
        "Uncalibrated: these step times have not been shown to reproduce a server's tokens a second without speculation"
        if "uncalibrated" in run["modelled"]["label"]
        else "Calibrated: these step times reproduce the tokens a second that were measured without speculation"
    )
    caveat = parse(cost).caveat
    flat = f" {caveat[0].upper()}{caveat[1:]}." if caveat else ""
    return f"Step times: {cost['name']} (kind {cost['kind']}{note}); drafting is charged with {charged}. {worth}.{flat}"
