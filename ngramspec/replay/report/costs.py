"""What drafting itself takes: time on a CPU, and memory."""

from __future__ import annotations

from .figure import COLOURS, Exhibit, Table, bar, count_of, draw, kind_of, label
from .group import Group, Run

PARTS = {"draft": "drafting", "accept": "learning what was emitted", "ingest": "taking in prompts"}


def parts(run: Run) -> dict[str, float]:
    """Microseconds an emitted token, by kind of work."""
    emitted = run["emitted_tokens"]
    times = {
        "draft": (run["draft_us_per_step"], run["steps"]),
        "accept": (run["accept_us_per_token"], emitted + run["prefill_tokens"]),
        "ingest": (run["ingest_us_per_prompt_token"], run["prompt_tokens"]),
    }
    return {name: (each or 0.0) * n / emitted if emitted else 0.0 for name, (each, n) in times.items()}


def time(group: Group) -> Exhibit | None:
    """CPU time of the drafters' calls; None without drafts."""
    runs = group.drafting
    if not runs:
        return None
    split = [parts(run) for run in runs]
    traces = [
        bar(
            y=[label(run["drafter"]) for run in runs],
            x=[part[name] for part in split],
            orientation="h",
            name=shown,
            marker={"color": COLOURS[i]},
            hovertemplate=f"{shown}: %{{x:.2f}} µs an emitted token",
        )
        for i, (name, shown) in enumerate(PARTS.items())
    ]
    return draw(
        "time",
        "Time the drafter takes",
        kind_of(runs),
        traces,
        "Microseconds of one core for each emitted token, on the machine that made this report. "
        + (
            "One request ran at a time, so that every call's fixed part counts in full; an engine's batch shares it."
            if runs[0]["config"]["concurrency"] == 1
            else f"{runs[0]['config']['concurrency']} requests ran at a time and shared each call's fixed part."
        ),
        height=170 + 40 * len(runs),
        barmode="stack",
        bargap=0.35,
        xaxis={"title": {"text": "µs an emitted token"}},
        yaxis={"autorange": "reversed", "showgrid": False},
        legend={"traceorder": "normal"},
    )


def memory(group: Group) -> Exhibit | None:
    """Bytes of state; None without drafts."""
    runs = group.drafting
    if not runs:
        return None
    rows = []
    for run in runs:
        capacity, nbytes, cached = run["config"]["capacity_tokens"], run["cache_bytes"], run["cached_tokens"]
        rows.append(
            [
                run["drafter"],
                f"{nbytes / 1e6:,.1f}",
                f"{capacity:,}",
                f"{nbytes / capacity:.0f}",
                f"{cached:,}" if cached else "–",
                count_of(run["draft_us_per_step"], 2),
                count_of(run["total_us_per_emitted_token"], 2),
            ]
        )
    headers = ["drafter", "state, MB", "room for tokens", "bytes a token", "tokens held at the end"]
    return Exhibit(
        "memory",
        "Memory and draft time in numbers",
        kind_of(runs),
        "State is reserved at the start and never grows, whatever a drafter holds in the end; a rival rule's is what "
        "its tables take at that capacity.",
        table=Table([*headers, "draft µs a step", "all µs an emitted token"], rows),
    )
