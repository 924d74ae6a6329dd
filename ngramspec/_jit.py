"""The only file that imports numba: one decorator, `kernel`, and the choice of where compiled code is kept.

Kernels are compiled on first call and release the GIL. Compiled code is cached on disk where numba finds a
writable folder; elsewhere (a read-only container) numba would raise at import, so `kernel` falls back to
compiling in every process and says so once.
"""

import logging
from collections.abc import Callable
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])

_log = logging.getLogger("ngramspec")
_state = {"cache": True}


def kernel(function: F) -> F:
    """Compile `function` with numba (nopython, no GIL), cached on disk where that is possible."""
    if _state["cache"]:
        try:
            return numba.njit(nogil=True, cache=True, error_model="numpy")(function)  # type: ignore[no-any-return]
        except RuntimeError as error:
            _state["cache"] = False
            _log.warning(
                "compiled kernels cannot be cached (%s); every process will compile them anew: "
                "set NUMBA_CACHE_DIR to a writable folder",
                error,
            )
    return numba.njit(nogil=True, error_model="numpy")(function)  # type: ignore[no-any-return]


def inline(function: F) -> F:
    """A small kernel called from other kernels only: inlined by LLVM, not cached by itself."""
    return numba.njit(nogil=True, error_model="numpy")(function)  # type: ignore[no-any-return]
