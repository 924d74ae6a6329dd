"""What a reader has to know before believing a report: the caveats that apply to its trace and runs."""

from __future__ import annotations

from ..drafters import RECORDED
from ..inspection import inspect, remarks
from .figure import percent
from .group import Group, Run
from .overview import step_times
from .served import sent


def caveats(group: Group, notes: str = "") -> list[str]:
    """Sentences, the most general first.

    Parameters
    ----------
    group : Group
        Runs of one trace.
    notes : str
        Where the recording comes from, in the caller's words; takes the place of what is otherwise unknown.
    """
    found = [
        "Accepted tokens are exact, not modelled: a draft that depends on the past alone is accepted as often as the "
        "recorded tokens agree with it, at any temperature, as long as your model wrote the record.",
        notes or _authorship(group.runs[0]),
        *_order(group),
        *_start(group.runs),
        *_money(group),
        *_recorded(group.runs),
        "Served outputs can differ from a replay in two ways that no record shows: numerics change with the shape of a "
        "batch, and some engines relax penalties inside a verify step or accept below what rejection sampling would.",
        *_record(group),
    ]
    if group.trace is not None:
        # Said already, and better: what re-tokenised rows mean.
        told = [text for kind, text in remarks(inspect(group.trace)) if kind != "ok" and "re-tokenised" not in text]
        found += [f"{text[0].upper()}{text[1:]}." for text in told]
    return found


def _authorship(run: Run) -> str:
    n = run["retokenised_rows"]
    marked = f"{n:,} of {run['requests']:,} requests are" if n else "No request is"
    return (
        f"{marked} marked as re-tokenised. Where ids were made from text by a tokenizer, the model's own choice of "
        "tokens may have differed, which usually flatters drafting. If another model or a person wrote the outputs, "
        "your model's acceptance will differ."
    )


def _order(group: Group) -> list[str]:
    config = group.runs[0]["config"]
    if "serving" in config:
        kept = "what a session's earlier turn left" if config["serving"]["prefix_cache"] else "nothing of earlier turns"
        return [
            f"Requests {sent(group.runs[0])}, in modelled time. Under another load the drafter would have known more "
            f"or less of other requests. Memory never runs out, none is preempted, and the KV cache keeps {kept}, but "
            "no beginning that requests of different sessions share."
        ]
    if config["share"] == "none":
        return ["Nothing is shared between requests, so that the order of requests does not matter."]
    at_a_time = config["concurrency"]
    running = "one request at a time" if at_a_time == 1 else f"{at_a_time} requests at a time, step by step"
    return [
        f"The replay ran {running}, in the order of the file, not at recorded times. Under another order or load "
        "the drafter would have known more or less of other requests: fewer of them finished means less to share."
    ]


def _start(runs: list[Run]) -> list[str]:
    warm = runs[0]["config"]["warm_up"]
    found = []
    if warm:
        found.append(f"Every drafter had first seen {', '.join(warm)}: these are numbers of a warm start.")
    else:
        found.append(
            "Every drafter started cold, with nothing known. The first requests pull the means down; a server that has "
            "run for a while does better by what requests share."
        )
    if any(run.get("upper_bound") for run in runs):
        found.append("The warm-up holds requests of this very trace: the numbers are an upper bound, nothing more.")
    return found


def _money(group: Group) -> list[str]:
    priced = [run for run in group.all_runs if run.get("modelled_speedup")]
    found = []
    if priced:
        found.append(f"Speed-ups are modelled from step times, not measured. {step_times(priced[0])}")
    if not group.runs[0].get("modelled_speedup"):
        found.append(
            "The drafters are compared without step times of your engine: how much faster decoding gets is not known "
            "from here, only how many steps it takes. Their CPU time is shown but not charged."
        )
        if group.swept:
            found.append(
                "Where settings are named by what verification costs, a straight line stands for an engine's step "
                "times, and the best of several settings was picked on the very trace that judges them."
            )
    return found


def _recorded(runs: list[Run]) -> list[str]:
    found = []
    for run in runs:
        if run["drafter"] == RECORDED:
            names = ", ".join(run["config"]["recorded"]["drafters"]) or "unnamed"
            missing = " and ".join(run.get("not_recorded", ()))
            found.append(
                f"The drafter 'recorded' ({names}) did not run here: its steps are read from the trace, as an engine "
                "counted them."
                + _charged_twice(run)
                + (f" Not in the record, and so counted at their least: {missing}." if missing else "")
            )
    return found


def _charged_twice(run: Run) -> str:
    """Whether step times hold the recorded drafter's time already."""
    cost, told = run["config"].get("cost", {}), run["config"]["recorded"]
    if cost.get("includes_drafting"):
        return (
            f" No time of it is charged: step times were measured with drafting by {cost['includes_drafting']} in them."
        )
    if told["charged_us"]:
        return (
            f" Its {told['charged_us']:g} µs a step are charged on top of step times, which would count them twice had "
            "they been measured while it drafted."
        )
    return ""


def _record(group: Group) -> list[str]:
    found = []
    first = group.runs[0]
    past = max(run["unjudged_tokens"] / run["drafted_tokens"] for run in group.drafting) if group.drafting else 0.0
    if past:
        found.append(
            f"Up to {percent(past)} of a drafter's tokens lie past the end of a record, where nobody knows what would "
            "have been accepted; they count as drafted, never as accepted."
        )
    if first["unused_tokens"]:
        found.append(f"{first['unused_tokens']:,} recorded tokens stand behind an end or limit and were not replayed.")
    if first["config"]["verify_width"] is None and first["config"]["shape"] == "ideal":
        found.append(
            "Verified tokens are counted without padding: an engine that verifies one width for all requests, or runs "
            "captured sizes, pays for more."
        )
    return found
