"""What every cache promises, checked for each of them."""

import json
import os
import subprocess
import sys
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from ngramspec.caches.base import Cache
from ngramspec.draft import DraftBatch, Reason
from ngramspec.errors import CapacityError, ConfigError
from tests import strategies as some
from tests.kinds import DRAFTING, KINDS
from tests.machine import CacheMachine
from tests.scripted import scripted
from tests.sources import ROOT

pytestmark = pytest.mark.jit_off

every_cache = pytest.mark.parametrize("name", KINDS)
drafting_caches = pytest.mark.parametrize("name", DRAFTING)

WIDTH = 11


def make(name, **changed):
    defaults = {
        "vocab_size": some.VOCAB_SIZE,
        "eos_ids": (some.EOS,),
        "max_requests": 8,
        "max_sessions": 8,
        "capacity_tokens": 2_048,
    }
    return KINDS[name].make(**defaults | changed)


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


def drafts(cache, slots, **settings):
    out = DraftBatch.allocate(len(slots), WIDTH)
    cache.draft_batch(np.array(slots, np.int32), out, **{"max_draft": WIDTH} | settings)
    return [out.row(i) for i in range(len(slots))]


@every_cache
def test_it_keeps_the_protocol(name):
    cache = make(name)
    assert isinstance(cache, Cache)
    assert cache.name == name


@pytest.mark.parametrize("roomy", [True, False], ids=["roomy", "smallest capacity"])
@every_cache
def test_random_calls_keep_every_promise(name, roomy):
    run_state_machine_as_test(lambda: CacheMachine(KINDS[name], roomy), settings=settings(stateful_step_count=40))


# Different ways to the same state.


@every_cache
@given(prompt=some.texts(max_size=20), outputs=st.lists(some.texts(max_size=6), max_size=3), keep=st.integers(0, 99))
def test_a_truncated_request_drafts_as_a_fresh_one_with_its_text(name, prompt, outputs, keep):
    cut, fresh = make(name), make(name)
    text = [*prompt, *chain(*outputs)]
    n_tokens = keep % (len(text) + 1)
    cut.begin("a", prompt, share="none")
    for tokens in outputs:
        cut.accept("a", tokens)
    cut.truncate("a", n_tokens)
    fresh.begin("a", text[:n_tokens], share="none")
    for more in ([], [1], text[n_tokens:]):
        if more:
            cut.accept("a", more)
            fresh.accept("a", more)
        assert same(cut.draft("a", max_draft=WIDTH), fresh.draft("a", max_draft=WIDTH))


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
    flat = np.array([token for _, tokens in rows for token in tokens], np.int32)
    offsets = np.cumsum([0, *(len(tokens) for _, tokens in rows)]).astype(np.int32)
    batch.accept_batch(np.array([slots[i] for i, _ in rows], np.int32), flat, offsets)
    for request_id, tokens in rows:
        single.accept(request_id, tokens)
    assert batch.digest() == single.digest()


