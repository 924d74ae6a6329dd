"""What commands print: tables on stdout, progress on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from ..drafting.cost_file import parse

#: Seconds between two drawings of the progress bar. It is drawn by the replay loop, between timed sections: a thread
#: of its own would take the interpreter away from what is being timed.
REFRESH = 0.2

#: Share of the concurrency asked for below which a reader has to know how many requests really ran at a time.
FULL = 0.8


def stdout() -> Console:
    """Console for results; a file or a pipe gets lines as long as they are."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=1000)


@contextmanager
def progress() -> Iterator[Callable[[str, int], Callable[[int], None]]]:
    """A progress bar: call what it yields with a label and a total, and what that returns with the number done."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        auto_refresh=False,
        transient=True,
        disable=not sys.stderr.isatty(),  # a file of messages would get an empty line for every bar
    )

    def start(label: str, total: int) -> Callable[[int], None]:
        task = bar.add_task(label, total=total)
        drawn = 0.0

        def advance(done: int) -> None:
            nonlocal drawn
            now = time.monotonic()
            if done == total or now - drawn >= REFRESH:
                drawn = now
                bar.update(task, completed=done, refresh=True)

        return advance

    with bar:
        yield start


def table(headers: list[str], rows: list[list[str]], left: int = 1) -> Table:
    """A table.

    Parameters
    ----------
    headers : list of str
        Column heads.
    rows : list of list of str
        Cells.
    left : int
        So many first columns are text, aligned left; the others are numbers.
    """
    result = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), show_header=any(headers))
    for i, header in enumerate(headers):
        result.add_column(header, justify="left" if i < left else "right", overflow="fold", no_wrap=i == 0)
    for row in rows:
        result.add_row(*row)
    return result


def number(value: float | None, digits: int = 2) -> str:
    """A number for a cell; a dash for None."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"


def percent(value: float | None) -> str:
    """A share for a cell; a dash for None."""
    return "–" if value is None else f"{100 * value:.1f} %"


HEADERS = [
    "drafter",
    "accept\nlength",
    "95 %",
    "drafted\na step",
    "accept\nrate",
    "steps with\na draft",
    "draft\nµs/step",
    "all\nµs/token",
]

PRICED_HEADERS = ["verified\na step", "speed-up,\nmodelled", "95 %"]


def print_runs(console: Console, runs: list[dict[str, Any]]) -> None:
    """Print one table a trace, with the main numbers of each drafter."""
    by_trace: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        by_trace.setdefault(run["trace"], []).append(run)
    for name, group in by_trace.items():
        priced = "modelled_speedup" in group[0]
        kinds = "; ".join(dict.fromkeys(_kind(run) for run in group))
        console.print(f"{name}: {_size(group[0])} ({kinds})", markup=False, style="bold")
        cells = [_cells(run) + (_priced_cells(run) if priced else []) for run in group]
        console.print(table(HEADERS + (PRICED_HEADERS if priced else []), cells))


def _kind(run: dict[str, Any]) -> str:
    """How the numbers came about; what was read off the trace is told by drafter."""
    return f"{run['drafter']}: read" if run["kind"] == "read" else str(run["kind"])


def _size(run: dict[str, Any]) -> str:
    return f"{run['requests']:,} requests, {run['prompt_tokens']:,} prompt and {run['output_tokens']:,} output tokens"


def _cells(run: dict[str, Any]) -> list[str]:
    interval = run["accept_length_interval_95"]
    return [
        run["drafter"] + (" (upper bound)" if run.get("upper_bound") else ""),
        number(run["accept_length"], 3),
        "–" if interval is None else f"{interval[0]:.2f}–{interval[1]:.2f}",
        number(run["drafted_tokens"] / run["steps"] if run["steps"] else None),
        percent(run["accept_rate"]),
        percent(run["draft_coverage"]),
        number(run["draft_us_per_step"]),
        number(run["total_us_per_emitted_token"]),
    ]


def _priced_cells(run: dict[str, Any]) -> list[str]:
    interval = run["modelled_speedup_interval_95"]
    return [
        number(run["verified_tokens"] / run["steps"] if run["steps"] else None),
        number(run["modelled_speedup"]),
        "–" if interval is None else f"{interval[0]:.2f}–{interval[1]:.2f}",
    ]


def caveats(runs: list[dict[str, Any]]) -> list[str]:
    """What a reader of these runs has to know, each once."""
    found: dict[str, None] = {}
    for run in runs:
        name = run["trace"]
        if run["steps"] == 0:
            found[f"{name}: no decode step to replay, every output is shorter than two tokens"] = None
        if run["unused_tokens"]:
            found[f"{name}: {run['unused_tokens']:,} recorded tokens stand behind an EOS and were not replayed"] = None
        if run["skipped_rows"]:
            found[f"{name}: {run['skipped_rows']} bad rows were left out"] = None
        if run.get("retokenised_rows"):
            found[f"{name}: {run['retokenised_rows']} requests re-tokenised from text, which usually flatters"] = None
        if run.get("not_recorded"):
            found[f"{name}, recorded: no {' and no '.join(run['not_recorded'])} in the record, counted as least"] = None
        if run["config"]["warm_up"]:
            found[f"{name}: warmed up with {', '.join(run['config']['warm_up'])}"] = None
        if "modelled" in run:
            cost = run["config"]["cost"]
            found[f"speed-ups are {run['modelled']['label']}; step times {cost['name']}: {cost['kind']}"] = None
            if caveat := parse(cost).caveat:
                found[f"step times {cost['name']}: {caveat}"] = None
            at_a_time, batch = run["config"]["concurrency"], run["modelled"]["batch_mean"]
            if "serving" not in run and batch is not None and batch < FULL * at_a_time:
                found[
                    f"{name}, {run['drafter']}: {batch:.1f} requests ran at a time on average, not {at_a_time}: the "
                    "trace is short, or ends in a few long requests, and its speed-up is that of small batches"
                ] = None
            found |= dict.fromkeys(_charged_twice(run))
        if "serving" not in run and run["config"]["concurrency"] > 1:
            found[f"{run['config']['concurrency']} requests at a time, in file order, not at their recorded times"] = (
                None
            )
    return list(found)


def _charged_twice(run: dict[str, Any]) -> list[str]:
    """Where step times hold some drafter's own time, or may hold it beside what is charged."""
    cost, recorded = run["config"]["cost"], run["config"].get("recorded", {})
    held, told, name = cost.get("includes_drafting"), recorded.get("draft_us"), f"{run['trace']}, {run['drafter']}"
    if recorded and held:
        what = "no time of drafting is" if told is None else f"the {told:g} µs of drafting recorded are not"
        return [f"{name}: {what} charged, step times {cost['name']} were measured with drafting by {held} in them"]
    if recorded.get("charged_us"):
        return [
            f"{name}: the {told:g} µs of drafting recorded are charged on top of step times {cost['name']}; if those "
            "were measured while it drafted, they count twice: name it in the file's includes_drafting"
        ]
    if held and run["drafted_tokens"]:
        return [f"{name}: step times {cost['name']} hold the time of drafting by {held}, in the place of its own"]
    return []
