"""What every rival rule keeps: the protocol of caches, determinism, tenants, placeholders, truncation."""

import json
import random

import numpy as np
import pytest

from ngramspec.caches.base import Cache
from ngramspec.draft import DraftBatch, Reason
from ngramspec.errors import CapacityError, ConfigError
from tests.baselines import ALL, LEARNING, LOOP, SHARING, UNFORGETTING, chain, replay, rule


@pytest.fixture(params=ALL)
def name(request):
    return request.param


@pytest.fixture(params=LEARNING)
def learner(request):
    """A rule that drafts from what requests emit."""
    return request.param


def test_every_rule_keeps_the_protocol(name):
    cache = rule(name)
    assert isinstance(cache, Cache)
    assert cache.name == name


def test_a_request_drafts_from_what_it_emitted_before(learner):
    cache = rule(learner)
    replay(cache, "a", LOOP[:3], LOOP[3:], step=2)
    assert chain(cache, max_draft=2) == [1, 2]


def test_reasons_of_empty_drafts(name):
    cache = rule(name)
    cache.begin("a", [])
    assert cache.draft("a", max_draft=3).reason is Reason.TOO_SHORT
    cache.begin("b", [5, 6, 7], max_tokens=2)
    assert cache.draft("b", max_draft=3).reason is Reason.TOO_SHORT
    assert cache.ingest("b") == 0
    assert cache.draft("b", max_draft=3).reason is Reason.NO_MATCH
    assert cache.draft("b", max_draft=0).reason is Reason.BUDGET
    assert cache.draft("b", max_draft=3, remaining=1).reason is Reason.LENGTH_LIMIT


def test_a_single_token_and_an_empty_prompt_draft_nothing(name):
    cache = rule(name)
    for i, context in enumerate(([], [9])):
        cache.begin(f"r{i}", context)
        assert chain(cache, f"r{i}") == []


def test_drafts_leave_room_for_the_bonus_token(learner):
    cache = rule(learner)
    replay(cache, "a", [], LOOP)
    for remaining in range(1, 5):
        draft = cache.draft("a", max_draft=8, remaining=remaining)
        assert max(draft.depths(), default=0) == remaining - 1
        assert len(chain(cache, max_draft=8, remaining=remaining)) == remaining - 1


def test_drafts_stay_within_max_draft_and_are_trees(name):
    cache = rule(name)
    rng = random.Random(1)
    text = [rng.randrange(4) for _ in range(300)]
    cache.begin("a", text[:50])
    for i in range(50, 300, 3):
        draft = cache.draft("a", max_draft=i % 9)
        assert len(draft) <= i % 9
        assert all(-1 <= parent < j for j, parent in enumerate(draft.parents))
        siblings = list(zip(draft.parents.tolist(), draft.tokens.tolist()))
        assert len(set(siblings)) == len(siblings)
        assert all(
            0 < p <= (draft.probs[parent] if parent >= 0 else 1) for p, parent in zip(draft.probs, draft.parents)
        )
        line = cache.draft("a", max_draft=i % 9, topology="chain")
        assert line.parents.tolist() == list(range(-1, len(line) - 1))
        cache.accept("a", text[i : i + 3])
    cache.check_integrity()


def test_refused_first_tokens_are_not_offered_again_before_progress(learner):
    cache = rule(learner)
    replay(cache, "a", [], LOOP)
    refused = set()
    for _ in range(3):
        draft = cache.draft("a", max_draft=4)
        first = {int(t) for t, p in zip(draft.tokens, draft.parents) if p < 0}
        assert first.isdisjoint(refused)
        refused |= first
        cache.accept("a", [])
    assert 1 in refused
    cache.accept("a", LOOP[:8])
    assert chain(cache, max_draft=1) == [1]


@pytest.mark.parametrize("odd", [-1, -(2**31), 200_000, 2**31 - 1])
def test_placeholders_are_neither_matched_across_nor_drafted(name, odd):
    cache = rule(name)
    replay(cache, "a", [5, odd, odd, 6], [7, 5])
    assert chain(cache, max_draft=4) == []
    cache.accept("a", [odd, odd])
    assert chain(cache, max_draft=4) == []
    cache.begin("b", [7, 5, odd, 6, *range(30, 80), 7, 5])
    cache.accept("b", [odd])
    assert chain(cache, "b", max_draft=4) == []
    cache.accept("b", [7, 5])
    assert chain(cache, "b", max_draft=4) == []
    cache.check_integrity()


def test_ids_above_16_bits_and_token_zero_are_tokens_like_others(learner):
    cache = rule(learner)
    for request, token in (("a", 0), ("b", 151_643)):
        replay(cache, request, [], [token, 151_644, 7, 8, 9, 10, 11, 12] * 10)
        assert chain(cache, request, max_draft=2) == [token, 151_644]


