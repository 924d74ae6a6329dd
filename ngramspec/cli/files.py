"""Files that a command is to write: refused before the work, which may take hours, where they would be after it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ..errors import TraceError
from ..replay.files import check_writable


def writable(*outputs: Path | None, reads: Iterable[Path | None] = ()) -> None:
    """Raise `TraceError` unless these can be written, each once, and none in the place of what is read.

    Parameters
    ----------
    *outputs : Path, optional
        Where results go; None where nobody asked for them.
    reads : iterable of Path, optional
        Files that the command reads.
    """
    given, read = [path for path in outputs if path is not None], [path for path in reads if path is not None]
    for i, path in enumerate(given):
        check_writable(path)
        if any(_same(path, source) for source in read):
            raise TraceError(f"{path}: is a file that is read; choose another name")
        if any(_same(path, other) for other in given[:i]):
            raise TraceError(f"{path}: is asked for twice; choose another name for one of them")


def _same(one: Path, other: Path) -> bool:
    """Whether both are one file, there or not yet; a device or a pipe may be written to as often as one likes."""
    if os.path.exists(one) and os.path.exists(other):
        return one.is_file() and one.samefile(other)
    return os.path.realpath(one) == os.path.realpath(other)