@every_cache
@given(lives=some.lives(min_size=2), absent=some.texts(min_size=1, max_size=6))
def test_absence_from_batches_changes_nothing(name, lives, absent):
    stayed, left = make(name), make(name)
    for cache in (stayed, left):
        live(cache, lives)
        cache.begin("other", [1, 2, 1], tenant="elsewhere")
        cache.begin("absent", absent, tenant="alone")
    for _ in range(3):
        left.draft("other", max_draft=3)
        left.accept("other", [2, 1])
    assert same(stayed.draft("absent", max_draft=WIDTH), left.draft("absent", max_draft=WIDTH))


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
    environment = {**os.environ, "PYTHONHASHSEED": "4711"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.scripted", name],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == expected


# Refusals.


@drafting_caches
def test_a_refused_draft_is_not_repeated_before_progress(name):
    """Every first token of a wide draft, not just the best ones."""
    cache = make(name, vocab_size=64, eos_ids=())
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


# Errors say what, got, allowed and what to do.


def slots_of(*values):
    return np.array(values, np.int32)


REFUSED = {
    "begin twice": (lambda c: c.begin("a", [1]), r"'a' is running; finish it first or use another id"),
    "finish unknown": (lambda c: c.finish("z"), r"'z' is not running; begin it first"),
    "draft unknown": (lambda c: c.draft("z", max_draft=1), r"'z' is not running"),
    "accept unknown": (lambda c: c.accept("z", [1]), r"'z' is not running"),
    "ingest unknown": (lambda c: c.ingest("z"), r"'z' is not running"),
    "truncate unknown": (lambda c: c.truncate("z", 0), r"'z' is not running"),
    "explain unknown": (lambda c: c.explain("z"), r"'z' is not running"),
    "share": (lambda c: c.begin("b", [1], share="some"), r"share: got 'some', allowed 'outputs', 'all', 'none'"),
    "topology": (
        lambda c: c.draft("a", max_draft=1, topology="star"),
        r"topology: got 'star', allowed 'chain' or 'tree'",
    ),
    "min_prob": (lambda c: c.draft("a", max_draft=1, min_prob=1.5), r"min_prob: got 1.5, allowed 0 to 1"),
    "min_prob nan": (lambda c: c.draft("a", max_draft=1, min_prob=float("nan")), r"min_prob: got nan"),
    "max_draft": (lambda c: c.draft("a", max_draft=-1), r"max_draft: got -1, must be an integer of at least 0"),
    "max_draft float": (lambda c: c.draft("a", max_draft=1.0), r"max_draft: got 1.0"),
    "remaining": (lambda c: c.draft("a", max_draft=1, remaining=-1), r"remaining: got -1"),
    "max_tokens": (lambda c: c.begin("b", [1, 2], max_tokens=-1), r"max_tokens: got -1"),
    "truncate too long": (lambda c: c.truncate("a", 6), r"n_tokens: got 6, request 'a' has 5 tokens"),
    "truncate negative": (lambda c: c.truncate("a", -1), r"n_tokens: got -1"),
    "prompt of floats": (lambda c: c.begin("b", [1.0]), r"prompt: must be a flat list of integer .*got float64"),
    "prompt of lists": (lambda c: c.begin("b", [[1], [2]]), r"prompt: .*of 2 dimensions"),
    "prompt of words": (lambda c: c.begin("b", "text"), r"prompt: must be a flat list"),
    "id too large": (lambda c: c.begin("b", [1, 2**31]), rf"prompt: got token id {2**31}, allowed .* to {2**31 - 2}"),
    "id too small": (lambda c: c.accept("a", [1, -(2**31) - 1]), rf"tokens: got token id {-(2**31) - 1}"),
    "slot unknown": (lambda c: drafts(c, [7]), r"slots\[0\]: no running request has slot 7"),
    "slot negative": (lambda c: drafts(c, [-1]), r"slots\[0\]: no running request has slot -1"),
    "slots dtype": (
        lambda c: c.draft_batch(np.zeros(1, np.int64), DraftBatch.allocate(1, 1), max_draft=1),
        r"slots: must be int32 of one dimension, got int64",
    ),
    "slots shape": (
        lambda c: c.accept_batch(np.zeros((1, 1), np.int32), slots_of(1), slots_of(0, 1)),
        r"slots: must be int32 of one dimension, got int32 of 2",
    ),
    "out too short": (
        lambda c: c.draft_batch(slots_of(0), DraftBatch.allocate(0, 4), max_draft=1),
        r"out: holds 0 rows, the batch has 1; allocate a larger DraftBatch",
    ),
    "max_draft per row": (lambda c: drafts(c, [0], max_draft=slots_of()), r"max_draft: got 0 values, need 1"),
    "remaining per row": (lambda c: drafts(c, [0], remaining=slots_of()), r"remaining: got 0 values, need 1"),
    "max_draft dtype": (lambda c: drafts(c, [0], max_draft=np.ones(1)), r"max_draft.*int32.*float64"),
    "remaining dtype": (lambda c: drafts(c, [0], remaining=np.ones(1, np.int64)), r"remaining.*int32.*int64"),
    "offsets too few": (
        lambda c: c.accept_batch(slots_of(0), slots_of(1), slots_of(0)),
        r"offsets: got 1 values, need 2",
    ),
    "offsets past the end": (lambda c: c.accept_batch(slots_of(0), slots_of(1), slots_of(0, 2)), r"offsets"),
    "offsets below 0": (lambda c: c.accept_batch(slots_of(0), slots_of(1), slots_of(-1, 1)), r"offsets"),
    "offsets falling": (lambda c: c.accept_batch(slots_of(0), slots_of(1), slots_of(1, 0)), r"offsets"),
    "offsets dtype": (
        lambda c: c.accept_batch(slots_of(0), slots_of(1), np.array([0, 1])),
        r"offsets: .*int32.*got int64",
    ),
    "tokens dtype": (
        lambda c: c.accept_batch(slots_of(0), np.array([1]), slots_of(0, 1)),
        r"tokens: .*int32.*got int64",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
@every_cache
def test_a_wrong_call_is_refused_by_name_and_changes_nothing(name, case):
    call, text = REFUSED[case]
    cache = make(name)
    assert cache.begin("a", [1, 2, 3, 1, 2]) == 0
    before = cache.digest()
    with pytest.raises(ConfigError, match=text):
        call(cache)
    assert cache.digest() == before
    cache.check_integrity()
    assert cache.stats()["running_requests"] == 1


@every_cache
def test_too_many_requests_are_refused_until_one_ends(name):
    cache = make(name, max_requests=2)
    cache.begin("a", [1])
    cache.begin("b", [1])
    with pytest.raises(CapacityError, match="2 requests are running, max_requests=2: finish some or raise"):
        cache.begin("c", [1])
    cache.finish("a")
    cache.begin("c", [1])
    assert cache.stats()["running_requests"] == 2


@every_cache
def test_a_slot_is_refused_once_its_request_ended(name):
    cache = make(name)
    slot = cache.begin("a", [1])
    cache.finish("a")
    with pytest.raises(ConfigError, match=f"no running request has slot {slot}"):
        drafts(cache, [slot])


@pytest.mark.parametrize("max_requests", [1, 2, 7])
@drafting_caches
def test_a_capacity_below_the_smallest_is_refused_and_the_smallest_named(name, max_requests):
    config = KINDS[name].config
    smallest = config(max_requests=max_requests).min_capacity_tokens
    for wrong in (0, -1, 4, smallest - 1, 2**31 - 1, None, 1e6):
        with pytest.raises(ConfigError, match=f"capacity_tokens: got .* allowed integers from {smallest} to"):
            config(capacity_tokens=wrong, max_requests=max_requests)
    cache = KINDS[name].make(capacity_tokens=smallest, max_requests=max_requests)
    cache.begin("a", [1, 2, 3, 1, 2])
    assert cache.draft("a", max_draft=1).tokens.tolist() == [3]


@drafting_caches
def test_memory_is_known_from_the_configuration(name):
    kind = KINDS[name]
    for settings_ in ({"capacity_tokens": 1_024, "max_requests": 2}, {"capacity_tokens": 50_000}):
        config = kind.config(**settings_)
        assert kind.make(**settings_).nbytes == config.nbytes == kind.make(**settings_).arena.buffer.nbytes


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
