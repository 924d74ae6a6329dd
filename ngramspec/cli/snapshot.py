"""`ngramspec snapshot`: what a saved file holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import SnapshotError
from ..replay.results import write_json
from ..snapshot import inspect as facts_of
from .files import writable
from .output import number, stdout, table

File = Annotated[Path, typer.Argument(metavar="FILE", help="Written by snapshot.save, FrozenCorpus.save or a command.")]
Json = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the facts to FILE.")]


def inspect(
    file: File,
    quick: Annotated[
        bool, typer.Option("--quick", help="Believe the first kilobytes, do not verify the checksum of the rest.")
    ] = False,
    json: Json = None,
) -> None:
    """Say what a snapshot or a frozen corpus holds, without loading it."""
    writable(json, reads=[file])
    facts = read(file, verify_checksum=not quick)
    show(facts, "checksum not verified" if quick else "checksum verified")
    if json is not None:
        write_json({"schema": "ngramspec.snapshot-facts/1", "facts": facts}, json)


def read(file: Path, *, verify_checksum: bool = True) -> dict[str, Any]:
    """Facts of a file; raises `SnapshotError` where it cannot be read, too."""
    try:
        return facts_of(file, verify_checksum=verify_checksum)
    except OSError as error:
        raise SnapshotError(f"{file}: cannot be read: {error.strerror}; check the path") from None


def show(facts: dict[str, Any], note: str) -> None:
    """Print facts as a table."""
    rows = [
        ["kind", str(facts["kind"])],
        ["name", str(facts["name"] or "–")],
        ["bytes", f"{number(facts['nbytes'])} ({note})"],
        ["versions", f"format {facts['format_version']}, layout {facts['layout_version']}"],
        ["tokenizer", str(facts["tokenizer"] or "not named")],
        ["vocab_size", number(facts["vocab_size"])],
        ["eos ids", ", ".join(map(str, facts["eos_ids"])) or "none"],
    ]
    for name, sizes in facts["components"].items():
        what = ", ".join(f"{key} {_value(value)}" for key, value in sizes.items())
        rows.append([name, what or "as it was learned"])
    rows += [["documents", number(facts["documents"])]] if "documents" in facts else []
    stdout().print(table(["", ""], rows, left=2))


def _value(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else number(value)
