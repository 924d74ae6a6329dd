"""The runs of one trace, sorted into those to compare and those that only stand on the frontier."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import ConfigError
from ..drafters import RECORDED
from ..trace import Trace

Run = dict[str, Any]


@dataclass(frozen=True)
class Group:
    """What a report says about one trace rests on this.

    Attributes
    ----------
    name : str
        Of the trace.
    runs : list of dict
        The first run of each drafter: what is compared.
    all_runs : list of dict
        Those and the further ones, with other budgets.
    trace : Trace, optional
        The trace itself, for examples and digests.
    """

    name: str
    runs: list[Run]
    all_runs: list[Run]
    trace: Trace | None

    @property
    def frontier(self) -> list[Run]:
        """Runs of any budget, with as many requests at a time as the compared ones."""
        at_a_time = self.runs[0]["config"]["concurrency"]
        told = [run for run in self.all_runs if "drafted tokens" not in run.get("not_recorded", ())]
        return [run for run in told if run["config"]["concurrency"] == at_a_time]

    @property
    def swept(self) -> bool:
        """There are budgets to choose from."""
        return len(self.frontier) > len(self.runs)

    @property
    def batches(self) -> dict[tuple[str, str], list[Run]]:
        """Priced runs with one drafter and budget at several batch sizes, ascending."""
        found: dict[tuple[str, str], dict[int, Run]] = {}
        for run in self.all_runs:
            if run.get("modelled_speedup") and run["drafted_tokens"]:
                runs = found.setdefault((run["drafter"], settings(run)), {})
                runs.setdefault(run["config"]["concurrency"], run)
        return {key: [runs[size] for size in sorted(runs)] for key, runs in found.items() if len(runs) > 1}

    @property
    def drafting(self) -> list[Run]:
        """Compared runs that drafted something here."""
        return [run for run in self.runs if run["drafted_tokens"] and run["drafter"] != RECORDED]

    @property
    def main(self) -> Run | None:
        """The compared run that the report is about: the best one."""
        return best(self.runs)


def groups(runs: Sequence[Run], traces: Sequence[Trace]) -> list[Group]:
    """Sort runs by trace, in their order, a recorded drafter last."""
    for name in {run["trace"] for run in runs} - {run["trace"] for run in runs if run["drafter"] != RECORDED}:
        raise ConfigError(f"{name}: the only drafter is 'recorded', a report compares: replay another beside it")
    known = {trace.name: trace for trace in traces}
    by_trace: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run["drafter"] == RECORDED):
        by_trace.setdefault(run["trace"], []).append(run)
    return [Group(name, _first_of_each(some), some, known.get(name)) for name, some in by_trace.items()]


def _first_of_each(runs: list[Run]) -> list[Run]:
    found: dict[str, Run] = {}
    for run in runs:
        found.setdefault(run["drafter"], run)
    return list(found.values())


def best(runs: Iterable[Run]) -> Run | None:
    """The run with the highest modelled speed-up where all have one, else with the highest accept length.

    None where no run has a decode step. Of equals, the first. A recorded drafter is compared with, not advised.
    """
    judged = [run for run in runs if run["accept_length"] and run["drafter"] != RECORDED]
    modelled = all(run.get("modelled_speedup") for run in judged)
    key = "modelled_speedup" if modelled else "accept_length"
    return max(judged, key=lambda run: run[key], default=None)


def width(run: Run) -> float:
    """Tokens that the model verifies a request and step, the committed one and padding included."""
    return float(run["verified_tokens"] / run["steps"]) if run["steps"] else 1.0


def settings(run: Run) -> str:
    """The settings that a reader would have to set, in words."""
    config, budget = run["config"], run["config"].get("budget") or {}
    parts = [config["topology"], f"max_draft {config['max_draft']}"]
    if config["min_prob"]:
        parts.append(f"min_prob {config['min_prob']:g}")
    if budget.get("mode") == "cost":
        parts.append("sized by cost")
    elif budget.get("mode") == "threshold":
        parts.append(f"sized by probability {budget['min_prob']:g}")
    elif budget:
        parts.append(f"at most {budget['max_draft']}")
    if config["shape"] != "ideal":
        parts.append(f"as {config['shape']} verifies")
    return ", ".join(parts)


def sized_by_cost(run: Run) -> bool:
    """Drafts were sized by step times, so that the run says nothing about other step times."""
    return (run["config"].get("budget") or {}).get("mode") == "cost"
