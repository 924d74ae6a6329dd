"""`ngramspec trace split`: one part to tune on, one to judge by."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import ConfigError
from ..replay.formats import check_suffix, read, write
from ..replay.splitting import BY
from ..replay.splitting import split as split_trace
from .files import writable


def split(
    source: Annotated[Path, typer.Argument(metavar="IN", help="JSONL, JSONL.gz, .npz or Parquet.")],
    output: Annotated[tuple[Path, Path], typer.Option("--output", "-o", metavar="A B", help="Where the parts go.")],
    fraction: Annotated[float, typer.Option(metavar="F", help="Share of the requests in the first part.")] = 0.5,
    by: Annotated[
        str, typer.Option(metavar="|".join(BY), help="Whole sessions, drawn; or the earliest arrivals first.")
    ] = "session",
    seed: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="Seed of the draw by session; 0 without it.")
    ] = None,
) -> None:
    """Divide a trace in two, so that settings are judged on requests they were not tuned on."""
    if by == "time" and seed is not None:
        raise ConfigError("--seed: has no effect by time; leave it out")
    writable(*output, reads=[source])
    for path in output:
        check_suffix(path)
    parts = split_trace(read(source), fraction, by, seed or 0)
    for part, path in zip(parts, output, strict=True):
        write(part, path)
        typer.echo(f"{path}: {len(part)} requests")
