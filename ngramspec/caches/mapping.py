"""Files in memory without copying them: pages of the file itself, made private one by one as they are written to.

The file never changes. Pages that are only read stay the system's, shared by every process that maps the file, and
count as cache, not as memory of the process; a page that is written to becomes the process's own. At most that is the
whole buffer, the same bytes as without mapping.

What a mapped page holds can change after it was checked if somebody writes into the file, and a file that is cut short
ends the process at the next look. Replacing a file, as saving does, harms nothing. So only a file that nobody else may
write to is mapped; whoever may write to it is the process's own user, who could do anything else to it as well.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import stat
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..errors import SnapshotError

_FIXED = 0x10  # MAP_FIXED of Linux, macOS and the BSDs


def private_pages(file: BinaryIO) -> NDArray[np.uint8]:
    """The whole file, uint8[size], writable but never written back.

    Parameters
    ----------
    file : binary file
        Open for reading, not empty.

    Raises
    ------
    SnapshotError
        Others may write to it, or this system cannot map it.
    """
    if not hasattr(mmap, "MAP_ANONYMOUS") or ctypes.sizeof(ctypes.c_long) < 8:
        raise SnapshotError("this system cannot map files privately: load it instead, which copies")
    facts = os.fstat(file.fileno())
    if facts.st_uid not in (os.geteuid(), 0) or facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise SnapshotError(
            f"others may write to it (owner {facts.st_uid}, mode {stat.S_IMODE(facts.st_mode):o}) and could change it "
            "after it was checked, must be this user's or root's and writable by nobody else: "
            "chmod go-w it, or load it instead, which copies"
        )
    pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    return np.frombuffer(pages, np.uint8)


def within_zeros(nbytes: int, start: int, file: BinaryIO, first: int) -> NDArray[np.uint8]:
    """A buffer of zeros with a file's private pages in it; nothing but edges of pages is copied.

    Parameters
    ----------
    nbytes : int
        Of the buffer.
    start : int
        Where in the buffer the file's bytes go, a multiple of 64.
    file : binary file
        One that `private_pages` agrees to.
    first : int
        Byte of the file that comes first, a multiple of 64; all that follow go too.

    Returns
    -------
    uint8[nbytes]
        Aligned to 64. It begins in the middle of a page, so that `start` and `first` lie alike within theirs.

    Raises
    ------
    OSError
        The system refuses.
    """
    page, end, descriptor = mmap.PAGESIZE, os.fstat(file.fileno()).st_size, file.fileno()
    shift = (first - start) % page
    whole = mmap.mmap(-1, shift + nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    buffer = np.frombuffer(whole, np.uint8)[shift:]  # keeps `whole`, which in the end unmaps all of it
    low, high = -(-first // page) * page, end // page * page
    if low >= high:
        low = high = end
    for a, b in ((first, low), (high, end)):
        buffer[start + a - first : start + b - first] = np.frombuffer(os.pread(descriptor, b - a, a), np.uint8)
    if low < high:
        _map_at(buffer.ctypes.data + start + low - first, high - low, descriptor, low)
    return buffer


def _map_at(where: int, nbytes: int, descriptor: int, first: int) -> None:
    """Put pages of the file, private ones, in the place of those at an address of ours; Python's mmap cannot."""
    system = ctypes.CDLL(None, use_errno=True).mmap
    system.restype = ctypes.c_void_p
    system.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *3 * [ctypes.c_int], ctypes.c_long]
    flags = mmap.MAP_PRIVATE | _FIXED
    got = system(where, nbytes, mmap.PROT_READ | mmap.PROT_WRITE, flags, descriptor, first)
    if got != where:
        error = ctypes.get_errno()
        raise OSError(error, f"cannot map {nbytes} bytes: {os.strerror(error)}")
