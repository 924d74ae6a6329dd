"""`ngramspec trace import`: traces from logs, dumps, responses and conversations of other programs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ..replay.formats import check_suffix, write
from ..replay.importers import IMPORTERS, Imported, load
from .files import writable
from .output import number, progress, stdout

FORMATS = "; ".join(f"{name}: {importer.about}" for name, importer in IMPORTERS.items())


def import_(
    sources: Annotated[list[Path], typer.Argument(metavar="IN...", help="Files, gzip or not; best with token ids.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help=".jsonl, .jsonl.gz, .npz or .parquet.")],
    format: Annotated[
        str | None, typer.Option(metavar="NAME", help=f"Instead of looking into the files. {FORMATS}.")
    ] = None,
    tokenizer: Annotated[
        Path | None, typer.Option(metavar="PATH", help="The model's tokenizer.json or its folder; for files of text.")
    ] = None,
    chat_template: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Jinja; otherwise the one beside the tokenizer.")
    ] = None,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Read pickled dumps of your own servers.")
    ] = False,
) -> None:
    """Read other programs' logs and conversations. Good rows are kept when some are bad."""
    writable(output, reads=[*sources, tokenizer, chat_template])
    check_suffix(output)
    size = sum(os.path.getsize(source) for source in sources if os.path.exists(source))
    with progress() as start:
        advance = start("importing, bytes", size)
        found = load(
            sources,
            format=format,
            tokenizer=tokenizer,
            chat_template=chat_template,
            allow_pickle=allow_pickle,
            on_progress=advance,
        )
    write(found.trace, output)
    report(found, output)


def report(found: Imported, output: Path) -> None:
    """Say what was written, what was left out and why, and what to know about it."""
    trace = found.trace
    kinds = ", ".join(dict.fromkeys(found.formats))
    tokens = f"{number(len(trace.prompt.tokens))} prompt and {number(len(trace.output.tokens))} output tokens"
    lines = [f"{output}: {number(len(trace))} requests from {kinds}, {tokens}"]
    if found.reasons:
        lines.append(f"{number(trace.n_skipped)} left out:")
        lines += [f"  {n} × {reason}" for reason, n in found.reasons.items()]
        lines.append(f"  the first: {trace.skipped[0]}")
    if trace.n_retokenised:
        lines.append(
            f"note: {number(trace.n_retokenised)} requests re-tokenised from text: ids may differ from those served"
        )
    console = stdout()
    for line in lines:
        console.print(line, markup=False)
