"""The only file that imports numba: one decorator, `kernel`, and the choice of where compiled code is kept.

Kernels are compiled on first call and release the GIL. Compiled code is cached on disk where numba finds a
writable folder; elsewhere (a read-only container) numba would raise at import, so `kernel` falls back to
compiling in every process and says so once. A cached kernel is used only while every source that kernels are made of is
unchanged: numba alone compares the kernel's own file, and would go on using a caller whose callee was edited.
"""

import hashlib
import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba

Kernel = Callable[..., Any]

_log = logging.getLogger("ngramspec")
_state = {"cache": True}


def kernel(function: Kernel) -> Kernel:
    """Compile `function` with numba (nopython, no GIL), cached on disk where that is possible."""
    return _compile(function, False)


def inline(function: Kernel) -> Kernel:
    """As `kernel`, for a small function on a hot path: callers always inline it.

    A call that is not inlined passes every array as ten words on the stack, which costs more than the work of a
    function of a few lines.
    """
    return _compile(function, True)


def _compile(function: Kernel, forced: bool) -> Kernel:
    options = {"nogil": True, "error_model": "numpy", "forceinline": forced}
    if _state["cache"]:
        try:
            compiled = numba.njit(cache=True, **options)(function)
            index: Any = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
            if hasattr(index, "_source_stamp"):
                index._source_stamp = sources_digest()
            return compiled  # type: ignore[no-any-return]
        except RuntimeError as error:
            _state["cache"] = False
            _log.warning(
                "compiled kernels cannot be cached (%s); every process will compile them anew: "
                "set NUMBA_CACHE_DIR to a writable folder",
                error,
            )
    return numba.njit(**options)(function)  # type: ignore[no-any-return]


@cache
def sources_digest() -> str:
    """Digest of every source file that may hold kernels or their constants."""
    here = Path(__file__).parent
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted([*here.glob("*.py"), *here.glob("kernels/*.py"), *here.glob("baselines/*.py")]):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
