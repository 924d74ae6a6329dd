"""A cache's calls into the C core, over the cache's own buffer."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import addressof, c_char, c_int64, c_void_p, memmove, sizeof
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arena import BLOCK, Arena
from ..config import CacheConfig, DrafterConfig, HashConfig, TrieConfig
from ..draft import DraftBatch
from ..errors import ConfigError
from .library import BAD_SLOT, CHAIN, TREE, TRUSTED, UNCOUNTED, Cache, Config, Drafts, checked, library

Int32 = NDArray[np.int32]

ROLLING_HASH, SUFFIX_TRIE, DRAFTER = 1, 2, 3  # ngs_kind

#: Fields that have the same name and meaning there.
_SAME = (
    "capacity_tokens", "vocab_size", "max_requests", "max_sessions", "max_hops", "max_match", "shared_percent",
    "depth", "max_followers",
)  # fmt: skip


def native_config(config: CacheConfig) -> Config:
    """A configuration as the C core takes it."""
    out = Config(struct_size=sizeof(Config), digest=config.digest, n_eos=len(config.eos_ids))
    for name in _SAME:
        setattr(out, name, getattr(config, name, 0))
    out.eos_ids[: len(config.eos_ids)] = config.eos_ids
    if isinstance(config, HashConfig):
        out.kind, out.n_orders = ROLLING_HASH, len(config.orders)
        out.orders[: len(config.orders)] = config.orders
    if isinstance(config, DrafterConfig):
        out.kind, out.counted_rows, out.deferred = DRAFTER, config.n_counted_rows, config.deferred
    if isinstance(config, TrieConfig):
        out.kind, out.max_nodes = SUFFIX_TRIE, config.n_nodes
    if out.kind == 0:
        raise ConfigError(f"engine: the C core has no cache for a {type(config).__name__}; use 'numba'")
    return out


_bytes_of: Callable[[Any], Any] = (c_char * 0).from_buffer

#: Numbers of tokens as C takes them, those of most steps ready-made.
_LENGTHS = [c_int64(n) for n in range(256)]


class _Last:
    """Where the array lies that was passed last: engines pass the same one again, and asking is slow."""

    __slots__ = ("address", "array")

    def __init__(self) -> None:
        self.array: Int32 | None = None
        self.address = c_void_p()

    def of(self, array: Int32) -> c_void_p:
        """Address of an array, which is kept so that its memory is no other array's; a copy's where it has gaps."""
        if array is not self.array:
            self.array = np.ascontiguousarray(array)
            self.address = c_void_p(pointer(self.array))
        return self.address


class Core:
    """One cache's state in the hands of the C core.

    Parameters
    ----------
    config : CacheConfig
        Sizes and limits.
    arena : Arena
        The state, which this process formatted or checked.
    """

    def __init__(self, config: CacheConfig, arena: Arena) -> None:
        self._lib = library()
        self._config = native_config(config)
        self._buffer = arena.buffer  # kept alive, as the scratch is
        self._width = 64
        self._cache = Cache()
        self._here = addressof(self._cache)
        self._this = c_void_p(self._here)
        # The two calls of every step take ready-made arguments: half the time of letting ctypes convert them.
        self._draft_batch, self._accept_batch = self._lib["ngs_draft_batch"], self._lib["ngs_accept_batch"]
        self._slots, self._most, self._left = _Last(), _Last(), _Last()
        self._scratch = self._new_scratch()
        checked(
            self._lib.ngs_attach(
                self._here, addressof(self._config), pointer(arena.buffer), arena.nbytes, pointer(self._scratch),
                self._scratch.nbytes, TRUSTED,
            )
        )  # fmt: skip
        self._drafts = Drafts(struct_size=sizeof(Drafts))
        self._at_drafts = c_void_p(addressof(self._drafts))
        self._out: DraftBatch | None = None
        self._n_threads = config.draft_threads if isinstance(config, DrafterConfig) else 1
        self._pool = ThreadPoolExecutor(self._n_threads) if self._n_threads > 1 else None
        self._shards: list[tuple[Cache, Int32]] = []
        self._share()

    def _new_scratch(self) -> Int32:
        """Scratch for drafts of up to `self._width` tokens."""
        return np.zeros(checked(self._lib.ngs_scratch_bytes(addressof(self._config), self._width)) // 4, np.int32)

    def _set_scratch(self, cache: Cache, scratch: Int32) -> None:
        checked(self._lib.ngs_set_scratch(addressof(cache), pointer(scratch), scratch.nbytes))

    def _share(self) -> None:
        """Give every thread a copy of the cache with scratch of its own."""
        if self._pool is None:
            return
        self._shards = [(Cache(), self._new_scratch()) for _ in range(self._n_threads)]
        for shard, scratch in self._shards:
            memmove(addressof(shard), self._here, sizeof(Cache))
            self._set_scratch(shard, scratch)

    def take_row(self) -> int:
        """A free row; the least recently used idle session makes room; modifies."""
        return checked(self._lib.ngs_take_row(self._here))

    def common_prefix(self, row: int, tokens: Int32) -> int:
        """Tokens that an idle row's text shares with `tokens`."""
        return checked(self._lib.ngs_common_prefix(self._here, row, pointer(tokens), len(tokens)))

    def begin_row(self, row: int, n_keep: int, n_prompt: int, share: int, lo: int, hi: int) -> None:
        """Start a request in a row that keeps `n_keep` tokens; modifies.

        Parameters
        ----------
        row : int
            A free or idle row.
        n_keep : int
            Tokens of its text to keep.
        n_prompt : int
            Tokens of the whole prompt.
        share : int
            `SHARE_NONE`, `SHARE_OUTPUTS` or `SHARE_ALL`.
        lo, hi : int
            Halves of the tenant's key, int32 each.
        """
        tenant = (lo & 0xFFFFFFFF) | (hi & 0xFFFFFFFF) << 32
        checked(self._lib.ngs_begin_row(self._here, row, n_keep, n_prompt, share, tenant))

    def ingest(self, row: int, tokens: Int32) -> None:
        """Append prompt tokens to a row, and count them; modifies."""
        checked(self._lib.ngs_ingest(self._here, row, pointer(tokens), len(tokens)))

    def draft(
        self, slots: Int32, out: DraftBatch, max_draft: Int32, remaining: Int32, chain: bool, min_q30: int
    ) -> None:
        """Draft into `out` and count the drafts; modifies.

        Parameters
        ----------
        slots : int32[batch]
            Running rows.
        out : DraftBatch
            Filled.
        max_draft, remaining : int32[batch]
            Most tokens a row, and what it may still emit (negative: unknown).
        chain : bool
            Chains in the place of trees.
        min_q30 : int
            Smallest path probability, 30 fractional bits.
        """
        if out is not self._out:
            self._take(out)
        n, flags = len(slots), CHAIN if chain else TREE
        arrays = self._slots.of(slots), self._most.of(max_draft), self._left.of(remaining)
        if self._pool is None or n < 2 * len(self._shards) or len(set(slots.tolist())) < n:
            status = self._draft_batch(self._this, arrays[0], n, arrays[1], arrays[2], min_q30, flags, self._at_drafts)
            if status:
                self.check_slots(slots) if status == BAD_SLOT else checked(status)
            return
        self.check_slots(slots)
        edges = [n * k // len(self._shards) for k in range(len(self._shards) + 1)]

        def run(shard: tuple[Cache, Int32], first: int, last: int) -> int:
            there = ((array.value or 0) + 4 * first for array in arrays)
            drafts = self._drafts.from_row(first)
            return self._lib.ngs_draft_batch(  # type: ignore[no-any-return]
                addressof(shard[0]), next(there), last - first, *there, min_q30, flags | UNCOUNTED, addressof(drafts)
            )

        for status in self._pool.map(run, self._shards, edges[:-1], edges[1:]):
            checked(status)
        checked(self._lib.ngs_count_drafts(self._here, pointer(out.reason), n))

    def _take(self, out: DraftBatch) -> None:
        """Note where a batch's arrays lie; an engine uses one object for every step."""
        for name in ("tokens", "parents", "path_q30", "sources", "n_draft", "match_length", "reason"):
            array = getattr(out, name)
            dtype = np.int8 if name == "sources" else np.int32
            if array.dtype != dtype or not array.flags.c_contiguous or not array.flags.writeable:
                raise ConfigError(f"out.{name}: must be contiguous, writable {dtype.__name__}; use DraftBatch.allocate")
            setattr(self._drafts, name, pointer(array))
        self._drafts.width = out.width
        if out.width > self._width:
            self._width = out.width
            self._scratch = self._new_scratch()
            self._set_scratch(self._cache, self._scratch)
            self._share()
        self._out = out

    def accept(self, slots: Int32, tokens: Int32, offsets: Int32) -> None:
        """Append emitted tokens; modifies."""
        try:
            at_tokens, at_offsets = _bytes_of(tokens), _bytes_of(offsets)
        except TypeError:  # read-only
            at_tokens, at_offsets = c_void_p(pointer(tokens)), c_void_p(pointer(offsets))
        n_tokens = len(tokens)
        length = _LENGTHS[n_tokens] if n_tokens < len(_LENGTHS) else c_int64(n_tokens)
        status = self._accept_batch(self._this, self._slots.of(slots), len(slots), at_tokens, length, at_offsets)
        if status:
            checked(status)

    def settle(self, slots: Int32) -> None:
        """Learn from steps whose next draft has been handed out; modifies."""
        slots = np.ascontiguousarray(slots)
        checked(self._lib.ngs_settle_batch(self._here, pointer(slots), len(slots)))

    def use_corpus(self, mem: Int32 | None) -> None:
        """Draft from a frozen corpus, checked by this process, or from none; modifies."""
        self._corpus = mem  # keeps it alive
        where, nbytes = (None, 0) if mem is None else (pointer(mem), mem.nbytes)
        checked(self._lib.ngs_use_corpus(self._here, where, nbytes, TRUSTED))
        self._share()

    def truncate(self, row: int, n_tokens: int) -> None:
        """Shorten a row; modifies."""
        checked(self._lib.ngs_truncate(self._here, row, n_tokens))

    def finish(self, row: int) -> None:
        """End a request; modifies."""
        checked(self._lib.ngs_finish(self._here, row))

    def check_slots(self, slots: Int32) -> None:
        """Raise `ConfigError` at the first slot that no running request has."""
        bad = self._lib.ngs_bad_slot(self._here, pointer(slots), len(slots))
        if bad >= 0:
            raise ConfigError(f"slots[{bad}]: no running request has slot {int(slots[bad])}")

    def bad_span(self, offsets: Int32, n: int, n_tokens: int) -> int:
        """Index of the first of `n` spans that does not lie within the tokens, -1 when all do."""
        return int(self._lib.ngs_bad_span(pointer(offsets), n, n_tokens))

    def block_hashes(self, tokens: Int32, hashes: NDArray[np.int64]) -> None:
        """Hash of the first 1, 2, ... blocks of `tokens`, into `hashes`."""
        self._lib.ngs_block_hashes(pointer(tokens), BLOCK * len(hashes), pointer(hashes))

    def check(self) -> None:
        """Check everything that the core relies on, slowly; raises `SnapshotError`."""
        checked(self._lib.ngs_check(self._here))


def pointer(array: NDArray[Any]) -> int:
    """Address of a contiguous array's first element."""
    try:
        return addressof(_bytes_of(array))  # five times faster than asking numpy, which a small step would feel
    except TypeError:  # read-only
        return int(array.__array_interface__["data"][0])
