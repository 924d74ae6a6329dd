"""Random calls on the suffix trie and on its definition: equal while nothing is evicted, and sound for ever."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from ngramspec.arena import P_OWN, P_SHARED, PLACE, X_PLACE
from ngramspec.caches.suffix_trie import SuffixTrieCache
from ngramspec.config import TrieConfig
from tests import strategies as some
from tests.naive_trie import Counts, NaiveTrie
from tests.trie_view import as_lists, drafted, trees

LIMITS = {"vocab_size": some.VOCAB_SIZE, "eos_ids": (some.EOS,), "max_requests": 3, "max_sessions": 64}
IDS = ("a", "b", "c")

picks = st.integers(0, 1_000)


class TrieMachine(RuleBasedStateMachine):
    """Random calls on the cache and on its definition.

    Parameters
    ----------
    depth, max_followers : int
        As in `TrieConfig`.
    max_nodes : int, optional
        None: nothing is ever evicted, and everything must be equal. Else counts may be lower, never higher.
    """

    def __init__(self, depth, max_followers=32, max_nodes=None):
        super().__init__()
        self.exact = max_nodes is None
        size = {"capacity_tokens": 2_048, "depth": depth, "max_followers": max_followers}
        self.cache = SuffixTrieCache(TrieConfig(**LIMITS, **size, max_nodes=max_nodes or 20_000))
        self.naive = NaiveTrie(some.VOCAB_SIZE, depth, max_followers, (some.EOS,))
        self.slots = {}

    @precondition(lambda self: len(self.slots) < len(IDS))
    @rule(pick=picks, prompt=some.texts(), session=some.sessions, tenant=some.tenants, share=some.shares)
    def begin(self, pick, prompt, **settings):
        free = [i for i in IDS if i not in self.slots]
        request_id = free[pick % len(free)]
        self.slots[request_id] = self.cache.begin(request_id, prompt, **settings)
        self.naive.begin(request_id, prompt, **settings)

    @precondition(lambda self: self.slots)
    @rule(pick=picks, tokens=some.texts(max_size=6))
    def accept(self, pick, tokens):
        request_id = self.choose(pick)
        self.cache.accept(request_id, tokens)
        self.naive.accept(request_id, tokens)

    @precondition(lambda self: self.slots)
    @rule(pick=picks, keep=picks)
    def truncate(self, pick, keep):
        request_id = self.choose(pick)
        n_tokens = keep % (len(self.naive.running[request_id].text) + 1)
        self.cache.truncate(request_id, n_tokens)
        self.naive.truncate(request_id, n_tokens)

    @precondition(lambda self: self.slots)
    @rule(pick=picks)
    def finish(self, pick):
        request_id = self.choose(pick)
        self.cache.finish(request_id)
        self.naive.finish(request_id)
        del self.slots[request_id]

    @precondition(lambda self: self.slots)
    @rule(
        pick=picks,
        max_draft=st.sampled_from([1, 2, 5, 11, 24]),
        topology=some.topologies,
        min_prob=some.min_probs,
        remaining=st.one_of(st.none(), st.integers(2, 6)),
    )
    def draft(self, pick, **settings):
        request_id = self.choose(pick)
        anew = self.draft_walked_anew(request_id, **settings)
        draft = self.cache.draft(request_id, **settings)
        assert drafted(draft) == drafted(anew)
        assert draft.match_length == anew.match_length
        defined = self.naive.draft(request_id, **settings)
        if self.exact:
            rounded = [
                (token, parent, float(np.float32(path / 2**30)), source) for token, parent, path, source in defined
            ]
            assert list(zip(draft.tokens, draft.parents, draft.probs.tolist(), draft.sources)) == rounded
        self.naive.running[request_id].offered = [int(t) for t, p in zip(draft.tokens, draft.parents) if p < 0]

    def draft_walked_anew(self, request_id, **settings):
        """A draft from places looked up again from the root; leaves the state as it was."""
        before = self.cache.arena.buffer.copy()
        first = int(self.cache.arena.header("trie")[X_PLACE]) + self.slots[request_id] * PLACE
        self.cache.arena.mem[[first + P_OWN, first + P_SHARED]] = 0
        draft = self.cache.draft(request_id, **settings)
        self.cache.arena.buffer[:] = before
        return draft

    @invariant()
    def state_is_sound(self):
        self.cache.check_integrity()
        assert self.cache.stats()["nodes"] <= self.cache.config.n_nodes

    @invariant()
    def counts_are_true(self):
        found = trees(self.cache)
        shared = [contexts for (kind, _), contexts in found.items() if kind == "shared"]
        true_shared = [counts for counts in self.naive.shared.values() if counts.followers]
        true_own = {
            row: Counts.of(self.naive.running[request_id].text, self.naive.depth)
            for request_id, row in self.slots.items()
        }
        if self.exact:
            for row, counts in true_own.items():
                assert found.get(("own", row), {}) == as_lists(counts)
            assert sorted(map(repr, map(sorted_items, shared))) == sorted(
                repr(sorted_items(as_lists(counts))) for counts in true_shared
            )
            return
        for row, counts in true_own.items():
            for path, seen in found.get(("own", row), {}).items():
                assert all(n <= counts.followers[path][token] for token, n in seen)
        assert len(shared) <= len(true_shared)

    def choose(self, pick):
        return sorted(self.slots)[pick % len(self.slots)]


def sorted_items(contexts):
    return sorted(contexts.items())


@pytest.mark.jit_off
@pytest.mark.parametrize(("depth", "max_followers"), [(2, 32), (4, 2), (8, 32), (11, 32)])
def test_counts_orders_and_drafts_are_those_of_the_definition(depth, max_followers):
    run_state_machine_as_test(lambda: TrieMachine(depth, max_followers), settings=settings(stateful_step_count=30))


@pytest.mark.jit_off
@pytest.mark.parametrize("extra", [0, 1, 2, 5, 20, 60])
@pytest.mark.parametrize("depth", [2, 3, 4, 8])
def test_every_node_limit_works_for_ever(depth, extra):
    smallest = depth * (depth - 1) // 2 + 3
    run_state_machine_as_test(
        lambda: TrieMachine(depth, max_nodes=smallest + extra),
        settings=settings(max_examples=12, stateful_step_count=30),
    )
