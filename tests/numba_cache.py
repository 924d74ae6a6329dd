"""A folder for compiled kernels named by a digest of the sources, so that stale machine code is never run.

numba checks only the file that a kernel stands in; a kernel that calls an edited one in another file would be
loaded as it was. `python -m tests.numba_cache` prints the folder for use outside the tests.
"""

import hashlib
import importlib.metadata
import os
import shutil
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHES = ROOT / ".numba_cache"

#: Folders of other digests used within this time stay: a run on those sources may still be going on.
KEEP_SECONDS = 3600


def digest(root: Path = ROOT) -> str:
    """Name the present sources of the package under `root`, together with the compiler's version."""
    state = hashlib.blake2b(importlib.metadata.version("numba").encode(), digest_size=8)
    for source in sorted((root / "ngramspec").rglob("*.py")):
        content = source.read_bytes()
        state.update(f"\0{source.relative_to(root)}\0{len(content)}\0".encode())
        state.update(content)
    return state.hexdigest()


def folder(caches: Path = CACHES, root: Path = ROOT) -> Path:
    """Make the folder for the present sources, drop those that nobody has used for a while, and return it."""
    current = caches / digest(root)
    current.mkdir(parents=True, exist_ok=True)
    os.utime(current)
    for other in caches.iterdir():
        if other != current and time.time() - other.stat().st_mtime > KEEP_SECONDS:
            shutil.rmtree(other, ignore_errors=True)
    return current


if __name__ == "__main__":
    print(folder())
