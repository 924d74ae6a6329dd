"""What the numbers advise, in plain words."""

from __future__ import annotations

from typing import Any

from .figure import percent
from .frontier import PRICES, at_price, best_at
from .group import Group, best, settings, width

Run = dict[str, Any]

#: An accept length whose interval reaches down to here is not told from 1.
NO_GAIN = 1.02


def advice(runs: list[Run]) -> str:
    """One paragraph: the best drafter, what it saves, and when that pays."""
    return " ".join(recommend(runs))


def headline(runs: list[Run]) -> str:
    """One line for the top of a page."""
    run = best(runs)
    if run is None:
        return "This trace says nothing about speculation"
    if not _gains(run):
        return "Do not enable n-gram speculation for this traffic"
    if run.get("modelled_speedup"):
        return f"Enable {run['drafter']}: modelled {run['modelled_speedup']:.2f} times as fast"
    return f"Enable {run['drafter']} if a verify step takes less than {run['accept_length']:.2f} plain steps"


def recommend(runs: list[Run]) -> list[str]:
    """Sentences on the best of the compared runs; the first stands alone."""
    run = best(runs)
    if run is None:
        return ["There is no decode step in this trace: it says nothing about speculation."]
    length, interval = run["accept_length"], run["accept_length_interval_95"]
    sure = "" if interval is None else f" (95 % interval {interval[0]:.2f} to {interval[1]:.2f})"
    if not _gains(run):
        if run.get("modelled_speedup") and length > NO_GAIN:
            return [
                f"Do not enable n-gram speculation for such traffic at this cost: the best drafter, {run['drafter']}, "
                f"emits {length:.2f} tokens a verify step{sure} and is modelled {_times(run)} as fast as decoding "
                "without."
            ]
        return ["No drafter saves decode steps on this trace: do not enable n-gram speculation for such traffic."]
    found = [
        f"{run['drafter']} emits {length:.2f} tokens a verify step{sure}: it needs {percent(1 - 1 / length, 0)} fewer "
        "steps than decoding without speculation."
    ]
    if run.get("modelled_speedup"):
        found.append(f"With the step times given that is modelled {_times(run)} as fast.")
    found.append(
        f"That pays as long as a step that verifies {width(run):.1f} tokens a request, "
        f"with {run['draft_us_per_step']:.0f} µs of drafting, takes less than {length:.2f} times a plain decode step."
    )
    kinds = {name: kind for name, kind in run["by_category"].items() if name and kind["accept_length"]}
    if len(kinds) > 1:
        ranked = sorted(kinds, key=lambda name: kinds[name]["accept_length"])
        low, high = ranked[0], ranked[-1]
        found.append(
            f"Most is gained on {high} ({kinds[high]['accept_length']:.2f}), "
            f"least on {low} ({kinds[low]['accept_length']:.2f})."
        )
    return found


def choices(group: Group) -> list[str]:
    """Sentences on which settings to take: by price where several budgets were replayed, else those of the best run."""
    run = best(group.runs)
    if run is None or not _gains(run):
        return []
    if not group.swept or run.get("modelled_speedup"):
        return [f"Settings: {run['drafter']}, {settings(run)}.", *_by_batch(group)]
    cheap, dear = PRICES[1], PRICES[4]
    found = []
    for price, how in ((cheap, "cheap"), (dear, "dear")):
        chosen = best_at(group, price)
        if chosen is None:
            found.append(f"Where verifying is {how}, {percent(price)}, do not enable it.")
        else:
            found.append(
                f"Where verifying is {how}, one more token a request for {percent(price)} of a plain step, take "
                f"{chosen['drafter']}, {settings(chosen)}: modelled {at_price(chosen, price):.2f} times as fast."
            )
    dearest = next((price for price in PRICES if best_at(group, price) is None), None)
    if dearest is not None and dearest > dear:
        found.append(f"From {percent(dearest)} on, nothing replayed here pays.")
    return found + _by_batch(group)


def _by_batch(group: Group) -> list[str]:
    """One sentence a priced drafter and budget, best first; they share one cost model."""
    lines = sorted(group.batches.items(), key=lambda item: -max(run["modelled_speedup"] for run in item[1]))
    found = []
    for (drafter, budget), runs in lines[:1]:
        cost = runs[0]["config"]["cost"]
        parts = [f"{run['modelled_speedup']:.2f} times at batch {run['config']['concurrency']}" for run in runs]
        found.append(
            f"With the step times of {cost['name']} (kind {cost['kind']}), {drafter}, {budget}, is modelled "
            f"{', '.join(parts[:-1])} and {parts[-1]} as fast as decoding without speculation."
        )
    return found


def _gains(run: Run) -> bool:
    length, interval = run["accept_length"], run["accept_length_interval_95"]
    if length <= 1.0 or (interval is not None and interval[0] <= NO_GAIN):
        return False
    speedup, sure = run.get("modelled_speedup"), run.get("modelled_speedup_interval_95")
    return not speedup or bool((sure[0] if sure else speedup) > 1.0)


def _times(run: Run) -> str:
    sure = run.get("modelled_speedup_interval_95")
    told = "" if sure is None else f" (95 % interval {sure[0]:.2f} to {sure[1]:.2f})"
    return f"{run['modelled_speedup']:.2f} times{told}"