def test_a_reused_id_drafts_as_a_fresh_one(learner):
    first, second = [1, 2, 3, 4, 5] * 16, [11, 12, 13, 14, 15] * 16
    used, fresh = rule(learner), rule(learner)
    for cache, id1 in ((used, "a"), (fresh, "other")):
        replay(cache, id1, [], first)
        cache.finish(id1)
        replay(cache, "a", [], second)
    assert used.draft("a", max_draft=8).tokens.tolist() == fresh.draft("a", max_draft=8).tokens.tolist() != []


@pytest.mark.parametrize("name", [name for name in ALL if name not in UNFORGETTING])
@pytest.mark.parametrize("keep", [0, 1, 7, 20, 33, 40])
def test_after_truncation_a_request_drafts_as_a_fresh_one(name, keep):
    rng = random.Random(keep)
    text = [rng.randrange(3) for _ in range(40)]
    tail = [rng.randrange(3) for _ in range(6)]
    cut, fresh = rule(name), rule(name)
    replay(cut, "a", text[:20], text[20:])
    cut.truncate("a", keep)
    replay(fresh, "a", text[: min(keep, 20)], text[20:keep])
    for token in tail:
        drafts = [cache.draft("a", max_draft=6) for cache in (cut, fresh)]
        assert drafts[0].tokens.tolist() == drafts[1].tokens.tolist()
        assert drafts[0].parents.tolist() == drafts[1].parents.tolist()
        for cache in (cut, fresh):
            cache.accept("a", [token])
    cut.check_integrity()


@pytest.mark.parametrize("keep", [3, 43])
@pytest.mark.parametrize("name", UNFORGETTING)
def test_after_truncation_a_request_goes_on_from_what_is_left(name, keep):
    cache = rule(name)
    replay(cache, "a", LOOP[:8], LOOP[8:])
    cache.truncate("a", keep)
    for token in [4, 5, 6]:
        assert chain(cache, max_draft=2) == [token, token + 1]
        cache.accept("a", [token])
    cache.check_integrity()


def test_reset_forgets_everything(name):
    cache, fresh = rule(name), rule(name)
    replay(cache, "a", [1, 2, 3], [4, 5, 1, 2, 3, 4] * 10)
    cache.reset()
    with pytest.raises(ConfigError, match="not running"):
        cache.draft("a", max_draft=1)
    for c in (cache, fresh):
        replay(c, "a", [1, 2, 3], [9, 1, 2])
    assert cache.draft("a", max_draft=8).tokens.tolist() == fresh.draft("a", max_draft=8).tokens.tolist()
    assert cache.stats() == fresh.stats()


def random_run(name, seed, batched):
    """Drafts of several requests with random texts; one call a request, or one a step."""
    rng = random.Random(seed)
    cache = rule(name)
    slots = [cache.begin(f"r{i}", [rng.randrange(5) for _ in range(20)]) for i in range(3)]
    out = DraftBatch.allocate(3, 8)
    found = []
    for _ in range(40):
        new = [[rng.randrange(5) for _ in range(rng.randrange(1, 4))] for _ in slots]
        if batched:
            cache.draft_batch(np.array(slots, np.int32), out, max_draft=8)
            drafts = [out.row(i) for i in range(3)]
            offsets = np.cumsum([0, *map(len, new)]).astype(np.int32)
            cache.accept_batch(np.array(slots, np.int32), np.concatenate(new).astype(np.int32), offsets)
        else:
            drafts = [cache.draft(f"r{i}", max_draft=8) for i in range(3)]
            for i in range(3):
                cache.accept(f"r{i}", new[i])
        found += [(d.tokens.tolist(), d.parents.tolist(), d.probs.tolist(), d.match_length) for d in drafts]
    cache.check_integrity()
    return found


def test_drafts_depend_on_the_calls_alone(name):
    assert random_run(name, 3, batched=True) == random_run(name, 3, batched=False)


def test_rows_may_come_in_any_order(learner):
    cache = rule(learner)
    slots = []
    for i in range(3):
        replay(cache, f"r{i}", [], [10 * i + j for j in range(8)] * 10)
        slots.append(cache._requests[f"r{i}"].slot)
    out = DraftBatch.allocate(3, 8)
    found = {}
    for order in ([0, 1, 2], [2, 0, 1]):
        cache.draft_batch(np.array([slots[i] for i in order], np.int32), out, max_draft=8)
        rows = [(out.row(i).tokens.tolist(), out.row(i).parents.tolist()) for i in range(3)]
        found[tuple(order)] = dict(zip(order, rows))
    assert found[0, 1, 2] == found[2, 0, 1]
    assert all(tokens for tokens, _ in found[0, 1, 2].values())


