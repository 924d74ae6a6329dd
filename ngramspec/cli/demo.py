"""`ngramspec demo`: the bundled trace through several drafters, and what the numbers advise."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..drafting.profiles import profile
from ..replay.options import Options
from ..replay.report import advice, further
from ..replay.results import document, write_json
from ..replay.sample import sample
from . import report as reports
from .files import writable
from .output import stdout
from .replay import replay_all, show

DRAFTERS = ["ngramspec", "rolling-hash", "suffix-trie", "none"]

#: Example step times for the report's curve by batch size.
PROFILE = "dense-8b-h100"

NOTES = (
    "The sample was recorded by this project with Gemma 3 270M, a small base model, on a CPU; its token ids are the "
    "model's own. Outputs that a limit cut off sometimes run in circles, easier to draft than a larger model's. The "
    "other half of its sessions trained the start values of ngramspec; this half was not seen before. It "
    "shows how kinds of work differ. For a decision about your own traffic, record your own."
)


def demo(
    context: typer.Context,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the table's numbers to FILE.")] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Replay other budgets too, and write figures to FILE (HTML).")
    ] = None,
) -> None:
    """Replay a recorded trace that comes with the package, compare drafters, and say what the numbers advise."""
    writable(json, report)
    traces = [sample()]
    options = Options(calibration=report is not None)
    runs = replay_all(traces, DRAFTERS, options)
    show(runs)
    stdout().print(advice(runs), soft_wrap=True)
    if json is not None:
        write_json(document(runs), json)
    if report is not None:
        for drafter, other in further(traces, DRAFTERS, options, profile(PROFILE)):
            runs += replay_all(traces, [drafter], other)
        reports.write(runs, traces, report, context, NOTES)
