"""Files written whole or not at all, and paths that are no paths refused by name."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ..errors import ConfigError

StrPath = str | os.PathLike[str]

#: Characters of a file's name that the one written beside it keeps: both must be short enough for the system.
_KEPT = 50


def as_path(path: StrPath, name: str = "path") -> Path:
    """`path`, as the system can take it; raises `ConfigError` for what is none, a descriptor's number among others."""
    try:
        found = Path(path)
        os.fsencode(found)
    except (TypeError, UnicodeEncodeError):
        found = Path("\0")
    if "\0" in str(found):
        raise ConfigError(f"{name}: got {path!r}, allowed the path of a file, as text or a pathlib.Path")
    return found


@contextmanager
def replacing(path: StrPath, *, private: bool = False) -> Iterator[BinaryIO]:
    """A binary file that takes the place of `path` when the block ends, and leaves no trace when it fails.

    The new file is complete on disk under another name in the same folder (`.NAME.*.tmp`) before it takes the old one's
    place; a crash at any byte leaves the old file, and may leave that other one behind. What is no file stays what it
    is and takes the bytes as they come: a terminal, a pipe, `/dev/null`, and standard output by any name.

    Parameters
    ----------
    path : str or path
        File to write or replace, with the permissions that it had; a symbolic link is followed.
    private : bool
        Only its owner can read it.

    Raises
    ------
    ConfigError
        `path` is no path.
    OSError
        It cannot be written; the old file is still there.
    """
    path = as_path(path)
    stream = _stream(path)
    if stream is not None:
        with open(stream if isinstance(stream, Path) else os.dup(stream), "wb") as straight:
            yield straight
        return
    target = Path(os.path.realpath(path))
    file = _beside(target, private)
    try:
        with file:
            yield file
            file.flush()
            if not private:
                _as_before(target, file.fileno())
            os.fsync(file.fileno())
        os.replace(file.name, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(file.name)
        raise
    # The file is there. Where the folder cannot be synchronised, a crash may still show the old one.
    with suppress(OSError):
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def check_writable(path: StrPath) -> None:
    """Raise as `replacing` would where it could not even begin; leaves no trace."""
    path = as_path(path)
    stream = _stream(path)
    if stream is None:
        file = _beside(Path(os.path.realpath(path)), private=True)
        file.close()
        os.unlink(file.name)
    elif isinstance(stream, Path) and not os.access(stream, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def _stream(path: Path) -> Path | int | None:
    """What is to be written to as it is: `path`, or the descriptor that it names. None: a file, there or not yet."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    for descriptor, text in ((1, sys.stdout), (2, sys.stderr)):
        same = False
        with suppress(OSError):  # closed
            same = os.path.samestat(found, os.fstat(descriptor))
        if same:
            if text is not None and not text.closed:
                text.flush()  # what was printed before stays before
            return descriptor
    if stat.S_ISREG(found.st_mode):
        return None
    if stat.S_ISCHR(found.st_mode) or stat.S_ISFIFO(found.st_mode):
        return path
    kind = errno.EISDIR if stat.S_ISDIR(found.st_mode) else errno.ENXIO
    raise OSError(kind, os.strerror(kind))


def _as_before(target: Path, descriptor: int) -> None:
    """Give a new file the permissions of the one that it replaces."""
    if os.chmod in os.supports_fd:
        with suppress(OSError):  # there is none
            os.chmod(descriptor, stat.S_IMODE(os.stat(target).st_mode) & 0o777)


def _beside(target: Path, private: bool) -> BinaryIO:
    mode = 0o600 if private else 0o666  # less what the user's mask takes away
    name = target.with_name(f".{target.name[:_KEPT]}.{secrets.token_hex(4)}.tmp")
    return open(name, "xb", opener=lambda path, flags: os.open(path, flags, mode))
