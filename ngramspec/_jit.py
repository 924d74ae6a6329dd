"""The only file that imports numba: its decorators, two hints to the compiler, and where compiled code is kept.

Kernels are compiled on first call and release the GIL. They own no memory, so numba's reference counting is off: it
took a quarter of a step, and without it a kernel that allocates does not compile. Compiled code is cached on disk
where numba finds a writable folder; elsewhere (a read-only container) numba would raise at import, so `kernel` falls
back to compiling in every process and says so once. A cached kernel is used only while every source that kernels are
made of is unchanged: numba alone compares the kernel's own file, and would go on using a caller whose callee was
edited.
"""

import hashlib
import logging
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

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
    options = {"nogil": True, "error_model": "numpy", "forceinline": forced, "_nrt": False}
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


def prefetch(array: Any, index: int) -> None:
    """Ask for the cache line of `array[index]`, which may lie anywhere; without compilation nothing happens."""


def unsigned(index: int) -> int:
    """The same index, promised not to be negative: numba then leaves out what handles those. For the hottest loops."""
    return index


def highest_bit(bits: int) -> int:
    """Number of the highest bit set in a number that is not negative; -1 in 0."""
    return bits.bit_length() - 1


def _typed_prefetch(_: Any, array: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(array)(context, builder, args[0]).data
        pointer = builder.gep(data, [context.cast(builder, args[1], index, types.intp)])
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, word, word, word])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [builder.bitcast(pointer, cgutils.voidptr_t), word(0), word(3), word(1)])
        return context.get_dummy_value()

    return types.none(array, index), generate


def _typed_unsigned(_: Any, index: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return context.cast(builder, args[0], index, types.uintp)

    return types.uintp(index), generate


def _typed_highest_bit(_: Any, bits: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        zeros = builder.ctlz(context.cast(builder, args[0], bits, types.int64), ir.IntType(1)(0))
        return builder.sub(ir.IntType(64)(63), zeros)

    return types.int64(bits), generate


if not numba.config.DISABLE_JIT:
    prefetch, unsigned = intrinsic(_typed_prefetch), intrinsic(_typed_unsigned)
    highest_bit = intrinsic(_typed_highest_bit)
