"""Memory of this process: keep what was freed, so that no drafter pays for new pages twice, and how much there is."""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

#: glibc's names in <malloc.h>.
M_TRIM_THRESHOLD, M_MMAP_MAX, M_ARENA_MAX = -1, -4, -8


def keep_freed() -> bool:
    """Freed memory stays with the process, touched as it is; False where the C library cannot be told.

    A server that has run for a while has no new pages: our buffers are touched, the rivals' freed nodes are used again.
    From the second repeat of a measurement on this is so here, for all.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return all(
        mallopt(what, value) for what, value in ((M_MMAP_MAX, 0), (M_TRIM_THRESHOLD, 2**31 - 1), (M_ARENA_MAX, 1))
    )


def fresh(n_bytes: int) -> NDArray[np.uint8]:
    """Zeroed memory from the system, in huge pages where it has them: what numpy takes for a large array of ours.

    With `keep_freed` it would get small pages that some rival left behind, and be up to twice as slow.
    """
    area = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        area.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(area, np.uint8)


def touch(n_bytes: int = 1 << 28) -> None:
    """Let the heap grow by `n_bytes` that are touched and free; needs `keep_freed`."""
    np.ones(n_bytes, np.uint8)


def resident() -> int:
    """Resident bytes of this process (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
