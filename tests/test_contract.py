"""What every cache promises, checked for each of them."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from ngramspec.caches.base import Cache
from ngramspec.draft import Reason
from tests import strategies as some
from tests.checks import drafts
from tests.kinds import DRAFTING, KINDS, make
from tests.machine import CacheMachine
from tests.scripted import elsewhere, scripted

pytestmark = pytest.mark.jit_off

every_cache = pytest.mark.parametrize("name", KINDS)
drafting_caches = pytest.mark.parametrize("name", DRAFTING)

WIDTH = 11


def same(one, other):
    """Two drafts, in everything."""
    parts = ("tokens", "parents", "probs", "sources")
    return all(getattr(one, p).tolist() == getattr(other, p).tolist() for p in parts) and (
        (one.match_length, one.reason) == (other.match_length, other.reason)
    )


def live(cache, lives, pieces=False):
    """Run requests one after the other; returns the slots of those that did not end, by id."""
    slots = {}
    for i, life in enumerate(lives):
        request_id = f"r{i}"
        where = {"session": life.session, "tenant": life.tenant, "share": life.share}
        slots[request_id] = cache.begin(request_id, life.prompt, **where, max_tokens=0 if pieces else None)
        for n in life.pieces if pieces else ():
            cache.ingest(request_id, n)
        cache.ingest(request_id)
        for tokens in life.outputs:
            cache.accept(request_id, tokens)
        if life.ends:
            cache.finish(request_id)
            del slots[request_id]
    return slots


@every_cache
def test_it_keeps_the_protocol(name):
    cache = make(name)
    assert isinstance(cache, Cache)
    assert cache.name == name


@pytest.mark.parametrize("roomy", [True, False], ids=["roomy", "smallest capacity"])
@every_cache
def test_random_calls_keep_every_promise(name, roomy):
    run_state_machine_as_test(lambda: CacheMachine(name, roomy), settings=settings(stateful_step_count=40))


# Different ways to the same state.


@every_cache
@given(prompt=some.texts(max_size=20), outputs=st.lists(some.texts(max_size=6), max_size=3), keep=st.integers(0, 99))
def test_a_truncated_request_drafts_as_a_fresh_one_with_its_text(name, prompt, outputs, keep):
    cache = make(name, capacity_tokens=65_536)
    text = [*prompt, *chain(*outputs)]
    n_tokens = keep % (len(text) + 1)
    cache.begin("cut", prompt, share="none")
    for tokens in outputs:
        cache.accept("cut", tokens)
    cache.truncate("cut", n_tokens)
    cache.begin("fresh", text[: min(n_tokens, len(prompt))], share="none")
    if n_tokens > len(prompt):
        cache.accept("fresh", text[len(prompt) : n_tokens])
    for more in ([], [1], text[n_tokens:]):
        if more:
            cache.accept("cut", more)
            cache.accept("fresh", more)
        assert same(cache.draft("cut", max_draft=WIDTH), cache.draft("fresh", max_draft=WIDTH))


@every_cache
@given(lives=some.lives())
def test_a_prompt_in_pieces_is_a_prompt_at_once(name, lives):
    whole, parts = make(name), make(name)
    slots = live(whole, lives)
    assert live(parts, lives, pieces=True) == slots
    assert parts.digest() == whole.digest()


@every_cache
def test_what_is_not_ingested_yet_is_not_drafted_from(name):
    prompt = [1, 1, 1, 1]
    cache, whole = make(name), make(name)
    cache.begin("a", prompt, max_tokens=3)
    whole.begin("a", prompt)
    draft = cache.draft("a", max_draft=3)
    assert len(draft) == draft.match_length == 0
    cache.accept("a", [])  # refuses nothing, for nothing was offered
    assert cache.ingest("a", 1) == 0, "an accept ingests the rest first"
    assert same(cache.draft("a", max_draft=3), whole.draft("a", max_draft=3))


@every_cache
@given(lives=some.lives(min_size=2, max_size=6), random=st.randoms(use_true_random=False), topology=some.topologies)
def test_the_order_of_rows_changes_nothing_but_the_order_of_drafts(name, lives, random, topology):
    straight, mixed, single = make(name), make(name), make(name)
    slots = live(straight, lives)
    live(mixed, lives)
    live(single, lives)
    ids = sorted(slots)
    shuffled = random.sample(ids, len(ids))
    expected = dict(zip(ids, drafts(straight, [slots[i] for i in ids], topology=topology)))
    for request_id, draft in zip(shuffled, drafts(mixed, [slots[i] for i in shuffled], topology=topology)):
        assert same(draft, expected[request_id])
        assert same(draft, single.draft(request_id, max_draft=WIDTH, topology=topology))
    assert straight.digest() == mixed.digest() == single.digest()


@every_cache
@given(lives=some.lives(min_size=2), emitted=st.lists(some.texts(max_size=5), min_size=4, max_size=4))
def test_a_batch_is_accepted_as_its_requests_one_by_one(name, lives, emitted):
    batch, single = make(name), make(name)
    slots = live(batch, lives)
    live(single, lives)
    rows = list(zip(sorted(slots), emitted))
    if KINDS[name].learns:  # from what was known when a request drafted, or else when it accepts
        for cache in (batch, single):
            drafts(cache, [slots[i] for i, _ in rows])
    flat = np.array([token for _, tokens in rows for token in tokens], np.int32)
    offsets = np.cumsum([0, *(len(tokens) for _, tokens in rows)]).astype(np.int32)
    batch.accept_batch(np.array([slots[i] for i, _ in rows], np.int32), flat, offsets)
    for request_id, tokens in rows:
        single.accept(request_id, tokens)
    assert batch.digest() == single.digest()


@every_cache
@given(lives=some.lives(), absent=some.texts(min_size=1, max_size=12), n_steps=st.integers(1, 5))
def test_absence_from_batches_changes_nothing(name, lives, absent, n_steps):
    cache = make(name)
    live(cache, lives)
    cache.begin("absent", absent, tenant="alone")
    cache.begin("other", [1, 2, 1], tenant="elsewhere")
    for _ in range(n_steps):
        cache.draft("other", max_draft=3)
        cache.accept("other", [2, 1])
    cache.begin("fresh", absent, tenant="alone")
    assert same(cache.draft("absent", max_draft=WIDTH), cache.draft("fresh", max_draft=WIDTH))


@every_cache
def test_a_budget_a_row_is_that_rows(name):
    cache, alone = make(name), make(name)
    prompt = [1, 2, 3, 4, 1, 2, 3, 4]
    rows = [(0, -1), (1, -1), (WIDTH, 3), (WIDTH, -1)]
    slots = [cache.begin(f"r{i}", prompt, tenant=f"t{i}") for i in range(len(rows))]
    most, left = (np.array(column, np.int32) for column in zip(*rows))
    for i, draft in enumerate(drafts(cache, slots, max_draft=most, remaining=left)):
        limit = None if rows[i][1] < 0 else rows[i][1]
        alone.begin(f"r{i}", prompt, tenant=f"t{i}")
        assert same(draft, alone.draft(f"r{i}", max_draft=rows[i][0], remaining=limit))


@every_cache
@given(lives=some.lives(max_size=3), before=some.lives(min_size=1, max_size=2))
def test_reset_is_a_fresh_cache(name, lives, before):
    used, fresh = make(name), make(name)
    live(used, before)
    used.reset()
    assert used.digest() == fresh.digest()
    assert live(used, lives) == live(fresh, lives)
    assert used.digest() == fresh.digest()


@every_cache
@given(lives=some.lives(), prompt=some.texts(min_size=1), tenant=some.tenants)
def test_a_reused_id_is_as_good_as_a_new_one(name, lives, prompt, tenant):
    reused, new = make(name), make(name)
    for cache in (reused, new):
        live(cache, lives)
        cache.begin("a", [1, 2, 3, 1, 2])
        cache.draft("a", max_draft=3)
        cache.finish("a")
    reused.begin("a", prompt, tenant=tenant)
    new.begin("b", prompt, tenant=tenant)
    assert same(reused.draft("a", max_draft=WIDTH), new.draft("b", max_draft=WIDTH))


# The same everywhere.


@every_cache
def test_equal_calls_give_equal_state_in_any_process(name):
    expected = scripted(name)
    assert scripted(name) == expected
    assert scripted(name, seed=2) != expected
    assert elsewhere(name, PYTHONHASHSEED="4711") == expected


# Refused drafts.


@drafting_caches
def test_a_refused_draft_is_not_repeated_before_progress(name):
    """Every first token of a wide draft, not just the best ones."""
    cache = make(name, vocab_size=64, eos_ids=(), **KINDS[name].exact)
    prompt = [token for follower in range(1, 13) for token in (0, follower)] + [0]
    cache.begin("a", prompt)
    refused = set()
    while len(draft := cache.draft("a", max_draft=24)):
        roots = set(draft.tokens[draft.parents < 0].tolist())
        assert roots and not roots & refused
        refused |= roots
        cache.accept("a", [])
    assert refused == set(range(1, 13))
    cache.accept("a", [1, 0])
    assert len(cache.draft("a", max_draft=24)) > 0


@drafting_caches
def test_refusals_do_not_silence_a_context_for_good(name):
    cache = make(name)
    cache.begin("a", [1, 2, 3, 1, 2])
    expected = cache.draft("a", max_draft=1).tokens.tolist()
    for _ in range(20):
        cache.draft("a", max_draft=5)
        cache.accept("a", [5, 1, 2])  # never what was drafted
    for _ in range(3):
        cache.accept("a", [3, 1, 2])
    assert cache.draft("a", max_draft=1).tokens.tolist() == expected == [3]


@every_cache
def test_counters_add_up(name):
    cache = make(name)
    cache.begin("a", [1, 2, 3, 1, 2])
    for most in (0, 3, 3):
        cache.draft("a", max_draft=most)
    cache.accept("a", [3, 4])
    cache.begin("b", [], max_tokens=0)
    cache.draft("b", max_draft=3)
    stats = cache.stats()
    assert stats["drafts"] == 4 == sum(stats.get(f"drafts_{reason.name.lower()}", 0) for reason in Reason)
    assert (stats["prompt_tokens"], stats["emitted_tokens"], stats["running_requests"]) == (5, 2, 2)
