"""What more verified tokens buy: accept length over tokens verified a step, and which budget pays at which price."""

from __future__ import annotations

from .figure import GREY, Exhibit, Table, colour, draw, kind_of, label, percent, scatter, symbol
from .group import Group, Run, settings, sized_by_cost, width

#: What one more verified token of a request adds to a step, as a share of a step without speculation.
PRICES = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)

BY_COST = "by cost"


def frontier(group: Group) -> Exhibit:
    """Accept length against verified tokens, every run a point, budgets of one drafter and manner on a line."""
    names = [run["drafter"] for run in group.runs]
    lines: dict[tuple[str, str, str], list[Run]] = {}
    for run in group.frontier:
        if run["drafted_tokens"]:
            lines.setdefault((run["drafter"], run["config"]["topology"], _manner(run)), []).append(run)
    several = len({topology for _, topology, _ in lines}) > 1
    traces = [
        scatter(
            x=[1],
            y=[1],
            name="without speculation",
            mode="markers",
            marker={"size": 9, "color": GREY},
            hovertemplate="without speculation<extra></extra>",
        )
    ]
    for (drafter, topology, manner), runs in lines.items():
        runs = sorted(runs, key=width)
        ending = "-open" if manner else ""
        name = ", ".join([label(drafter), *([topology] if several else []), *([manner] if manner else [])])
        traces.append(
            scatter(
                x=[width(run) for run in runs],
                y=[run["accept_length"] for run in runs],
                text=[settings(run) for run in runs],
                name=name,
                mode="lines+markers",
                line={"color": colour(names, drafter), "width": 2, "dash": "dash" if manner else "solid"},
                marker={"size": 9, "symbol": "star" if manner == BY_COST else symbol(names, drafter) + ending},
                hovertemplate="%{text}<br>accept length %{y:.2f} at %{x:.2f} verified<extra>" + name + "</extra>",
            )
        )
    alone = all(len(runs) == 1 for runs in lines.values())
    return draw(
        "frontier",
        "What a larger budget buys",
        kind_of(group.frontier),
        traces,
        "Higher and further left is better: more tokens emitted for fewer verified. Points of one line differ in how "
        "many tokens they may draft; where a draft is sized by probability, in the probability at which it stops."
        + (" One budget of each was replayed: --frontier adds others." if alone else ""),
        height=520,
        xaxis={"title": {"text": "tokens verified a request and step"}, "rangemode": "tozero"},
        yaxis={"title": {"text": "accept length, tokens a step"}},
    )


def _manner(run: Run) -> str:
    """How the size of a step's draft is decided; nothing where it is fixed."""
    by_threshold = run["config"]["min_prob"] > 0 or (run["config"].get("budget") or {}).get("mode") == "threshold"
    return BY_COST if sized_by_cost(run) else "by probability" if by_threshold else ""


def at_price(run: Run, price: float) -> float:
    """Speed-up when a step takes `1 + price * (verified - 1)` times a step without speculation."""
    return float(run["accept_length"] / (1.0 + price * (width(run) - 1.0)))


def best_at(group: Group, price: float) -> Run | None:
    """The run that is fastest at a price; None where none gains."""
    judged = [run for run in group.frontier if run["drafted_tokens"] and not sized_by_cost(run)]
    found = max(judged, key=lambda run: at_price(run, price), default=None)
    return found if found is not None and at_price(found, price) > 1.02 else None


def prices(group: Group) -> Exhibit:
    """Which budget to set, by what verification costs."""
    rows = []
    for price in PRICES:
        run = best_at(group, price)
        if run is None:
            rows.append([percent(price), "do not enable", "", "", "", ""])
        else:
            verified, faster = f"{width(run):.1f}", f"{at_price(run, price):.2f} ×"
            length = f"{run['accept_length']:.2f}"
            rows.append([percent(price), run["drafter"], settings(run), length, verified, faster])
    headers = ["one more token costs", "drafter", "settings", "accept length", "verified a step", "modelled speed-up"]
    return Exhibit(
        "prices",
        "What to set, by what verification costs",
        "modelled",
        "The best of the runs above if each further token that a step verifies for a request adds so much of the time "
        "of a step without speculation: well below 1 % at small batches, where reading the weights dominates, more and "
        "more as the batch grows. A straight line in the place of your engine's step times, drafting not charged, and "
        "the best of several settings on one trace: uncalibrated. Measure your engine's steps to know the row.",
        table=Table(headers, rows, left=3),
    )
