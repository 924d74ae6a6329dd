"""What every rival rule needs: running requests, their text, the protocol around one question, `_propose`.

Rules draft in compiled code, but one request after the other: their drafts are compared, not their speed.

- Sessions mean nothing to any of these rules: a later turn sees an earlier one through its own prompt only.
- Placeholders (negative ids, ids at or above `vocab_size`) are stored as negative numbers that never repeat,
  so that nothing matches across them; a draft ends before one.
- A rule without probabilities of its own says 1, so that `min_prob` leaves its drafts alone.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection
from typing import Any, ClassVar

import numpy as np

from ..caches.arguments import as_list, as_tokens, at_least, probability, request_named
from ..caches.base import Int32, Share, Tokens
from ..draft import MAX_SIDE, Draft, DraftBatch, Reason, Topology
from ..errors import CapacityError, ConfigError, SnapshotError
from ..kernels.prune import prune
from .request import NOTHING, Ask, Found, Request, Row

#: The first placeholder's number; smaller negative ones are left to the rules.
PLACEHOLDER = -16


class Baseline:
    """The protocol of `caches.base.Cache`, around the rule that a subclass writes in `_propose`.

    Parameters
    ----------
    vocab_size : int
        Ids at or above it are placeholders.
    eos_ids : collection of int
        Ids that end a request, for rules that look at them.
    capacity_tokens : int
        Tokens of other requests' text that are remembered for each tenant, for rules that remember any. A
        running request's own text is kept while it runs, whatever its length.
    max_requests : int
        Most requests running at a time.
    """

    name: ClassVar[str] = ""

    def __init__(
        self,
        *,
        vocab_size: int,
        eos_ids: Collection[int] = (),
        capacity_tokens: int = 1_000_000,
        max_requests: int = 4096,
    ) -> None:
        for what, value in (("vocab_size", vocab_size), ("max_requests", max_requests)):
            at_least(value, what, 1)
        at_least(capacity_tokens, "capacity_tokens", 1)
        self.vocab_size = vocab_size
        self.eos_ids = np.unique(as_tokens(as_list(eos_ids, "eos_ids"), "eos_ids"))
        self.capacity_tokens = capacity_tokens
        self.max_requests = max_requests
        self._clear()

    def _clear(self) -> None:
        self._requests: dict[str, Request] = {}
        self._slots: list[Request | None] = []
        self._free: list[int] = []
        self._n_placeholders = 0
        self._counters: Counter[str] = Counter()

    # What a rule writes

    def _propose(self, request: Request, ask: Ask, row: Row, *, commit: bool) -> Found:
        """Draft into `row`; without `commit` (for `explain`) leave no trace of it."""
        raise NotImplementedError

    def _step(self) -> None:
        """Take note that drafts are asked for, of one request or of a batch."""

    def _begin(self, request: Request) -> None:
        """Start the rule's state of a request whose text is still empty."""

    def _extend(self, request: Request, start: int) -> None:
        """Take note of `request.text.tokens[start:]`, all prompt or all output."""

    def _cut(self, request: Request, n_before: int) -> None:
        """Take note that the text was cut; `n_before` tokens there were."""

    def _end(self, request: Request) -> None:
        """Take note that the request ended."""

    def _nbytes(self) -> int:
        return 0

    # The protocol

    @property
    def nbytes(self) -> int:
        """Bytes held now: running requests' text and the rule's memory; grows with use. Does not modify."""
        texts = sum(request.text.data.nbytes + request.prompt.nbytes for request in self._requests.values())
        return texts + self._nbytes()

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
        request_named(request_id, session, tenant, share)
        if request_id in self._requests:
            raise ConfigError(f"begin: request {request_id!r} is running already: finish it first, or use another id")
        if len(self._requests) == self.max_requests:
            raise CapacityError(
                f"begin: {self.max_requests} requests are running, the most that max_requests allows: "
                "finish one first, or raise max_requests"
            )
        slot = heapq.heappop(self._free) if self._free else len(self._slots)
        request = Request(request_id, slot, tenant, share, self._stored(prompt, "prompt"))
        if slot == len(self._slots):
            self._slots.append(None)
        self._slots[slot] = request
        self._requests[request_id] = request
        self._counters["n_begun"] += 1
        self._begin(request)
        self.ingest(request_id, max_tokens)
        return slot

    def ingest(self, request_id: str, max_tokens: int | None = None) -> int:
        request = self._running(request_id)
        left = max(len(request.prompt) - request.text.n, 0)
        n = left if max_tokens is None else min(at_least(max_tokens, "max_tokens", 0, None), left)
        if n:
            start = request.text.n
            request.text.append(request.prompt[start : start + n])
            self._extend(request, start)
        return left - n

    def draft(
        self,
        request_id: str,
        *,
        max_draft: int,
        topology: str | Topology = Topology.TREE,
        min_prob: float = 0.0,
        remaining: int | None = None,
    ) -> Draft:
        out = DraftBatch.allocate(1, at_least(max_draft, "max_draft", 0, MAX_SIDE))
        ask = _ask(max_draft, remaining, topology, min_prob)
        self._step()
        self._fill(self._running(request_id), ask, out, 0, commit=True)
        return out.row(0)

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
        widths = np.minimum(np.broadcast_to(max_draft, len(slots)), out.width).tolist()
        limits = [None] * len(slots) if remaining is None else np.asarray(remaining).tolist()
        self._step()
        for i in np.argsort(slots).tolist():  # not in the order of rows, which must not matter
            slot, limit = int(slots[i]), limits[i]
            ask = _ask(widths[i], None if limit is None or limit < 0 else limit, topology, min_prob)
            self._fill(self._at(slot), ask, out, i, commit=True)

    def accept(self, request_id: str, tokens: Tokens) -> None:
        self._accept(self._running(request_id), tokens)

    def accept_batch(self, slots: Int32, tokens: Int32, offsets: Int32) -> None:
        ends = offsets.tolist()
        for i, slot in enumerate(slots.tolist()):
            self._accept(self._at(slot), tokens[ends[i] : ends[i + 1]])

    def truncate(self, request_id: str, n_tokens: int) -> None:
        request = self._running(request_id)
        n_before = request.text.n
        if at_least(n_tokens, "n_tokens", 0, None) > n_before:
            raise ConfigError(f"truncate: n_tokens: got {n_tokens}, allowed 0 to {n_before}, the tokens there are")
        request.prompt = request.prompt[:n_tokens]
        request.banned.clear()
        request.drafted = False
        if n_tokens < n_before:
            request.text.n = n_tokens
            self._cut(request, n_before)

    def finish(self, request_id: str) -> None:
        request = self._running(request_id)
        self._end(request)
        del self._requests[request_id]
        self._slots[request.slot] = None
        heapq.heappush(self._free, request.slot)

    def reset(self) -> None:
        self._clear()

    def stats(self) -> dict[str, int]:
        gauges = {"n_running": len(self._requests), "nbytes": self.nbytes}
        return gauges | {key: int(self._counters[key]) for key in sorted(self._counters)}

    def check_integrity(self) -> None:
        for request in self._requests.values():
            if self._slots[request.slot] is not request:
                raise SnapshotError(f"request {request.request_id!r} is not at its slot {request.slot}")
        n_free = sum(request is None for request in self._slots)
        if n_free != len(self._free) or n_free + len(self._requests) != len(self._slots):
            raise SnapshotError("slots: free and taken ones do not add up")

    def explain(self, request_id: str) -> dict[str, Any]:
        request = self._running(request_id)
        out = DraftBatch.allocate(1, 64)
        found = self._fill(request, _ask(64, None, Topology.TREE, 0.0), out, 0, commit=False)
        draft = out.row(0)
        return {
            "rule": self.name,
            "n_tokens": request.text.n,
            "n_prompt": len(request.prompt),
            "match_length": found.match_length,
            "source": found.source.name.lower(),
            "reason": draft.reason.name.lower(),
            "draft": str(draft),
        }

    # Shared by the calls above

    def _running(self, request_id: str) -> Request:
        try:
            return self._requests[request_id]
        except (KeyError, TypeError):
            raise ConfigError(f"request {request_id!r} is not running: begin it first") from None

    def _at(self, slot: int) -> Request:
        request = self._slots[slot] if 0 <= slot < len(self._slots) else None
        if request is None:
            raise ConfigError(f"slot {slot} holds no running request: use the slot that begin returned")
        return request

    def _stored(self, tokens: Tokens, name: str) -> Int32:
        """A copy of `tokens` in which every placeholder has a negative number of its own."""
        given = as_tokens(tokens, name).astype(np.int64)
        odd = np.flatnonzero((given < 0) | (given >= self.vocab_size))
        given[odd] = PLACEHOLDER - (self._n_placeholders + np.arange(len(odd))) % (1 << 30)
        self._n_placeholders += len(odd)
        return given.astype(np.int32)

    def _accept(self, request: Request, tokens: Tokens) -> None:
        if len(tokens) == 0:
            offered, parents = request.draft
            request.banned.update(offered[parents < 0].tolist())
            return
        if request.text.n < len(request.prompt):
            raise ConfigError(f"accept: request {request.request_id!r} has prompt tokens left: ingest them first")
        start = request.text.n
        request.text.append(self._stored(tokens, "tokens"))
        self._extend(request, start)
        request.banned.clear()
        request.drafted = False

    def _fill(self, request: Request, ask: Ask, out: DraftBatch, i: int, *, commit: bool) -> Found:
        row = Row(out.tokens[i], out.parents[i], out.path_q30[i])
        found, n = NOTHING, 0
        if not request.ready:
            reason = Reason.TOO_SHORT
        elif ask.width <= 0:
            reason = Reason.BUDGET
        elif ask.depth <= 0:
            reason = Reason.LENGTH_LIMIT
        else:
            found = self._propose(request, ask, row, commit=commit)
            banned = np.array(sorted(request.banned), np.int32)
            scratch = np.empty((3, found.n + 1), np.int32)
            n = prune(found.n, ask.depth, ask.tree, banned, *row, scratch)
            below = found.match_length > 0 and found.n == 0 and ask.min_prob > 0
            reason = Reason.DRAFTED if n else Reason.BELOW_MIN if below else Reason.NO_MATCH
        out.n_draft[i] = n
        out.sources[i, :n] = found.source
        out.match_length[i] = found.match_length
        out.reason[i] = reason
        if commit:
            request.draft = (row.tokens[:n].copy(), row.parents[:n].copy())
            request.drafted = request.ready
            self._counters[f"n_drafts_{reason.name.lower()}"] += 1
            self._counters["n_drafted_tokens"] += n
        return found


def _ask(max_draft: int, remaining: int | None, topology: str | Topology, min_prob: float) -> Ask:
    probability(min_prob, "min_prob")
    depth = max_draft if remaining is None else min(max_draft, remaining - 1)
    return Ask(max_draft, depth, Topology.parse(topology) is Topology.TREE, min_prob)
