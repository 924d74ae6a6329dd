"""The runs of one trace, sorted into those to compare and those that only stand on the frontier."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

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
    def drafting(self) -> list[Run]:
        """Compared runs that drafted something."""
        return [run for run in self.runs if run["drafted_tokens"]]

    @property
    def main(self) -> Run | None:
        """The compared run that the report is about: the best one."""
        return best(self.runs)


def groups(runs: Sequence[Run], traces: Sequence[Trace]) -> list[Group]:
    """Sort runs by trace, in their order."""
    known = {trace.name: trace for trace in traces}
    by_trace: dict[str, list[Run]] = {}
    for run in runs:
        by_trace.setdefault(run["trace"], []).append(run)
    return [Group(name, _first_of_each(some), some, known.get(name)) for name, some in by_trace.items()]


def _first_of_each(runs: list[Run]) -> list[Run]:
    found: dict[str, Run] = {}
    for run in runs:
        found.setdefault(run["drafter"], run)
    return list(found.values())


def best(runs: Iterable[Run]) -> Run | None:
    """The run with the highest modelled speed-up where all have one, else with the highest accept length.

    None where no run has a decode step. Of equals, the first.
    """
    judged = [run for run in runs if run["accept_length"]]
    modelled = all(run.get("modelled_speedup") for run in judged)
    key = "modelled_speedup" if modelled else "accept_length"
    return max(judged, key=lambda run: run[key], default=None)


def width(run: Run) -> float:
    """Tokens that the model verifies a request and step, the committed one and padding included."""
    return float(run["verified_tokens"] / run["steps"]) if run["steps"] else 1.0


def settings(run: Run) -> str:
    """The settings that a reader would have to set, in words."""
    config = run["config"]
    text = f"{config['topology']}, max_draft {config['max_draft']}"
    return text + (f", min_prob {config['min_prob']:g}" if config["min_prob"] else "")
