"""A file to import: what kind of file it is, its first record, and all of them with bad ones marked."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal

import msgspec

from ...errors import TraceError
from . import tables
from .failure import Bad

Kind = Literal["json", "text", "parquet", "pickle", "npz"]

#: Lines that are looked at for a first record.
N_LOOK = 1000

_BOM = b"\xef\xbb\xbf"


class Source:
    """One file, gzip-compressed or not; its content says what it is, not its name.

    Parameters
    ----------
    path : Path
        The file.

    Raises
    ------
    TraceError
        It cannot be read, or is compressed in another way.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.name = path, path.name
        #: Bytes of the file read so far, of `size`.
        self.done = 0
        #: The JSON values of a file that holds one array, or one object on several lines.
        self._items: list[msgspec.Raw] | None = None
        #: The first record that can be read; None in a pickle or where there is none.
        self.first: Any = None
        try:
            self.size = path.stat().st_size
            with path.open("rb") as file:
                start = file.read(4)
        except OSError as error:
            raise TraceError(f"{path}: cannot be read: {error.strerror or error}") from None
        if start == b"\x28\xb5\x2f\xfd":
            raise TraceError(f"{path}: got zstd-compressed data, allowed gzip or none; decompress it first")
        self._packed = start[:2] == b"\x1f\x8b"
        with self.open() as file:
            start = file.read(4)
        self.kind: Kind = "text"
        if start[:2] == b"PK":
            self.kind = "npz"
        elif start == b"PAR1":
            self.kind = "parquet"
            self.first = next((value for _, value in tables.parquet(self) if not isinstance(value, Bad)), None)
        elif start[:1] == b"\x80":
            self.kind = "pickle"
        else:
            self._look_at_text()

    @property
    def fields(self) -> frozenset[str]:
        """Names of the first record's fields."""
        return frozenset(self.first) if isinstance(self.first, dict) else frozenset()

    def open(self) -> IO[bytes]:
        """The file from its start, decompressed."""
        file = _Counted(self)
        return gzip.GzipFile(fileobj=file) if self._packed else io.BufferedReader(file)  # type: ignore[return-value]

    def lines(self) -> Iterator[tuple[int, bytes | Bad]]:
        """Lines with their numbers; a `Bad` at the end where compressed data breaks off."""
        number = 0
        with self.open() as file:
            try:
                for line in file:
                    number += 1
                    yield number, line.removeprefix(_BOM) if number == 1 else line
            except (EOFError, zlib.error, gzip.BadGzipFile):
                yield number + 1, Bad("compressed data is cut off or damaged here; copy the file anew")

    def records(self) -> Iterator[tuple[int, Any]]:
        """Records with their numbers, as dicts and lists; a `Bad` for each that cannot be read."""
        if self.kind == "parquet":
            return tables.parquet(self)
        if self.kind == "text":
            return tables.csv_rows(self)
        if self._items is not None:
            return ((i, decoded(bytes(item))) for i, item in enumerate(self._items, 1))
        return ((i, decoded(line)) for i, line in self.lines() if isinstance(line, Bad) or line.strip())

    def _look_at_text(self) -> None:
        """Tell JSON from other text, and find the first record."""
        head = next((line for _, line in self.lines() if isinstance(line, Bad) or line.strip()), b"")
        if isinstance(head, Bad):
            raise TraceError(head.at(str(self.path)))
        opening = head.lstrip()[:2]
        # Not only "[": lines of a log may start with a time in brackets.
        if opening[:1] == b"{" or opening.rstrip() in (b"[", b"[{", b"[]"):
            self.kind = "json"
            if opening[:1] == b"[" or isinstance(decoded(head), Bad):
                self._read_whole(array=opening[:1] == b"[")
            values = (value for (number, value) in self.records() if number <= N_LOOK)
            self.first = next((value for value in values if not isinstance(value, Bad)), None)
        else:
            self.first = next((value for _, value in tables.csv_rows(self) if not isinstance(value, Bad)), None)

    def _read_whole(self, array: bool) -> None:
        try:
            with self.open() as file:
                content = file.read().removeprefix(_BOM)
            self._items = msgspec.json.decode(content, type=list[msgspec.Raw]) if array else [msgspec.Raw(content)]
        except (msgspec.DecodeError, EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise TraceError(f"{self.path}: not whole JSON ({error}); is the file cut off?") from None
        if not array and isinstance(decoded(content), Bad):
            self._items = None  # JSON lines after all, of which the first is bad


class _Counted(io.FileIO):
    """A file that tells its source how far it has been read."""

    def __init__(self, source: Source) -> None:
        super().__init__(source.path)
        self._source = source

    def readinto(self, buffer: Any) -> int | None:
        n = super().readinto(buffer)
        self._source.done = max(self._source.done, self.tell())
        return n

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(-1 if size is None else size) or b""
        self._source.done = max(self._source.done, self.tell())
        return content


def decoded(line: bytes | Bad) -> Any:
    """The JSON value in `line`, or the `Bad` that says why there is none."""
    if isinstance(line, Bad):
        return line
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        whole = line.rstrip().endswith((b"}", b"]"))
        reason = "not JSON" if whole else "not whole JSON, the line is cut off"
        return Bad(f"{reason} ({str(error).split(':')[0].split(' (')[0]})", got=line[:40].decode("utf-8", "replace"))