def test_absence_from_a_batch_changes_nothing(learner):
    alone, beside = rule(learner), rule(learner)
    text = [50, 51, 52, 53, 60, 3, 7, 8]
    for cache in (alone, beside):
        replay(cache, "a", [1, 2, 3], text * 10)
    beside.begin("b", [900, 901, 902])
    for token in (903, 904, 905):
        beside.draft("b", max_draft=3)
        beside.accept("b", [token])
    assert chain(alone) == chain(beside) == [50, 51, 52]


def test_draft_batch_takes_limits_by_row(learner):
    cache = rule(learner)
    slots = []
    for i in range(3):
        replay(cache, f"r{i}", [], LOOP)
        slots.append(cache._requests[f"r{i}"].slot)
    out = DraftBatch.allocate(3, 4)
    cache.draft_batch(
        np.array(slots, np.int32),
        out,
        max_draft=np.array([9, 1, 9], np.int32),
        remaining=np.array([-1, -1, 3], np.int32),
        topology="chain",
    )
    assert out.n_draft.tolist() == [4, 1, 2]


def test_wrong_calls_are_refused(name):
    cache = rule(name, max_requests=2)
    slot = cache.begin("a", [1, 2, 3])
    for wrong in (
        lambda: cache.begin("a", [1]),
        lambda: cache.begin("b", [1], share="everything"),
        lambda: cache.draft("b", max_draft=1),
        lambda: cache.draft("a", max_draft=-1),
        lambda: cache.draft("a", max_draft=1, topology="bush"),
        lambda: cache.draft("a", max_draft=1, min_prob=1.5),
        lambda: cache.truncate("a", 4),
        lambda: cache.finish("b"),
        lambda: cache.accept_batch(np.array([slot + 1], np.int32), np.zeros(0, np.int32), np.zeros(2, np.int32)),
        lambda: rule(name, vocab_size=0),
        lambda: rule(name, capacity_tokens=0),
    ):
        with pytest.raises(ConfigError):
            wrong()
    cache.begin("b", [1], max_tokens=0)
    with pytest.raises(ConfigError, match="ingest"):
        cache.accept("b", [1])
    with pytest.raises(CapacityError, match="max_requests"):
        cache.begin("c", [1])


def test_an_unknown_option_is_an_error(name):
    with pytest.raises(TypeError, match="max_order"):
        rule(name, max_order=3)


def test_explain_changes_nothing_and_counters_add_up(learner):
    cache, other = rule(learner), rule(learner)
    for c in (cache, other):
        c.begin("a", [])
        for token in LOOP:
            if c is cache:
                c.explain("a")
            c.draft("a", max_draft=4)
            c.accept("a", [token])
    assert cache.stats() == other.stats()
    assert chain(cache) == chain(other)
    told = cache.explain("a")
    assert (told["rule"], told["n_tokens"], told["reason"]) == (learner, 80, "drafted")
    json.dumps(told)
    counts = cache.stats()
    assert sum(n for key, n in counts.items() if key.startswith("n_drafts_")) == 81
    assert counts["nbytes"] == cache.nbytes > 0


@pytest.mark.parametrize("capacity", [1, 4, 40])
def test_every_capacity_works_for_ever_or_is_refused(name, capacity):
    try:
        cache = rule(name, capacity_tokens=capacity)
    except ConfigError as error:
        assert "capacity" in str(error)
        return
    rng = random.Random(0)
    for i in range(12):
        replay(cache, f"r{i}", [rng.randrange(3) for _ in range(9)], [rng.randrange(3) for _ in range(30)], step=3)
        cache.check_integrity()
        cache.finish(f"r{i}")


@pytest.mark.parametrize("name", SHARING)
def test_outputs_are_shared_within_the_tenant_only(name):
    text = [1, 2, 3, 4, 5, 6, 7, 8]
    cache = rule(name)
    replay(cache, "a", [], text, tenant="x")
    cache.finish("a")
    for tenant, expected in (("x", [4, 5]), ("y", []), (None, [])):
        replay(cache, str(tenant), [], text[:3], tenant=tenant)
        assert chain(cache, str(tenant), max_draft=2) == expected
        cache.finish(str(tenant))


@pytest.mark.parametrize("name", SHARING)
def test_share_none_keeps_a_request_to_itself(name):
    text = [1, 2, 3, 4, 5, 6, 7, 8]
    cache = rule(name)
    replay(cache, "a", [], text, share="none")
    cache.finish("a")
    replay(cache, "b", [], text[:3])
    assert chain(cache, "b") == []
