"""What drafts were made of: acceptance by position, sources of drafted tokens, reasons of empty drafts."""

from __future__ import annotations

from .figure import COLOURS, LIGHT, Exhibit, bar, colour, draw, kind_of, label, scatter, symbol
from .group import Group

#: Positions that fewer steps drafted are left out: their shares are noise.
MIN_STEPS = 10

SOURCES = {
    "own": "the session's own text",
    "shared": "other requests' outputs",
    "counts": "counted short contexts",
    "frozen": "a frozen corpus",
    "none": "not told",
}
REASONS = {
    "no_match": "nothing known followed",
    "below_min": "below min_prob",
    "too_short": "text too short",
    "length_limit": "at the length limit",
    "budget": "no budget",
    "disabled": "switched off",
}


def positions(group: Group) -> Exhibit | None:
    """Share accepted at each depth; None without drafts."""
    names = [run["drafter"] for run in group.runs]
    traces = []
    for run in group.drafting:
        rows = [row for row in run["by_depth"] if row["steps"] >= MIN_STEPS]
        traces.append(
            scatter(
                x=[row["depth"] for row in rows],
                y=[row["rate"] for row in rows],
                customdata=[[row["accepted"], row["steps"]] for row in rows],
                name=label(run["drafter"]),
                mode="lines+markers",
                line={"color": colour(names, run["drafter"]), "width": 2},
                marker={"size": 8, "symbol": symbol(names, run["drafter"])},
                hovertemplate="position %{x}: %{y:.1%}<br>%{customdata[0]} of %{customdata[1]} steps",
            )
        )
    if not traces:
        return None
    return draw(
        "positions",
        "Acceptance by position",
        kind_of(group.drafting),
        traces,
        "Of the steps whose draft reached a position, the share that accepted a token there. Only steps with much to "
        f"go on draft far, so that a line can rise. Positions that fewer than {MIN_STEPS} steps drafted are left out.",
        xaxis={"title": {"text": "position in the draft"}, "rangemode": "tozero", "tickformat": "d"},
        yaxis={"title": {"text": "share accepted"}, "range": [0, 1.03], "tickformat": ".0%"},
    )


def sources(group: Group) -> Exhibit | None:
    """Where drafted tokens were found and how many of them were accepted; None without drafts."""
    found = [name for name in SOURCES if any(name in run["by_source"] for run in group.drafting)]
    if not found:
        return None
    traces = []
    for name in found:
        runs = [run for run in group.drafting if name in run["by_source"]]
        colour_of = COLOURS[list(SOURCES).index(name)]
        for accepted in (True, False):
            parts = [run["by_source"][name] for run in runs]
            tokens = [part["accepted_tokens"] if accepted else _refused(part) for part in parts]
            traces.append(
                bar(
                    y=[label(run["drafter"]) for run in runs],
                    x=[n / run["steps"] for n, run in zip(tokens, runs, strict=True)],
                    customdata=tokens,
                    orientation="h",
                    name=SOURCES[name],
                    legendgroup=name,
                    showlegend=accepted,
                    marker={"color": colour_of, "opacity": 1.0 if accepted else 0.35, "line": {"width": 0}},
                    hovertemplate=f"{SOURCES[name]}, {'' if accepted else 'not '}accepted: %{{x:.2f}} a step"
                    "<br>%{customdata} tokens",
                )
            )
    return draw(
        "sources",
        "Where drafts came from",
        kind_of(group.drafting),
        traces,
        "Drafted tokens a step by where the drafter found them: the solid part was accepted, the pale part not. Tokens "
        "drafted past the end of a record are left out.",
        height=170 + 40 * len(group.drafting),
        barmode="stack",
        bargap=0.35,
        xaxis={"title": {"text": "drafted tokens a step"}},
        yaxis={"autorange": "reversed", "showgrid": False},
        legend={"traceorder": "normal"},
    )


def _refused(part: dict[str, int]) -> int:
    return part["drafted_tokens"] - part["accepted_tokens"]


def reasons(group: Group) -> Exhibit | None:
    """Steps with a draft, and why the others had none; None where no step is left to explain."""
    runs = [run for run in group.runs if run["steps"] and run["drafter"] != "none"]
    names = [name for name in REASONS if any(run["empty_drafts"].get(name) for run in runs)]
    if not names:
        return None
    traces = []
    for i, name in enumerate([*names, "drafted"]):
        empty = [run["empty_drafts"] for run in runs]
        steps = [
            run["steps"] - sum(part.values()) if name == "drafted" else part.get(name, 0)
            for run, part in zip(runs, empty, strict=True)
        ]
        shown = REASONS.get(name, "had a draft")
        traces.append(
            bar(
                y=[label(run["drafter"]) for run in runs],
                x=[n / run["steps"] for n, run in zip(steps, runs, strict=True)],
                customdata=steps,
                orientation="h",
                name=shown,
                marker={"color": LIGHT if name == "drafted" else COLOURS[i % len(COLOURS)]},
                hovertemplate=f"{shown}: %{{x:.1%}} of steps, %{{customdata}}",
            )
        )
    return draw(
        "reasons",
        "Why steps had no draft",
        kind_of(runs),
        traces,
        "Share of steps. A step without a draft costs what it would without speculation.",
        height=170 + 40 * len(runs),
        barmode="stack",
        bargap=0.35,
        xaxis={"title": {"text": "share of steps"}, "tickformat": ".0%", "range": [0, 1.001]},
        yaxis={"autorange": "reversed", "showgrid": False},
        legend={"traceorder": "normal"},
    )
