"""Results written whole or not at all; what stops it is told in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from ..caches import files
from ..errors import TraceError


@contextmanager
def replacing(path: files.StrPath) -> Iterator[IO[Any]]:
    """A binary file that takes the place of `path` when the block ends, as in `ngramspec.caches.files`.

    Raises
    ------
    TraceError
        It cannot be written; what was there still is.
    """
    with told(path), files.replacing(path) as file:
        yield file


def check_writable(path: files.StrPath) -> None:
    """Raise `TraceError` where `replacing` could not even begin; leaves no trace."""
    with told(path):
        files.check_writable(path)


@contextmanager
def told(path: files.StrPath) -> Iterator[None]:
    """Raise `TraceError` for what goes wrong while `path` is written; a pipe whose reader has gone is no fault."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        why = error.strerror or error
        raise TraceError(f"{path}: cannot be written: {why}; choose another name or folder") from None
