"""Random calls on a cache and on the oracle side by side, with every promise checked after each."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ngramspec.draft import Draft, DraftBatch, Reason
from ngramspec.errors import CapacityError, ConfigError
from tests import strategies as some
from tests.checks import check_reason, check_shape, check_siblings, check_text, paths
from tests.kinds import KINDS, make, smallest_capacity
from tests.oracle import Oracle

IDS = ("a", "b", "c", "d", "e")
MAX_REQUESTS = 4

#: Places of one token up to which a walk over all of them is promised; see `HashConfig.max_hops`.
FEW = 40

picks = st.integers(0, 1_000)


class CacheMachine(RuleBasedStateMachine):
    """One cache under random calls.

    Parameters
    ----------
    name : str
        The cache.
    roomy : bool
        Whether nothing is ever evicted, so that what must be found is known too.
    """

    def __init__(self, name: str, roomy: bool) -> None:
        super().__init__()
        self.kind, self.roomy = KINDS[name], roomy
        settings = {"max_requests": MAX_REQUESTS, "max_sessions": 64 if roomy else 2} | (self.kind.exact or {})
        capacity = 4_096 if roomy else smallest_capacity(name, max_requests=MAX_REQUESTS)
        self.cache = make(name, **settings, capacity_tokens=capacity)
        self.nbytes = self.cache.nbytes
        self.oracle = Oracle(some.VOCAB_SIZE, self.kind.shared_context)
        self.slots: dict[str, int] = {}
        self.repeats_unshared = False  # a turn that shares all, but not what it repeats of its session

    # Calls that change what is known.

    @precondition(lambda self: len(self.slots) < MAX_REQUESTS)
    @rule(
        pick=picks,
        prompt=some.texts(),
        session=some.sessions,
        tenant=some.tenants,
        share=some.shares,
        max_tokens=some.pieces,
    )
    def begin(self, pick, prompt, **settings):
        request_id = choose([i for i in IDS if i not in self.slots], pick)
        slot = self.cache.begin(request_id, prompt, **settings)
        assert slot not in self.slots.values()
        self.oracle.begin(request_id, prompt, **settings)
        self.slots[request_id] = slot
        self.ingested(request_id, self.cache.ingest(request_id, 0))
        self.repeats_unshared |= settings["session"] is not None and settings["share"] == "all"

    @precondition(lambda self: self.slots)
    @rule(pick=picks, max_tokens=some.pieces)
    def ingest(self, pick, max_tokens):
        request_id = choose(self.slots, pick)
        left = self.cache.ingest(request_id, max_tokens)
        self.oracle.ingest(request_id, max_tokens)
        self.ingested(request_id, left)

    @precondition(lambda self: self.slots)
    @rule(pick=picks, tokens=some.texts(max_size=6))
    def accept(self, pick, tokens):
        request_id = choose(self.slots, pick)
        self.cache.accept(request_id, tokens)
        self.oracle.accept(request_id, tokens)

    @precondition(lambda self: self.slots)
    @rule(order=st.permutations(IDS), emitted=st.lists(some.texts(max_size=4), min_size=len(IDS), max_size=len(IDS)))
    def accept_batch(self, order, emitted):
        rows = [(i, tokens) for i, tokens in zip(order, emitted) if i in self.slots][:3]  # the others are absent
        flat = [token for _, tokens in rows for token in tokens]
        offsets = np.cumsum([0, *(len(tokens) for _, tokens in rows)]).astype(np.int32)
        self.cache.accept_batch(self.slots_of([i for i, _ in rows]), np.array(flat, np.int32), offsets)
        for request_id, tokens in rows:
            self.oracle.accept(request_id, tokens)

    @precondition(lambda self: self.slots)
    @rule(pick=picks, keep=picks)
    def truncate(self, pick, keep):
        request_id = choose(self.slots, pick)
        request = self.oracle.running[request_id]
        n_tokens = keep % (len(request.tokens) + len(request.waiting) + 1)
        self.cache.truncate(request_id, n_tokens)
        self.oracle.truncate(request_id, n_tokens)

    @precondition(lambda self: self.slots)
    @rule(pick=picks)
    def finish(self, pick):
        request_id = choose(self.slots, pick)
        self.cache.finish(request_id)
        self.oracle.finish(request_id)
        del self.slots[request_id]

    @precondition(lambda self: len(self.slots) == MAX_REQUESTS)
    @rule()
    def reset(self):
        self.cache.reset()
        self.oracle.reset()
        self.slots.clear()
        self.repeats_unshared = False

    # Drafts.

    @precondition(lambda self: self.slots)
    @rule(
        pick=picks,
        max_draft=some.budgets,
        topology=some.topologies,
        min_prob=some.min_probs,
        remaining=some.remaining,
        refused=st.booleans(),
    )
    def draft(self, pick, refused, **settings):
        request_id = choose(self.slots, pick)
        draft = self.cache.draft(request_id, **settings)
        self.check_draft(request_id, draft, **settings)
        if refused:
            self.cache.accept(request_id, [])
            self.oracle.accept(request_id, [])

    @precondition(lambda self: self.slots)
    @rule(
        order=st.permutations(IDS),
        max_draft=st.lists(some.budgets, min_size=len(IDS), max_size=len(IDS)),
        topology=some.topologies,
        min_prob=some.min_probs,
        remaining=st.one_of(st.none(), st.lists(st.integers(-1, 6), min_size=len(IDS), max_size=len(IDS))),
    )
    def draft_batch(self, order, max_draft, remaining, **settings):
        rows = [i for i in order if i in self.slots][:3]
        n, out = len(rows), DraftBatch.allocate(len(rows), 11)
        left = None if remaining is None else np.array(remaining[:n], np.int32)
        most = np.array(max_draft[:n], np.int32)
        self.cache.draft_batch(self.slots_of(rows), out, max_draft=most, remaining=left, **settings)
        for i, request_id in enumerate(rows):
            limit = None if remaining is None or remaining[i] < 0 else remaining[i]
            budget = min(max_draft[i], out.width)
            self.check_draft(request_id, out.row(i), max_draft=budget, remaining=limit, **settings)

    # Calls that are refused and change nothing.

    @precondition(lambda self: self.slots)
    @rule(pick=picks)
    def refused_calls(self, pick):
        before = self.cache.digest()
        unknown = choose([i for i in IDS if i not in self.slots], pick)
        for call in (self.cache.finish, self.cache.ingest, self.cache.explain):
            with pytest.raises(ConfigError):
                call(unknown)
        running = choose(self.slots, pick)
        request = self.oracle.running[running]
        with pytest.raises(ConfigError):
            self.cache.begin(running, [1, 2])
        if not request.waiting:
            with pytest.raises(ConfigError):
                self.cache.truncate(running, len(request.tokens) + 1)
        if len(self.slots) == MAX_REQUESTS:
            with pytest.raises(CapacityError):
                self.cache.begin("f", [1, 2])
        assert self.cache.digest() == before

    # What holds after every call.

    @invariant()
    def state_is_sound(self):
        self.cache.check_integrity()
        assert self.cache.nbytes == self.nbytes
        assert self.cache.stats()["running_requests"] == len(self.slots)

    def ingested(self, request_id: str, left: int) -> None:
        """Follow the cache, which need not ingest what a turn repeats of its session's last."""
        request = self.oracle.running[request_id]
        assert left <= len(request.waiting) if request.session else left == len(request.waiting)
        self.oracle.ingest(request_id, len(request.waiting) - left)

    def check_draft(self, request_id: str, draft: Draft, *, max_draft, topology, min_prob, remaining):
        limits = {"max_draft": max_draft, "min_prob": min_prob, "remaining": remaining}
        check_shape(draft, **limits, chain=topology == "chain", eos_ids=(some.EOS,))
        if not self.kind.learns:  # it learns each follower's probability by itself
            check_siblings(draft)
        check_text(draft, self.oracle, request_id)
        if self.kind.config is None:
            assert draft.reason is Reason.DISABLED
        else:
            check_reason(draft, self.oracle, request_id, **limits)
            self.check_match(request_id, draft, min_prob)
        self.oracle.offer(request_id, [path[0] for path in paths(draft) if len(path) == 1])

    def check_match(self, request_id: str, draft: Draft, min_prob: float) -> None:
        """Check that the match is the longest there is, and that something is drafted where anything can be."""
        longest = self.oracle.longest(request_id, self.kind.max_match)
        if len(draft):
            assert (0 if self.kind.learns else 1) <= draft.match_length <= longest  # 0: from counts alone
        self.check_places(request_id)
        places = Counter(place.shared for place in self.oracle.occurrences(request_id))
        few = max(places.values(), default=0) <= FEW
        if self.roomy and few and not self.repeats_unshared and draft.reason in (Reason.DRAFTED, Reason.NO_MATCH):
            assert min_prob > 0 or (longest > 0) == (len(draft) > 0)
            if self.kind.exact is not None and len(draft):
                assert draft.match_length == longest

    def check_places(self, request_id: str) -> None:
        """Check that every place behind a draft is a true one, and is there once.

        A place whose text was evicted further back is a shorter match than it was.
        """
        explained, stats = self.cache.explain(request_id), self.cache.stats()
        for whose, shared in (("own", False), ("shared", True)):
            found = Counter(explained.get(f"{whose}_matches", ()))
            true = self.oracle.matches(request_id, shared, self.kind.max_match)
            if stats.get(f"{whose}_tokens_evicted", 0) == 0:
                assert found <= true
            else:
                assert all(at_least(n, found) <= at_least(n, true) for n in found)

    def slots_of(self, ids):
        return np.array([self.slots[i] for i in ids], np.int32)


def at_least(length: int, places: Counter[int]) -> int:
    """How many places match for `length` tokens or more."""
    return sum(n for other, n in places.items() if other >= length)


def choose(ids, pick: int) -> str:
    """One of `ids`."""
    return sorted(ids)[pick % len(ids)]
