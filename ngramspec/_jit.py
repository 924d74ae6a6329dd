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
    return _compile(function, False)


def inline(function: F) -> F:
    """As `kernel`, for a small function on a hot path: callers always inline it.

    A call that is not inlined passes every array as ten words on the stack, which costs more than the work of a
    function of a few lines.
    """
    return _compile(function, True)


def _compile(function: F, forced: bool) -> F:
    options = {"nogil": True, "error_model": "numpy", "forceinline": forced}
    if _state["cache"]:
        try:
            return numba.njit(cache=True, **options)(function)  # type: ignore[no-any-return]
        except RuntimeError as error:
            _state["cache"] = False
            _log.warning(
                "compiled kernels cannot be cached (%s); every process will compile them anew: "
                "set NUMBA_CACHE_DIR to a writable folder",
                error,
            )
    return numba.njit(**options)(function)  # type: ignore[no-any-return]
