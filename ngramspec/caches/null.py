"""The cache that remembers nothing and drafts nothing: plain decoding, by the same calls as every other cache."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import Any, ClassVar

import numpy as np

from ..config import check
from ..draft import MAX_SIDE, Draft, DraftBatch, Reason, Topology
from ..errors import CapacityError, ConfigError, SnapshotError
from .arguments import a_row, as_int32, as_tokens, at_least, enough_rows, probability, request_named, spans
from .base import Int32, Share, Tokens

FREE = -1  # length of a slot that no request has


class NullCache:
    """Keeps the protocol, refuses what the other caches refuse, and never drafts (reason `disabled`).

    Whatever runs with a cache runs with this one, so that it shows what drafting is worth. It holds the ids that run,
    their slots and how many tokens each has; no token is kept, so sessions, tenants and sharing change nothing.

    Parameters
    ----------
    max_requests : int
        Running requests; `begin` raises `CapacityError` beyond it. Cost: nothing until they run.

    Examples
    --------
    >>> import ngramspec as ns
    >>> cache = ns.NullCache()
    >>> slot = cache.begin("r1", [1, 2, 1])
    >>> cache.draft("r1", max_draft=8).reason.name
    'DISABLED'
    """

    name: ClassVar[str] = "none"

    def __init__(self, *, max_requests: int = 65_536) -> None:
        check(max_requests, "max_requests", 1, 65_536)
        self.max_requests = max_requests
        self.reset()

    @property
    def nbytes(self) -> int:
        """0: no text is kept."""
        return 0

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
        if request_id in self._slots:
            raise ConfigError(f"request_id: {request_id!r} is running; finish it first or use another id")
        if len(self._slots) >= self.max_requests:
            raise CapacityError(
                f"{len(self._slots)} requests are running, max_requests={self.max_requests}: "
                "finish some or raise max_requests"
            )
        n_prompt = len(as_tokens(prompt, "prompt"))
        limit = n_prompt if max_tokens is None else at_least(max_tokens, "max_tokens", 0, None)
        slot = self._free.pop() if self._free else len(self._lengths)
        if slot == len(self._lengths):
            self._lengths.append(FREE)
            self._waiting.append(0)
        self._slots[request_id], self._lengths[slot], self._waiting[slot] = slot, 0, n_prompt
        self.ingest(request_id, limit)
        return slot

    def ingest(self, request_id: str, max_tokens: int | None = None) -> int:
        """Count more of the prompt; see `Cache.ingest`."""
        slot = self._slot(request_id)
        waiting = self._waiting[slot]
        n = waiting if max_tokens is None else min(waiting, at_least(max_tokens, "max_tokens", 0, None))
        self._waiting[slot] -= n
        self._lengths[slot] += n
        self._counters["prompt_tokens"] += n
        return waiting - n

    def draft(
        self,
        request_id: str,
        *,
        max_draft: int,
        topology: str | Topology = Topology.TREE,
        min_prob: float = 0.0,
        remaining: int | None = None,
    ) -> Draft:
        """Draft nothing for one request; see `Cache.draft`."""
        at_least(max_draft, "max_draft", 0, MAX_SIDE)
        left = None if remaining is None else a_row(at_least(remaining, "remaining", 0, None), "remaining", 1)
        out, slot = DraftBatch.allocate(1, 0), np.array([self._slot(request_id)], np.int32)
        self.draft_batch(slot, out, max_draft=0, topology=topology, min_prob=min_prob, remaining=left)
        return out.row(0)

    def accept(self, request_id: str, tokens: Tokens) -> None:
        """Count emitted tokens; see `Cache.accept`."""
        emitted = as_tokens(tokens, "tokens")
        slot = np.array([self._slot(request_id)], np.int32)
        self.accept_batch(slot, emitted, np.array([0, len(emitted)], np.int32))

    def truncate(self, request_id: str, n_tokens: int) -> None:
        """Keep a count of `n_tokens`; see `Cache.truncate`."""
        slot = self._slot(request_id)
        self.ingest(request_id)
        if at_least(n_tokens, "n_tokens", 0, None) > self._lengths[slot]:
            raise ConfigError(f"n_tokens: got {n_tokens}, request {request_id!r} has {self._lengths[slot]} tokens")
        self._lengths[slot] = n_tokens

    def finish(self, request_id: str) -> None:
        """End a request; see `Cache.finish`."""
        slot = self._slot(request_id)
        del self._slots[request_id]
        self._lengths[slot], self._waiting[slot] = FREE, 0
        self._free.append(slot)

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
        """Draft nothing for every slot; see `Cache.draft_batch`."""
        n = self._check_slots(slots)
        enough_rows(out, n)
        a_row(max_draft, "max_draft", n)
        a_row(-1 if remaining is None else remaining, "remaining", n)
        Topology.parse(topology)
        probability(min_prob, "min_prob")
        out.n_draft[:n], out.match_length[:n], out.reason[:n] = 0, 0, Reason.DISABLED
        self._counters["drafts"] += n

    def accept_batch(self, slots: Int32, tokens: Int32, offsets: Int32) -> None:
        """Count emitted tokens of every slot; see `Cache.accept_batch`."""
        n = self._check_slots(slots)
        tokens, offsets = spans(tokens, offsets, n)
        for slot, n_emitted in zip(slots.tolist(), np.diff(offsets[: n + 1]).tolist(), strict=True):
            self._counters["prompt_tokens"] += self._waiting[slot]
            self._lengths[slot] += self._waiting[slot] + n_emitted
            self._waiting[slot] = 0
            self._counters["emitted_tokens"] += n_emitted

    def reset(self) -> None:
        """Forget every request."""
        self._slots: dict[str, int] = {}
        self._lengths: list[int] = []  # tokens of the request in each slot
        self._waiting: list[int] = []  # prompt tokens not ingested yet
        self._free: list[int] = []
        self._counters: Counter[str] = Counter()

    def stats(self) -> dict[str, int]:
        """Counters and gauges; see `Cache.stats`."""
        counters = {name: self._counters[name] for name in ("drafts", "prompt_tokens", "emitted_tokens")}
        disabled = {f"drafts_{Reason.DISABLED.name.lower()}": counters["drafts"]}
        return {"nbytes": 0, "running_requests": len(self._slots)} | counters | disabled

    def digest(self) -> str:
        """Hex digest of the whole state; equal calls give equal digests."""
        state = (sorted(self._slots.items()), self._lengths, self._waiting, self._free, self.stats())
        return hashlib.blake2b(repr(state).encode(), digest_size=16).hexdigest()

    def check_integrity(self) -> None:
        """Slots are taken by one request or free; raises `SnapshotError` where one is neither or both."""
        taken = sorted([*self._slots.values(), *self._free])
        if taken != list(range(len(self._lengths))):
            raise SnapshotError(f"slots: taken and free ones together are {taken}, there are {len(self._lengths)}")
        for slot in self._free:
            if self._lengths[slot] != FREE or self._waiting[slot]:
                raise SnapshotError(f"slot {slot} is free, but counts {self._lengths[slot]} tokens")

    def explain(self, request_id: str) -> dict[str, Any]:
        """Nothing, and why; see `Cache.explain`."""
        slot = self._slot(request_id)
        return {"n_tokens": self._lengths[slot], "matches": [], "reason": Reason.DISABLED.name.lower()}

    def _slot(self, request_id: str) -> int:
        try:
            return self._slots[request_id]
        except (KeyError, TypeError):
            raise ConfigError(f"request_id: {request_id!r} is not running; begin it first") from None

    def _check_slots(self, slots: Int32) -> int:
        for i, slot in enumerate(as_int32(slots, "slots").tolist()):
            if not 0 <= slot < len(self._lengths) or self._lengths[slot] == FREE:
                raise ConfigError(f"slots[{i}]: no running request has slot {slot}")
        return len(slots)
