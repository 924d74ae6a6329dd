"""The compiled core as a ctypes library: structs, signatures, statuses."""

from __future__ import annotations

import ctypes
import os
from ctypes import Structure, c_char_p, c_int32, c_int64, c_uint32, c_uint64, c_void_p
from functools import cache
from typing import Any

from ..arena import MAX_EOS, MAX_ORDERS
from ..errors import CapacityError, ConfigError, NativeError, SnapshotError
from .build import target

ABI_VERSION = 1

#: `ngs_status`, by value.
BAD_ARGUMENT, BAD_CONFIG, BAD_BUFFER, OTHER_STATE, BAD_SCRATCH, BAD_SLOT, FULL, TOO_WIDE = range(-1, -9, -1)
UNSUPPORTED = -15

#: Flags of `ngs_attach` and `ngs_draft_batch`.
TREE, CHAIN, UNCOUNTED, TRUSTED = 0, 1, 2, 4


class Config(Structure):
    """`ngs_config`."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("kind", c_int32),
        ("digest", c_int64),
        ("capacity_tokens", c_int64),
        ("vocab_size", c_int32),
        ("n_eos", c_int32),
        ("eos_ids", c_int32 * MAX_EOS),
        ("max_requests", c_int32),
        ("max_sessions", c_int32),
        ("n_orders", c_int32),
        ("orders", c_int32 * MAX_ORDERS),
        ("max_hops", c_int32),
        ("max_match", c_int32),
        ("shared_percent", c_int32),
        ("counted_rows", c_int32),
        ("deferred", c_int32),
        ("depth", c_int32),
        ("max_followers", c_int32),
        ("max_nodes", c_int32),
    ]


class Cache(Structure):
    """`ngs_cache`, to be read by nobody."""

    _fields_ = [("numbers", c_int32 * 5), ("pointers", c_void_p * 11)]


class Drafts(Structure):
    """`ngs_drafts`."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("width", c_int32),
        ("tokens", c_void_p),
        ("parents", c_void_p),
        ("path_q30", c_void_p),
        ("sources", c_void_p),
        ("n_draft", c_void_p),
        ("match_length", c_void_p),
        ("reason", c_void_p),
    ]

    def from_row(self, first: int) -> Drafts:
        """The same arrays from row `first` on."""
        cells, rows = first * self.width, 4 * first
        return Drafts(
            self.struct_size, self.width, self.tokens + 4 * cells, self.parents + 4 * cells, self.path_q30 + 4 * cells,
            self.sources + cells, self.n_draft + rows, self.match_length + rows, self.reason + rows,
        )  # fmt: skip


#: Addresses as integers: pointers of a type cost 0.1 µs more each.
_CACHE = _CONFIG = _DRAFTS = _ARRAY = c_void_p

#: Result and arguments of every function that Python calls.
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "ngs_abi_version": (c_int32,),
    "ngs_strerror": (c_char_p, c_int32),
    "ngs_bytes": (c_int64, _CONFIG),
    "ngs_scratch_bytes": (c_int64, _CONFIG, c_int32),
    "ngs_attach": (c_int32, _CACHE, _CONFIG, _ARRAY, c_int64, _ARRAY, c_int64, c_int32),
    "ngs_set_scratch": (c_int32, _CACHE, _ARRAY, c_int64),
    "ngs_count_drafts": (c_int32, _CACHE, _ARRAY, c_int32),
    "ngs_check": (c_int32, _CACHE),
    "ngs_take_row": (c_int32, _CACHE),
    "ngs_common_prefix": (c_int64, _CACHE, c_int32, _ARRAY, c_int64),
    "ngs_begin_row": (c_int32, _CACHE, c_int32, c_int64, c_int64, c_int32, c_uint64),
    "ngs_ingest": (c_int32, _CACHE, c_int32, _ARRAY, c_int64),
    "ngs_draft_batch": (c_int32, _CACHE, _ARRAY, c_int32, _ARRAY, _ARRAY, c_int32, c_int32, _DRAFTS),
    "ngs_accept_batch": (c_int32, _CACHE, _ARRAY, c_int32, _ARRAY, c_int64, _ARRAY),
    "ngs_truncate": (c_int32, _CACHE, c_int32, c_int64),
    "ngs_finish": (c_int32, _CACHE, c_int32),
    "ngs_settle_batch": (c_int32, _CACHE, _ARRAY, c_int32),
    "ngs_set_prior": (c_int32, _CACHE, _ARRAY, c_int64),
    "ngs_use_corpus": (c_int32, _CACHE, _ARRAY, c_int64, c_int32),
    "ngs_load": (c_int32, _CACHE, _ARRAY, c_int64, _ARRAY, c_int64),
    "ngs_tenant_key": (c_uint64, _ARRAY, c_int64),
    "ngs_bad_slot": (c_int32, _CACHE, _ARRAY, c_int32),
    "ngs_bad_span": (c_int32, _ARRAY, c_int32, c_int64),
    "ngs_block_hashes": (None, _ARRAY, c_int64, _ARRAY),
}


@cache
def library() -> ctypes.CDLL:
    """The compiled core, loaded once; its calls release the GIL.

    Raises
    ------
    NativeError
        It was not built, cannot be loaded, or is another version's.
    """
    path = target()
    if not os.path.isfile(path):
        raise NativeError("the C core is not built: run `ngramspec native build`, or use the engine 'numba'")
    try:
        lib = ctypes.CDLL(str(path))
    except OSError as error:
        raise NativeError(f"cannot load {path} ({error}): delete it and run `ngramspec native build`") from None
    for name, (result, *arguments) in SIGNATURES.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    found = int(lib.ngs_abi_version())
    if found != ABI_VERSION:
        raise NativeError(f"{path}: interface version is {found}, must be {ABI_VERSION}: delete it and build it anew")
    return lib


def checked(status: int) -> int:
    """A result of the core that is not an error.

    Raises
    ------
    ConfigError, CapacityError, SnapshotError, NativeError
        A negative status, with the core's own text.
    """
    if status >= 0:
        return status
    text = library().ngs_strerror(status).decode()
    if status == FULL:
        raise CapacityError(f"native: {text}")
    if status in (BAD_ARGUMENT, BAD_CONFIG, BAD_SLOT):
        raise ConfigError(f"native: {text}")
    if status in (BAD_SCRATCH, TOO_WIDE, UNSUPPORTED):
        raise NativeError(f"native: {text}")
    raise SnapshotError(f"native: {text}")
