"""Reports from commands: what was typed, and where the page went."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from ..errors import ConfigError
from ..replay.report import write_report
from ..replay.trace import Trace
from .output import stdout


def checked(report: Path | None, frontier: bool, tokenizer: Path | None) -> None:
    """Refuse what only a report would show where none is asked for."""
    for name, given in (("--frontier", frontier), ("--tokenizer", tokenizer is not None)):
        if given and report is None:
            raise ConfigError(f"{name} has no effect without --report: leave it out")


def write(
    runs: list[dict[str, Any]],
    traces: list[Trace],
    path: Path,
    context: typer.Context,
    notes: str | None = None,
    decode: Callable[[list[int]], str] | None = None,
) -> None:
    """Write the page and say where it is.

    Parameters
    ----------
    runs : list of dict
        The compared ones first.
    traces : list of Trace
        What was replayed.
    path : Path
        The HTML file.
    context : typer.Context
        Of the command.
    notes : str, optional
        Where the recordings come from.
    decode : callable, optional
        Turns token ids into text; ids are shown without it.
    """
    typed = shlex.join(["ngramspec", *(context.find_root().obj or [])])
    write_report(
        runs,
        path,
        traces=traces,
        command=typed,
        notes={trace.name: notes for trace in traces} if notes else None,
        decode=decode,
    )
    stdout().print(f"report: {path}", markup=False, soft_wrap=True)
