"""Files written whole or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ..errors import TraceError


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[Any]]:
    """A binary file that takes the place of `path` when the block ends, and leaves no trace when it fails.

    Raises
    ------
    TraceError
        The folder cannot be written to.
    """
    target = Path(path)
    beside = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
    try:
        handle = beside.open("xb")
    except OSError as error:
        raise TraceError(f"{target}: cannot be written: {error.strerror}; choose a folder that can") from None
    try:
        with handle:
            yield handle
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
