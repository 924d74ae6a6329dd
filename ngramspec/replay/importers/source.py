"""A file to import: what kind of file it is, its first record, and all of them with bad ones marked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from ...errors import TraceError
from . import tables
from .failure import Bad
from .file import BOM, DAMAGED, File

Kind = Literal["json", "text", "parquet", "pickle", "npz"]

#: Lines that are looked at for a first record.
N_LOOK = 1000


class Source(File):
    """A file and what is in it; the content decides, not the name.

    Parameters
    ----------
    path : Path
        The file.

    Raises
    ------
    TraceError
        It cannot be read, is compressed in another way than gzip, or is one JSON value that breaks off.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        #: The JSON values of a file that holds one array, or one object on several lines.
        self._items: list[msgspec.Raw] | None = None
        self.kind: Kind = "text"
        if self.start[:2] == b"PK":
            self.kind = "npz"
        elif self.start == b"PAR1":
            self.kind = "parquet"
        elif self.start[:1] == b"\x80":
            self.kind = "pickle"
        else:
            self._tell_json_from_text()
        #: The first record that can be read; None in a pickle or where there is none.
        self.first: Any = None
        if self.kind not in ("pickle", "npz"):
            values = (value for (number, value) in self.records() if number <= N_LOOK)
            self.first = next((value for value in values if not isinstance(value, Bad)), None)

    @property
    def fields(self) -> frozenset[str]:
        """Names of the first record's fields."""
        return frozenset(self.first) if isinstance(self.first, dict) else frozenset()

    def records(self) -> Iterator[tuple[int, Any]]:
        """Records with their numbers, as dicts and lists; a `Bad` for each that cannot be read."""
        if self.kind == "parquet":
            return tables.parquet(self)
        if self.kind == "text":
            return tables.csv_rows(self)
        if self._items is not None:
            return ((i, decoded(bytes(item))) for i, item in enumerate(self._items, 1))
        return ((i, decoded(line)) for i, line in self.lines() if isinstance(line, Bad) or line.strip())

    def _tell_json_from_text(self) -> None:
        head = next((line for _, line in self.lines() if isinstance(line, Bad) or line.strip()), b"")
        if isinstance(head, Bad):
            raise TraceError(head.at(str(self.path)))
        opening = head.lstrip()[:2]
        # Not only "[": lines of a log may start with a time in brackets.
        if opening[:1] == b"{" or opening.rstrip() in (b"[", b"[{", b"[]"):
            self.kind = "json"
            if opening[:1] == b"[" or isinstance(decoded(head), Bad):
                self._read_whole(array=opening[:1] == b"[")

    def _read_whole(self, array: bool) -> None:
        try:
            with self.open() as file:
                content = file.read().removeprefix(BOM)
            self._items = msgspec.json.decode(content, type=list[msgspec.Raw]) if array else [msgspec.Raw(content)]
        except (msgspec.DecodeError, RecursionError, *DAMAGED) as error:
            raise TraceError(f"{self.path}: not whole JSON ({error}); is the file cut off?") from None
        if not array and isinstance(decoded(content), Bad):
            self._items = None  # JSON lines after all, of which the first is bad


def decoded(line: bytes | Bad) -> Any:
    """The JSON value in `line`, or the `Bad` that says why there is none."""
    if isinstance(line, Bad):
        return line
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        whole = line.rstrip().endswith((b"}", b"]"))
        reason = "not JSON" if whole else "not whole JSON, the line is cut off"
        return Bad(f"{reason} ({str(error).split(':')[0].split(' (')[0]})", got=line[:40].decode("utf-8", "replace"))
