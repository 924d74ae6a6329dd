"""Request ids, sessions and their life: everything around the kernels that every cache shares.

Ids, session names and the search for an earlier turn live here, in Python; text, counts and drafts live in the arena.
A row is one running request or one idle session. A request that names a session goes on with the session's idle row;
one that names none goes on with an ended request whose whole prompt it repeats (found by a hash of its blocks,
checked token by token), so that nothing it did not know already becomes visible.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from ..arena import (
    BLOCK,
    FREE,
    IDLE,
    LIVE,
    R_DRAFTS,
    R_N_IDLE,
    R_OFF,
    R_REASON0,
    R_TOKENS_IN,
    R_TOKENS_OUT,
    ROW,
    SHARE_ALL,
    SHARE_NONE,
    SHARE_OUTPUTS,
    T_LENGTH,
    T_PROMPT,
    T_SERIAL,
    T_SHARE,
    T_STATE,
    Arena,
)
from ..config import CacheConfig
from ..draft import MAX_SIDE, ONE_Q30, Draft, DraftBatch, Reason, Topology
from ..errors import CapacityError, ConfigError, SnapshotError
from ..kernels.limits import bad_slot, bad_span, count_drafts
from ..kernels.requests import begin_row, block_hashes, common_prefix, finish_row, take_row
from ..native import Engine, choose
from ..native.core import Core
from .arguments import a_row, as_int32, as_tokens, at_least, enough_rows, instance, probability, request_named, spans
from .base import Int32, Share, Tokens

PAGE = 4096  # bytes; larger pages are touched more than once
_SHARES = {"none": SHARE_NONE, "outputs": SHARE_OUTPUTS, "all": SHARE_ALL}


class SessionCache:
    """Base of the caches over an arena: lifecycle, validation and counters; kernels are the subclasses' part.

    With the engine `"native"` the C core does what kernels do with `"numba"`, on the same bytes.
    """

    name: ClassVar[str] = ""
    config_type: ClassVar[type[CacheConfig]] = CacheConfig  #: class of its configuration

    def __init__(
        self, config: CacheConfig, buffer: NDArray[np.uint8] | None = None, engine: Engine | None = None
    ) -> None:
        instance(config, "config", self.config_type)
        self.config = config
        self.engine: Engine = choose(engine)
        self.arena = Arena(config.components(), config.digest, buffer)
        self._core = Core(config, self.arena) if self.engine == "native" else None
        self._m = self.arena.mem
        self._requests = self.arena.header("requests")
        self._own = self.arena.header("own")
        self._rows: dict[str, int] = {}
        self._pending: dict[int, Int32] = {}
        self._names: dict[int, tuple[str, str | None]] = {}
        self._sessions: dict[tuple[str, str], tuple[int, int]] = {}
        self._by_text: dict[tuple[str, int, int], tuple[int, int]] = {}
        self._one = DraftBatch.allocate(1, 64)

    # What a subclass adds.

    def _ingest_row(self, row: int, tokens: Int32) -> None:
        """Append prompt tokens to a row; modifies."""
        raise NotImplementedError

    def _accept_rows(self, slots: Int32, tokens: Int32, offsets: Int32) -> None:
        """Append emitted tokens; modifies."""
        raise NotImplementedError

    def _draft_rows(
        self, slots: Int32, out: DraftBatch, max_draft: Int32, remaining: Int32, chain: bool, min_q30: int
    ) -> None:
        """Draft into `out`."""
        raise NotImplementedError

    def _truncate_row(self, row: int, n_tokens: int) -> None:
        """Shorten a row; modifies."""
        raise NotImplementedError

    # The protocol.

    @property
    def nbytes(self) -> int:
        """Bytes of state, fixed at construction."""
        return self.arena.nbytes

    def begin(
        self,
        request_id: str,
        prompt: Tokens,
        *,
        session: str | None = None,
        tenant: str | None = None,
        share: Share = "outputs",
        max_tokens: int | None = None,
    ) -> int:
        """Start a request; see `Cache.begin`."""
        request_named(request_id, session, tenant, share)
        if request_id in self._rows:
            raise ConfigError(f"request_id: {request_id!r} is running; finish it first or use another id")
        if len(self._rows) >= self.config.max_requests:
            raise CapacityError(
                f"{len(self._rows)} requests are running, max_requests={self.config.max_requests}: "
                "finish some or raise max_requests"
            )
        tokens = as_tokens(prompt, "prompt")
        if max_tokens is not None:
            at_least(max_tokens, "max_tokens", 0, None)
            tokens = tokens.copy()  # what waits must not change with the caller's array
        tenant_key = tenant or ""
        hashes: list[int] = []
        if session is not None:
            row, keep = self._find_session(tokens, session, tenant_key)
        else:
            hashes = self._hashes(tokens)
            row, keep = self._find_earlier(tokens, hashes, tenant_key, _SHARES[share])
        if row < 0:
            row = self._take_row()
        self._begin_row(row, keep, len(tokens), _SHARES[share], *_key(tenant_key))
        self._rows[request_id] = row
        self._names[row] = (tenant_key, session)
        if hashes:
            self._remember_text(hashes, row, tenant_key)
        self._pending[row] = tokens[keep:]
        self.ingest(request_id, max_tokens)
        return row

    def ingest(self, request_id: str, max_tokens: int | None = None) -> int:
        """Ingest more of the prompt; see `Cache.ingest`."""
        row = self._row(request_id)
        waiting = self._pending.get(row)
        if waiting is None:
            return 0
        piece = waiting if max_tokens is None else waiting[: at_least(max_tokens, "max_tokens", 0, None)]
        if self._core is not None:
            self._core.ingest(row, piece)
        else:
            self._ingest_row(row, piece)
            self._requests[R_TOKENS_IN] += len(piece)
        left = waiting[len(piece) :]
        if len(left):
            self._pending[row] = left
        else:
            del self._pending[row]
        return len(left)

    def draft(
        self,
        request_id: str,
        *,
        max_draft: int,
        topology: str | Topology = Topology.TREE,
        min_prob: float = 0.0,
        remaining: int | None = None,
    ) -> Draft:
        """Draft for one request; see `Cache.draft`."""
        width = at_least(max_draft, "max_draft", 0, MAX_SIDE)
        if width > self._one.width:
            self._one = DraftBatch.allocate(1, width)
        slot = np.array([self._row(request_id)], np.int32)
        left = None if remaining is None else a_row(at_least(remaining, "remaining", 0, None), "remaining", 1)
        self.draft_batch(slot, self._one, max_draft=width, topology=topology, min_prob=min_prob, remaining=left)
        return self._one.row(0)

    def accept(self, request_id: str, tokens: Tokens) -> None:
        """Append emitted tokens; see `Cache.accept`."""
        emitted = as_tokens(tokens, "tokens")
        slot = np.array([self._row(request_id)], np.int32)
        self.accept_batch(slot, emitted, np.array([0, len(emitted)], np.int32))

    def truncate(self, request_id: str, n_tokens: int) -> None:
        """Keep the first `n_tokens` tokens; see `Cache.truncate`."""
        row = self._row(request_id)
        self.ingest(request_id)
        length, n_tokens = self._field(row, T_LENGTH), at_least(n_tokens, "n_tokens", 0, None)
        if n_tokens > length:
            raise ConfigError(f"n_tokens: got {n_tokens}, request {request_id!r} has {length} tokens")
        if self._core is not None:
            self._core.truncate(row, n_tokens)
        else:
            self._truncate_row(row, n_tokens)

    def finish(self, request_id: str) -> None:
        """End a request; see `Cache.finish`."""
        row = self._row(request_id)
        tenant, session = self._names.pop(row)
        del self._rows[request_id]
        self._pending.pop(row, None)
        serial = self._field(row, T_SERIAL)
        if session is not None:
            self._sessions[tenant, session] = (row, serial)
            if len(self._sessions) > 4 * self.config.n_rows:  # most of their rows have been taken by others since
                self._sessions = {k: v for k, v in self._sessions.items() if self._field(v[0], T_SERIAL) == v[1]}
        if self._core is not None:
            self._core.finish(row)
        else:
            self._finish_row(row)

    def draft_batch(
        self,
        slots: Int32,
        out: DraftBatch,
        *,
        max_draft: int | Int32,
        topology: str | Topology = Topology.TREE,
        min_prob: float = 0.0,
        remaining: Int32 | None = None,
    ) -> None:
        """Draft for every slot in one compiled call; see `Cache.draft_batch`."""
        n = self._check_slots(slots) if self._core is None else len(as_int32(slots, "slots"))  # the core looks itself
        enough_rows(out, n)
        most, left = a_row(max_draft, "max_draft", n), a_row(-1 if remaining is None else remaining, "remaining", n)
        chain, min_q30 = Topology.parse(topology) is Topology.CHAIN, int(probability(min_prob, "min_prob") * ONE_Q30)
        if self._core is not None:
            self._core.draft(slots, out, most, left, chain, min_q30)
        else:
            self._draft_rows(slots, out, most, left, chain, min_q30)
            count_drafts(self._requests, out.reason, n)

    def accept_batch(self, slots: Int32, tokens: Int32, offsets: Int32) -> None:
        """Append emitted tokens of every slot in one compiled call; see `Cache.accept_batch`."""
        if self._core is not None and not self._pending:
            self._accept_core(self._core, as_int32(slots, "slots"), tokens, offsets)
            return
        n = self._check_slots(slots)
        tokens, offsets = spans(tokens, offsets, n, bad_span if self._core is None else self._core.bad_span)
        if self._pending:
            for request_id, row in self._rows.items():
                if row in self._pending and (slots == row).any():
                    self.ingest(request_id)
        if self._core is not None:
            self._core.accept(slots, tokens, offsets)
        else:
            self._accept_rows(slots, tokens, offsets)

    def reset(self) -> None:
        """Forget everything, running requests included."""
        self.arena.clear()
        for table in (self._rows, self._pending, self._names, self._sessions, self._by_text):
            table.clear()

    def touch(self) -> None:
        """Have every page of the state backed by memory now, so that no later call waits for it; changes nothing."""
        self.arena.mem[:: PAGE // 4] |= 0

    def stats(self) -> dict[str, int]:
        """Counters and gauges; see `Cache.stats`."""
        head = self._requests
        counters = {
            "nbytes": self.nbytes,
            "running_requests": len(self._rows),
            "idle_sessions": int(head[R_N_IDLE]),
            "drafts": int(head[R_DRAFTS]),
            "prompt_tokens": int(head[R_TOKENS_IN]),
            "emitted_tokens": int(head[R_TOKENS_OUT]),
        }
        return counters | {f"drafts_{r.name.lower()}": int(head[R_REASON0 + r]) for r in Reason}

    def digest(self) -> str:
        """Hex digest of the whole state; equal calls give equal digests."""
        return self.arena.digest()

    # Parts that subclasses use or extend.

    def _before_begin(self, row: int, keep: int) -> None:
        """Take back what a subclass derived from an idle row's text beyond its first `keep` tokens."""

    def _finish_row(self, row: int) -> None:
        finish_row(self._requests, self._own, self._m, row, self.config.max_sessions)

    def _field(self, row: int, field: int) -> int:
        return int(self._m[int(self._requests[R_OFF]) + row * ROW + field])

    def _row(self, request_id: str) -> int:
        try:
            return self._rows[request_id]
        except (KeyError, TypeError):
            raise ConfigError(f"request_id: {request_id!r} is not running; begin it first") from None

    def _accept_core(self, core: Core, slots: Int32, tokens: Int32, offsets: Int32) -> None:
        """One call where numba takes three: the core looks at slots and spans itself, before anything changes."""
        tokens, offsets = as_int32(tokens, "tokens"), as_int32(offsets, "offsets")
        if len(offsets) <= len(slots):
            spans(tokens, offsets, len(slots), core.bad_span)  # says so
        try:
            core.accept(slots, tokens, offsets)
        except ConfigError:
            core.check_slots(slots)
            spans(tokens, offsets, len(slots), core.bad_span)
            raise

    def _take_row(self) -> int:
        if self._core is not None:
            return self._core.take_row()
        return int(take_row(self._requests, self._own, self._m))

    def _begin_row(self, row: int, keep: int, n_prompt: int, share: int, lo: int, hi: int) -> None:
        if self._core is not None:
            self._core.begin_row(row, keep, n_prompt, share, lo, hi)
            return
        self._before_begin(row, keep)
        begin_row(self._requests, self._own, self._m, row, keep, n_prompt, share, lo, hi)

    def _common_prefix(self, row: int, tokens: Int32) -> int:
        if self._core is not None:
            return self._core.common_prefix(row, tokens)
        return int(common_prefix(self._requests, self._own, self._m, row, tokens))

    def _hashes(self, tokens: Int32) -> list[int]:
        """Hash of the first 1, 2, ... whole blocks of `tokens`."""
        hashes = np.zeros(len(tokens) // BLOCK, np.int64)
        (block_hashes if self._core is None else self._core.block_hashes)(tokens, hashes)
        return hashes.tolist()

    def _check_slots(self, slots: Int32) -> int:
        rows = as_int32(slots, "slots")
        if self._core is not None:
            self._core.check_slots(rows)
            return len(rows)
        bad = bad_slot(self._requests, self._m, rows)
        if bad >= 0:
            raise ConfigError(f"slots[{bad}]: no running request has slot {int(slots[bad])}")
        return len(rows)

    def _find_session(self, tokens: Int32, session: str, tenant: str) -> tuple[int, int]:
        """A session's idle row and how many of its tokens to keep, or (-1, 0)."""
        found = self._sessions.get((tenant, session))
        if found is None or not self._is_idle(*found):
            self._sessions.pop((tenant, session), None)
            return -1, 0
        return found[0], self._common_prefix(found[0], tokens)

    def _find_earlier(self, tokens: Int32, hashes: list[int], tenant: str, share: int) -> tuple[int, int]:
        """An idle row of no session to go on with and how many of its tokens to keep, or (-1, 0)."""
        if share == SHARE_NONE:
            return -1, 0
        for n in range(len(hashes), 0, -1):
            found = self._by_text.get((tenant, n, hashes[n - 1]))
            if found is None:
                continue
            row, serial = found
            if not self._is_idle(row, serial) or self._field(row, T_SHARE) == SHARE_NONE:
                if not self._is_idle(row, serial) and self._field(row, T_SERIAL) != serial:
                    del self._by_text[tenant, n, hashes[n - 1]]
                continue
            keep = self._common_prefix(row, tokens)
            if keep >= self._field(row, T_PROMPT):
                return row, keep
        return -1, 0

    def _remember_text(self, hashes: list[int], row: int, tenant: str) -> None:
        self._by_text[tenant, len(hashes), hashes[-1]] = (row, self._field(row, T_SERIAL))
        if len(self._by_text) > 4 * self.config.n_rows:  # entries of rows that were reused since
            self._by_text = {k: v for k, v in self._by_text.items() if self._field(v[0], T_SERIAL) == v[1]}

    def _is_idle(self, row: int, serial: int) -> bool:
        return self._field(row, T_STATE) == IDLE and self._field(row, T_SERIAL) == serial

    def _check_rows(self) -> None:
        """Invariants of the request table; raises `SnapshotError`."""
        live = {row for row in range(self.config.n_rows) if self._field(row, T_STATE) == LIVE}
        idle = sum(self._field(row, T_STATE) == IDLE for row in range(self.config.n_rows))
        states = {self._field(row, T_STATE) for row in range(self.config.n_rows)}
        if states - {FREE, LIVE, IDLE}:
            raise SnapshotError(f"request table: unknown states {states}")
        if live != set(self._rows.values()):
            raise SnapshotError(f"request table: running rows {sorted(live)}, ids name {sorted(self._rows.values())}")
        if idle != int(self._requests[R_N_IDLE]):
            raise SnapshotError(f"request table: {idle} idle rows, the counter says {int(self._requests[R_N_IDLE])}")


@lru_cache(maxsize=4096)
def _key(name: str) -> tuple[int, int]:
    """64 bits of a tenant's name as two int32; the same in every process."""
    lo, hi = np.frombuffer(hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest(), np.int32)
    return int(lo), int(hi)
