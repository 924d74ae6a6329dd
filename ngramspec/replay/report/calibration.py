"""Whether predicted probabilities came true."""

from __future__ import annotations

import math

from .figure import GREY, Exhibit, colour, draw, kind_of, label, scatter, symbol
from .group import Group


def reliability(group: Group) -> Exhibit | None:
    """Observed against predicted probability; None where no run compared them."""
    runs = [run for run in group.drafting if run.get("calibration", {}).get("nodes")]
    if not runs:
        return None
    names = [run["drafter"] for run in group.runs]
    traces = [
        scatter(
            x=[0, 1],
            y=[0, 1],
            mode="lines",
            line={"color": GREY, "dash": "dot", "width": 1.5},
            name="as predicted",
            hoverinfo="skip",
        )
    ]
    for run in runs:
        bins = [row for row in run["calibration"]["bins"] if row["n"]]
        largest = max(row["n"] for row in bins)
        error = run["calibration"]["weighted_mean_error"]
        traces.append(
            scatter(
                x=[row["predicted"] for row in bins],
                y=[row["observed"] for row in bins],
                error_y={
                    "type": "data",
                    "array": [2 * math.sqrt(row["observed"] * (1 - row["observed"]) / row["n"]) for row in bins],
                    "width": 4,
                    "thickness": 1,
                },
                customdata=[row["n"] for row in bins],
                name=f"{label(run['drafter'])}, error {error:.3f}",
                mode="lines+markers",
                line={"color": colour(names, run["drafter"]), "width": 1.5},
                marker={
                    "size": [6 + 12 * math.sqrt(row["n"] / largest) for row in bins],
                    "symbol": symbol(names, run["drafter"]),
                },
                hovertemplate="predicted %{x:.3f}, emitted %{y:.3f}<br>%{customdata} drafted tokens<extra></extra>",
            )
        )
    return draw(
        "reliability",
        "Do predicted probabilities come true?",
        kind_of(runs),
        traces,
        "Drafted tokens whose parent was emitted, in ten bins of the probability that the drafter gave them; larger "
        "marks hold more tokens, bars are twice the sampling error. On the dotted line a token predicted at 60 % is "
        "emitted in 60 % of cases. The error is the mean distance from it, weighted by tokens. Sizing drafts by "
        "probability or cost is worth no more than this figure.",
        height=520,
        xaxis={"title": {"text": "predicted probability"}, "range": [-0.02, 1.02]},
        yaxis={"title": {"text": "share that was emitted"}, "range": [-0.02, 1.04]},
    )
