"""`ngramspec trace scrub`: a trace to hand on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..replay.formats import check_suffix, read, write
from ..replay.scrubbing import scrub as scrub_trace
from .files import writable


def scrub(
    source: Annotated[Path, typer.Argument(metavar="IN", help="JSONL, JSONL.gz, .npz or Parquet.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT", help=".jsonl, .jsonl.gz, .npz or .parquet.")],
    salt: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Same salt, same names; drawn and forgotten without it.")
    ] = None,
) -> None:
    """Drop text, keep token ids, replace the names of sessions and requests."""
    writable(output, reads=[source])
    check_suffix(output)
    trace = scrub_trace(read(source), salt)
    write(trace, output)
    typer.echo(f"{output}: {len(trace)} requests")
    typer.echo("note: token ids are not anonymous: whoever has the tokenizer can read them")
