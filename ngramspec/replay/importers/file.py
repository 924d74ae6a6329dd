"""A file, compressed or not, that tells how far it has been read."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ...errors import TraceError
from .failure import Bad

#: What reading compressed data raises where it breaks off.
DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile)

BOM = b"\xef\xbb\xbf"


class File:
    """One file, gzip-compressed or not; its content says which, not its name.

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
        self.path = path
        #: Bytes of the file read so far, of `size`.
        self.done = 0
        try:
            self.size = path.stat().st_size
            with path.open("rb") as file:
                start = file.read(4)
        except OSError as error:
            raise TraceError(f"{path}: cannot be read: {error.strerror or error}; check the path") from None
        if start == b"\x28\xb5\x2f\xfd":
            raise TraceError(f"{path}: got zstd-compressed data, allowed gzip or none; decompress it first")
        self._packed = start[:2] == b"\x1f\x8b"
        try:
            with self.open() as unpacked:
                #: The first four bytes, decompressed.
                self.start = unpacked.read(4)
        except DAMAGED as error:
            raise TraceError(f"{path}: compressed data is cut off or damaged ({error}); copy the file anew") from None

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """The file from its start, decompressed."""
        with _Counted(self) as file:
            if not self._packed:
                yield io.BufferedReader(file)
                return
            with gzip.GzipFile(fileobj=file) as unpacked:
                yield unpacked  # type: ignore[misc]

    def lines(self) -> Iterator[tuple[int, bytes | Bad]]:
        """Lines with their numbers; a `Bad` at the end where compressed data breaks off."""
        number = 0
        with self.open() as file:
            try:
                for line in file:
                    number += 1
                    yield number, line.removeprefix(BOM) if number == 1 else line
            except DAMAGED:
                yield number + 1, Bad("compressed data is cut off or damaged here; copy the file anew")


class _Counted(io.FileIO):
    """Notes how far it has been read."""

    def __init__(self, file: File) -> None:
        super().__init__(file.path)
        self._file = file

    def readinto(self, buffer: Any) -> int | None:
        n = super().readinto(buffer)
        self._file.done = max(self._file.done, self.tell())
        return n

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(-1 if size is None else size) or b""
        self._file.done = max(self._file.done, self.tell())
        return content
