"""What an importer is: how it knows its files, and how one record of them becomes rows of a trace."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import msgspec

from ...errors import TraceError
from ..rows import Row
from .encoder import Encoder
from .failure import Bad
from .source import Source

T = TypeVar("T")

#: Time stamps above this are read as milliseconds: as seconds they would lie past the year 5000.
MILLISECONDS_FROM = 1e11
#: Time stamps from here are no dates in either unit.
LATEST = 1e14

_PATH = re.compile(r"at `\$\.?([^`]*)`")
_MISSING = re.compile(r"missing required field `(\w+)`")
_KINDS = {
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "array": "a list",
    "object": "an object",
    "bool": "true or false",
}


@dataclass(frozen=True)
class Record:
    """One line, item or table row of a file.

    Attributes
    ----------
    file : Path
        Where it stands.
    number : int
        Its place in the file, from 1.
    value : object
        What it holds; a `Bad` when it could not even be read.
    """

    file: Path
    number: int
    value: Any

    @property
    def key(self) -> str:
        """A name for what has none: unique among the files of one import."""
        return f"{self.file.name}:{self.number}"

    @property
    def where(self) -> str:
        """File and row, as messages name them."""
        return f"{self.file}, row {self.number}"


@dataclass(frozen=True)
class Context:
    """What the caller allows and provides.

    Attributes
    ----------
    encoder : Encoder
        Turns text into token ids, if a tokenizer was given.
    allow_pickle : bool
        Pickled dumps may be read.
    """

    encoder: Encoder
    allow_pickle: bool = False


class Importer:
    """One format; an instance lives for one import, so that a format may join several files.

    A new one is a file with a subclass, and a line in `registry`.
    """

    #: What `--format` calls it.
    name: ClassVar[str]
    #: What it reads, in a few words.
    about: ClassVar[str]

    def matches(self, source: Source) -> bool:
        """Whether a file, seen from its first record, has this format."""
        raise NotImplementedError

    def records(self, source: Source, context: Context) -> Iterator[Record]:
        """Every record of a file. Here: the objects of JSON lines or a JSON array, the rows of a table."""
        for number, value in source.records():
            yield Record(source.path, number, value)

    def rows(self, record: Record, context: Context) -> Iterable[Row | Bad]:
        """The requests that a record holds. Raises `Bad` where it holds none, `TraceError` to refuse all files."""
        raise NotImplementedError

    def rest(self, context: Context) -> Iterable[tuple[Record, Row | Bad]]:
        """Rows that could only be made after the last file, each with the record it came from."""
        return ()


def parsed(value: Any, schema: type[T], at: str = "") -> T:
    """`value` as `schema`, found under the field `at` of its record; raises `Bad` that names the field otherwise."""
    try:
        return msgspec.convert(value, schema)
    except msgspec.ValidationError as error:
        text = str(error)
        path = found[1] if (found := _PATH.search(text)) else ""
        if missing := _MISSING.search(text):
            raise Bad("is missing", field=_joined(at, path, missing[1])) from None
        for step in re.findall(r"[^.\[\]]+", path):
            value = value[int(step) if isinstance(value, list | tuple) else step]
        raise Bad(_need(text), field=_joined(at, path), got=value) from None


def _need(text: str) -> str:
    """What is allowed, from msgspec's words: "Expected `int | null` >= 0, got `str` - at `$.x`"."""
    expected = text.partition(" - at ")[0].partition(", got")[0]
    kinds = re.sub(r"`([^`]*)`", lambda found: " or ".join(_KINDS.get(k, k) for k in found[1].split(" | ")), expected)
    return kinds.replace("Expected", "allowed")


def _joined(*parts: str) -> str:
    return ".".join(part for part in parts if part)


def seconds(value: Any, field: str) -> float | None:
    """A time of arrival in seconds, from a number, a date or an ISO 8601 text (UTC unless it says otherwise)."""
    if value is None or value == "":
        return None
    if isinstance(value, str):
        try:
            value = float(value) if re.fullmatch(r"[\d.]+", value) else datetime.fromisoformat(value)
        except ValueError:
            raise Bad("allowed seconds or an ISO 8601 time", field=field, got=value) from None
    if isinstance(value, datetime):
        value = (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp()
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < LATEST:
        raise Bad("allowed seconds or an ISO 8601 time", field=field, got=value)
    return value / 1000 if value > MILLISECONDS_FROM else float(value)


def name_of(value: Any, field: str) -> str | None:
    """An id, session or category as text; raises `Bad` for anything but text, a number or nothing."""
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Bad("allowed a string or a number", field=field, got=value)
    return str(value)


def refuse(record: Record, why: str) -> TraceError:
    """The error that refuses a whole file."""
    return TraceError(f"{record.where}: {why}")
