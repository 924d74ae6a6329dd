"""Rival rules: each on hand-made cases with the drafts its released package gives, and the protocol they all keep."""

import importlib
import json
import random

import numpy as np
import pytest

from ngramspec.baselines import BASELINES
from ngramspec.caches.base import Cache
from ngramspec.draft import DraftBatch, Reason, Source
from ngramspec.errors import CapacityError, ConfigError

#: Options under which a rule drafts from short texts, where its own defaults ask for long matches.
EAGER = {
    "ngram-mod": {"n_match": 2, "n_min": 0, "n_entries": 1 << 16},
    "vllm-ngram": {"min_n": 1},
}

#: Rules that remember what other requests emitted.
SHARING = ["sglang-ngram", "suffix-decoding", "vllm-suffix-adaptive"]

#: Rules that do not know whose their tokens are, and so cannot take any back when a request is truncated.
UNFORGETTING = ["ngram-mod", "sglang-ngram"]
ALL = sorted(BASELINES)

#: Long enough for rules that take note of an output now and then only.
LOOP = [1, 2, 3, 4, 5, 6, 7, 8] * 10


def rule(name, **options):
    module, cls = BASELINES[name].split(":")
    common = {"vocab_size": 200_000, "capacity_tokens": 10_000}
    return getattr(importlib.import_module(module), cls)(**{**common, **EAGER.get(name, {}), **options})


def chain(cache, request="a", max_draft=3, **options):
    return cache.draft(request, max_draft=max_draft, topology="chain", **options).tokens.tolist()


def seen(name, *outputs, **options):
    """The rule after requests that emitted `outputs`, none of them running any more."""
    cache = rule(name, **options)
    for i, output in enumerate(outputs):
        replay(cache, f"seen-{i}", [], output)
        cache.finish(f"seen-{i}")
    return cache


def replay(cache, request, prompt, output, step=1, **options):
    """Let a request emit `output`, `step` tokens at a time, drafting before each."""
    cache.begin(request, prompt, **options)
    for i in range(0, len(output), step):
        cache.draft(request, max_draft=4)
        cache.accept(request, output[i : i + step])


@pytest.fixture(params=ALL)
def name(request):
    return request.param


# What all of them keep


def test_every_rule_keeps_the_protocol(name):
    cache = rule(name)
    assert isinstance(cache, Cache)
    assert cache.name == name


def test_a_request_drafts_from_what_it_emitted_before(name):
    cache = rule(name)
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


def test_drafts_leave_room_for_the_bonus_token(name):
    cache = rule(name)
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


def test_refused_first_tokens_are_not_offered_again_before_progress(name):
    cache = rule(name)
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


def test_ids_above_16_bits_and_token_zero_are_tokens_like_others(name):
    cache = rule(name)
    for request, token in (("a", 0), ("b", 151_643)):
        replay(cache, request, [], [token, 151_644, 7, 8, 9, 10, 11, 12] * 10)
        assert chain(cache, request, max_draft=2) == [token, 151_644]


def test_a_reused_id_drafts_as_a_fresh_one(name):
    first, second = [1, 2, 3, 4, 5] * 16, [11, 12, 13, 14, 15] * 16
    used, fresh = rule(name), rule(name)
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


def test_rows_may_come_in_any_order(name):
    cache = rule(name)
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


def test_absence_from_a_batch_changes_nothing(name):
    alone, beside = rule(name), rule(name)
    text = [50, 51, 52, 53, 60, 3, 7, 8]
    for cache in (alone, beside):
        replay(cache, "a", [1, 2, 3], text * 10)
    beside.begin("b", [900, 901, 902])
    for token in (903, 904, 905):
        beside.draft("b", max_draft=3)
        beside.accept("b", [token])
    assert chain(alone) == chain(beside) == [50, 51, 52]


def test_draft_batch_takes_limits_by_row(name):
    cache = rule(name)
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


def test_explain_changes_nothing_and_counters_add_up(name):
    cache, other = rule(name), rule(name)
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
    assert (told["rule"], told["n_tokens"], told["reason"]) == (name, 80, "drafted")
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


# What the sharing ones keep


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


# Each rule


def test_prompt_lookup_takes_the_earliest_of_two_tokens_then_of_one():
    cache = rule("prompt-lookup")
    cache.begin("a", [1, 2, 9, 1, 2, 7, 1, 2])
    assert chain(cache) == [9, 1, 2]
    cache.begin("b", [2, 5, 8, 2, 6, 1, 2])  # (1, 2) is nowhere else, 2 is
    draft = cache.draft("b", max_draft=20)
    assert draft.tokens.tolist() == [5, 8, 2, 6, 1, 2]
    assert draft.match_length == 1
    assert set(draft.sources.tolist()) == {Source.OWN}


def test_prompt_lookup_indexes_a_cold_prompt_and_stops_at_its_end():
    cache = rule("prompt-lookup")
    cache.begin("a", [1, 2, 3, 1, 2])
    assert chain(cache, max_draft=3) == [3, 1, 2]
    assert chain(cache, max_draft=9) == [3, 1, 2]
    assert chain(cache, max_draft=3, remaining=2) == [3]


def test_prompt_lookup_drafts_ten_tokens_and_none_from_eos_on():
    text = [1, 2, *range(20, 40), 1, 2]
    cache = rule("prompt-lookup", eos_ids=(25,))
    cache.begin("a", text)
    assert chain(cache, max_draft=30) == [20, 21, 22, 23, 24]
    cache = rule("prompt-lookup")
    cache.begin("a", text)
    assert chain(cache, max_draft=30) == list(range(20, 30))
    cache = rule("prompt-lookup", eos_ids=(20,))
    cache.begin("a", [2, 7, *text])  # the longer match is followed by EOS: the shorter one is not tried
    assert chain(cache) == []


def test_vllm_ngram_takes_the_earliest_of_the_longest():
    context = [1, 2, 9, 1, 2, 7, 1, 2]
    for tie, expected in (("oldest", [9, 1, 2]), ("recent", [7, 1, 2])):
        cache = rule("vllm-ngram", tie=tie)
        cache.begin("a", context)
        assert chain(cache) == expected
    with pytest.raises(ConfigError, match="tie"):
        rule("vllm-ngram", tie="newest")


def test_vllm_ngram_wants_five_tokens_by_default_and_looks_at_no_more():
    cache = rule("vllm-ngram", min_n=5)
    cache.begin("a", [0, 1, 2, 3, 4, 5, 60, 7, 1, 2, 3, 4, 5, 61, 7, 1, 2, 3, 4, 5])
    draft = cache.draft("a", max_draft=2)
    assert draft.tokens.tolist() == [60, 7]  # the second place agrees on six tokens, but counts for five
    assert draft.match_length == 5
    cache.begin("b", [1, 2, 3, 4, 9, 1, 2, 3, 4])
    assert chain(cache, "b") == []
    with pytest.raises(ConfigError, match="max_n"):
        rule("vllm-ngram", min_n=5, max_n=4)


def test_suffix_decoding_scores_by_count_ratios():
    # The context itself counts: of four 1, two go on with 2; of two (9, 1), one goes on with 3.
    cache = rule("suffix-decoding")
    cache.begin("a", [1, 2, 5, 1, 2, 6, 9, 1, 3, 7, 8, 9, 1])
    draft = cache.draft("a", max_draft=8, topology="chain")
    assert draft.tokens.tolist() == [3, 7]  # a match of two tokens drafts two: score 1 beats 1/2
    assert draft.match_length == 2
    assert draft.probs.tolist() == [0.5, 0.5]
    cache.begin("b", [1, 2, 5, 1, 2, 6, 1, 3, 7, 4, 1])
    draft = cache.draft("b", max_draft=8, topology="chain")
    assert (draft.tokens.tolist(), draft.match_length) == ([2], 1)
    assert draft.probs.tolist() == [0.5]


def test_suffix_decoding_grows_trees_by_path_probability():
    cache = rule("suffix-decoding", max_spec_factor=4.0)
    cache.begin("b", [1, 2, 5, 1, 2, 6, 1, 3, 7, 4, 1])
    draft = cache.draft("b", max_draft=8)
    assert draft.tokens.tolist() == [2, 3, 5, 6]
    assert draft.parents.tolist() == [-1, -1, 0, 0]
    assert draft.probs.tolist() == [0.5, 0.25, 0.25, 0.25]


def test_suffix_decoding_prefers_its_own_text_unless_others_score_more():
    cache = rule("suffix-decoding")
    replay(cache, "a", [], [1, 2, 3, 4, 1, 2, 3, 4])
    replay(cache, "b", [7, 1, 2, 9, 7, 8, 1, 2, 9, 7, 8], [1, 2])
    draft = cache.draft("b", max_draft=8)
    assert (draft.tokens.tolist(), set(draft.sources.tolist())) == ([9, 7, 8, 1, 2], {Source.OWN})
    replay(cache, "c", [7, 1, 9, 7, 8], [1, 2])
    draft = cache.draft("c", max_draft=8)
    assert (draft.tokens.tolist(), set(draft.sources.tolist())) == ([3, 4], {Source.SHARED})


def test_suffix_decoding_counts_no_deeper_than_its_tree():
    for depth, n in ((6, 3), (24, 12)):
        cache = rule("suffix-decoding", max_tree_depth=depth)
        cache.begin("a", [*range(30), *range(100, 112), *range(200, 230), *range(100, 112)])
        found = chain(cache, max_draft=30)
        assert found == list(range(200, 200 + n))  # match and draft share the depth: the longest sum is half of it


def test_suffix_decoding_shares_prompts_on_demand_only():
    for share, expected in (("outputs", []), ("all", [3, 4])):
        cache = rule("suffix-decoding")
        cache.begin("a", [1, 2, 3, 4, 5], share=share)
        replay(cache, "b", [], [0, 1, 2])
        assert chain(cache, "b", max_draft=2) == expected


def test_suffix_decoding_forgets_the_oldest_responses():
    cache = rule("suffix-decoding", capacity_tokens=20)
    for i in range(5):
        replay(cache, f"r{i}", [], [10 * i + j for j in range(1, 8)])
        cache.finish(f"r{i}")
    cache.begin("x", [], share="none")
    found = {}
    for i in range(5):
        cache.accept("x", [10 * i + 1, 10 * i + 2])
        found[i] = chain(cache, "x", max_draft=1)
    assert found == {0: [], 1: [], 2: [], 3: [33], 4: [43]}
    cache.check_integrity()
    cache = seen("suffix-decoding", [1, 2, 3], [4, 5, 6], max_cached_requests=1)
    cache.begin("x", [1, 2])  # its own response takes the one place there is
    assert chain(cache, "x") == []


def test_sglang_knows_of_a_prompt_only_its_end_and_is_a_step_behind():
    cache = rule("sglang-ngram")
    cache.begin("a", [1, 2, 3, 1, 2])
    assert chain(cache) == []  # nothing was inserted yet
    cache.accept("a", [3])
    assert chain(cache) == [1, 2]  # the window of the step before, without the 3 that came of it
    cache.begin("b", [7, 8, *range(100, 120), 7])
    assert chain(cache, "b") == []
    cache.accept("b", [8])
    assert chain(cache, "b") == []  # (7, 8) is 20 tokens back
    cache.begin("c", [50, 51, 52])
    cache.accept("c", [53])  # from prefill: no step, nothing inserted
    cache.begin("d", [50])
    assert chain(cache, "d") == []


def test_sglang_indexes_prompts_on_demand():
    cache = rule("sglang-ngram", index_prompts=True)
    cache.begin("a", [1, 2, 3, *range(100, 150), 1, 2], max_tokens=20)
    cache.ingest("a")
    assert chain(cache, max_draft=4) == [3, 100, 101, 102]


def test_sglang_takes_children_by_recency_or_by_frequency():
    outputs = [[1, 2, 3, 0, 0], [1, 2, 4, 0, 0], [1, 2, 3, 0, 0], [1, 2, 5, 0, 0]]
    for match_type, expected in (("BFS", [5, 3, 4]), ("PROB", [3, 5, 4])):  # 4 and 5 as a heap has them
        cache = seen("sglang-ngram", *outputs, match_type=match_type)
        cache.begin("a", [8, 1, 2])
        draft = cache.draft("a", max_draft=11)
        assert draft.tokens[draft.parents < 0].tolist() == expected
        assert draft.match_length == 2
        assert chain(cache, max_draft=1) == expected[:1]
    with pytest.raises(ConfigError, match="match_type"):
        rule("sglang-ngram", match_type="LFU")


def test_sglang_narrows_with_depth_and_drafts_no_more_than_its_width():
    outputs = [[1, 10 + i, 20 + i, 30 + i, 40 + i, 0, 0] for i in range(8)]
    cache = seen("sglang-ngram", *outputs, max_bfs_breadth=4, min_bfs_breadth=1, max_trie_depth=4)
    cache.begin("a", [9, 1])
    draft = cache.draft("a", max_draft=40)
    assert draft.tokens.tolist() == [17, 16, 15, 27, 26, 25, 37, 36, 35]  # 4 at depth 0, 3 at depth 1, ...
    cache = seen("sglang-ngram", *outputs)
    cache.begin("a", [9, 1])
    assert len(cache.draft("a", max_draft=40)) == 11
    cache = seen("sglang-ngram", *outputs, num_draft_tokens=3)
    cache.begin("a", [9, 1])
    assert cache.draft("a", max_draft=40).tokens.tolist() == [17, 16]


def test_sglang_hangs_shorter_matches_beside_longer_ones():
    cache = seen("sglang-ngram", [1, 2, 3, 4, 5, 6], [9, 2, 7, 4, 5, 6], max_bfs_breadth=1)
    cache.begin("a", [1, 2])
    draft = cache.draft("a", max_draft=11)
    assert draft.tokens.tolist() == [3, 4, 5, 7, 4, 5]
    assert draft.parents.tolist() == [-1, 0, 1, -1, 3, 4]


def test_sglang_walks_anchors_on_so_that_a_missing_one_stays_missing():
    cache = rule("sglang-ngram")
    cache.begin("a", [1, 2])
    cache.draft("a", max_draft=4)  # nothing known: no anchors
    replay(cache, "b", [], [1, 2, 3, 4, 5, 6])
    cache.accept("a", [3])
    assert cache.draft("a", max_draft=4).match_length == 1
    cache.begin("c", [1, 2, 3])
    assert cache.draft("c", max_draft=4).match_length == 3


def test_sglang_gives_up_what_was_used_longest_ago():
    cache = rule("sglang-ngram", max_trie_depth=4, capacity_nodes=13)
    replay(cache, "a", [], [1, 2, 3, 4, 0])
    cache.begin("q", [1, 2, 3], share="none")
    assert chain(cache, "q") == [4]
    replay(cache, "b", [], [11, 12, 13, 14, 15, 16])
    cache.check_integrity()
    assert chain(cache, "q") == []
    with pytest.raises(ConfigError, match=r"capacity_nodes: got 4, allowed 5 or more"):
        rule("sglang-ngram", max_trie_depth=4, capacity_nodes=4)
    cache = rule("sglang-ngram", max_trie_depth=4, capacity_nodes=5)
    replay(cache, "a", [], list(range(50)))
    cache.check_integrity()


def test_ngram_mod_follows_exactly_24_tokens_for_at_least_48():
    cache = rule("ngram-mod", n_match=24, n_min=48)
    block = list(range(100, 200))
    cache.begin("a", block + block[:24])
    assert chain(cache, max_draft=99) == block[24:88]  # 64 at most
    cache.accept("a", [block[24]])
    assert chain(cache, max_draft=20) == block[25:45]
    cache.accept("a", [9])
    assert chain(cache, max_draft=99) == []
    cache.begin("b", list(range(300, 340)))
    cache.begin("d", list(range(299, 324)))
    assert chain(cache, "d", max_draft=99) == []  # the table gives 16 tokens, then ends
    assert chain(cache, "d", max_draft=16) == list(range(324, 340))
    cache.begin("c", [1, *block[:23]])  # 23 tokens are not enough
    assert chain(cache, "c", max_draft=99) == []


def test_ngram_mod_remembers_the_last_follower_without_its_key():
    cache = rule("ngram-mod")
    cache.begin("a", [1, 2, 3, 0, 1, 2, 4, 0, 1, 2])
    assert chain(cache, max_draft=3) == [4, 0, 1]
    cache = rule("ngram-mod", n_entries=1)
    cache.begin("a", [1, 2, 3], share="none")
    assert cache.draft("a", max_draft=3).reason is Reason.NO_MATCH
    cache = rule("ngram-mod", n_entries=5)
    cache.begin("a", [1, 2, 3])  # one of five entries
    cache.begin("b", [0, 1, 2], share="none")
    assert chain(cache, "b", max_draft=1) == [3]
    cache.begin("c", [5, 6, 7])  # two of five: emptied
    assert chain(cache, "b", max_draft=1) == []


def test_ngram_mod_takes_outputs_in_pieces():
    cache = rule("ngram-mod")
    cache.begin("a", [])
    cache.begin("b", [100, 101, 102], share="none")
    cache.accept("a", list(range(100, 133)))
    cache.draft("a", max_draft=1)
    assert chain(cache, "b") == []
    cache.accept("a", [133])
    assert chain(cache, "b") == []
    cache.draft("a", max_draft=1)  # now 33 tokens are new besides the last one
    assert chain(cache, "b") == [103, 104, 105]


def test_ngram_mod_empties_its_table_after_five_poor_drafts():
    cache = rule("ngram-mod")
    cache.begin("a", [1, 2, 3, 4, 5, 6, 7, 8, 1])
    for i in range(5):
        cache.accept("a", [2])
        assert len(chain(cache, max_draft=5)) == 5, i
        cache.accept("a", [3, 9, 1] if i == 2 else [9, 1])  # one of five is poor too
    cache.accept("a", [2])
    assert chain(cache, max_draft=5) == []
    cache = rule("ngram-mod")
    cache.begin("a", [1, 2, 3, 4, 5, 6, 7, 8, 1])
    for i in range(9):
        cache.accept("a", [2])
        assert len(chain(cache, max_draft=4)) == 4, i
        cache.accept("a", [3, 9, 1] if i % 5 == 4 else [9, 1])  # one of four is not


def finished(cache, request, prompt, output, **options):
    replay(cache, request, prompt, output, step=max(len(output), 1), **options)
    cache.finish(request)


def test_adaptive_takes_the_latest_of_the_longest_own_matches():
    cache = rule("vllm-suffix-adaptive")
    cache.begin("a", [1, 2, 9, 1, 2, 7, 3, 2, 8, 1, 2])
    draft = cache.draft("a", max_draft=3)
    assert (draft.tokens.tolist(), draft.match_length) == ([7, 3, 2], 2)
    assert set(draft.sources.tolist()) == {Source.OWN}


def test_adaptive_knows_responses_once_they_are_finished_and_prefers_longer_matches():
    cache = rule("vllm-suffix-adaptive")
    replay(cache, "a", [5, 6, 7], [1, 2, 3, 4])
    cache.begin("b", [1, 8, 1, 2])
    assert chain(cache, "b", max_draft=2) == []
    cache.finish("a")
    cache.begin("c", [2, 8, 1, 2])
    draft = cache.draft("c", max_draft=9)
    assert (draft.tokens.tolist(), draft.match_length) == ([3, 4], 2)
    assert set(draft.sources.tolist()) == {Source.SHARED}
    cache.begin("d", [1, 2, 0, 1, 2])  # as long in its own text
    assert chain(cache, "d", max_draft=2) == [0, 1]
    cache.begin("e", [7, 1])  # a prompt's last tokens come along, and two tokens are enough
    assert chain(cache, "e", max_draft=2) == [2, 3]
    cache.begin("f", [0, 1])  # but one is not
    assert chain(cache, "f") == []


def test_adaptive_lets_places_vote_token_by_token():
    cache = rule("vllm-suffix-adaptive")
    for i, output in enumerate(([1, 2, 3, 4, 0], [1, 2, 3, 5, 0], [1, 2, 9, 0], [1, 2, 3, 5, 0])):
        finished(cache, f"r{i}", [], output)
    cache.begin("a", [7, 1, 2])
    draft = cache.draft("a", max_draft=3)
    assert draft.tokens.tolist() == [3, 5, 0]  # three of four, two of three
    cache = rule("vllm-suffix-adaptive")
    for i, output in enumerate(([1, 2, 3], [1, 2, 4])):
        finished(cache, f"r{i}", [], output)
    cache.begin("a", [7, 1, 2])
    assert chain(cache, max_draft=3) == [4]  # the newest among equals
    cache = rule("vllm-suffix-adaptive")
    outputs = [[8, 1, 2, 3, 4, 5], *([1, 2, 6, 6, 6, 6, 6] for _ in range(4))]
    for i, output in enumerate(outputs):
        finished(cache, f"r{i}", [], output)
    cache.begin("a", [8, 1, 2])
    draft = cache.draft("a", max_draft=5)
    assert (draft.tokens.tolist(), draft.match_length) == ([6] * 5, 2)  # 5 * 4/5 beats 3 * 1
    assert chain(cache, max_draft=3) == [3, 4, 5]


def test_adaptive_keeps_the_newest_place_of_eight_documents():
    cache = rule("vllm-suffix-adaptive")
    for i in range(9):
        finished(cache, f"r{i}", [], [1, 2, 50, 1, 2, 100 + i])
    cache.begin("a", [7, 1, 2])
    assert cache.explain("a")["match_length"] == 2
    drafted = set()
    for _ in range(9):
        draft = cache.draft("a", max_draft=1)
        drafted |= set(draft.tokens.tolist())
        cache.accept("a", [])
    assert drafted == {108}  # the vote is one for each; the newest wins, and only it is offered


def test_adaptive_overwrites_the_oldest_documents():
    # In so small a table two keys of one document often share a place; these do not.
    cache = rule("vllm-suffix-adaptive", capacity_tokens=12)
    finished(cache, "r0", [], [1, 2, 3, 4])
    finished(cache, "r1", [], [10, 11, 12, 13])
    for request, context in (("a", [7, 1, 2]), ("b", [7, 10, 11])):
        cache.begin(request, context, share="none")
        assert len(chain(cache, request)) == 2
    finished(cache, "r2", [], [21, 22, 23, 24])  # does not fit behind: starts at the front
    assert chain(cache, "a") == []
    assert chain(cache, "b") == [12, 13]
    finished(cache, "r3", [], list(range(40, 60)))  # the last 11 tokens
    cache.begin("c", [47, 48], share="none")
    assert chain(cache, "c") == []
    cache.begin("d", [49, 50], share="none")
    assert chain(cache, "d", max_draft=20) == list(range(51, 60))


def test_adaptive_learns_acceptance_by_position():
    cache = rule("vllm-suffix-adaptive")
    cache.begin("a", [1, 2, 3, 4, 9, 1, 2])
    draft = cache.draft("a", max_draft=3)
    assert draft.tokens.tolist() == [3, 4, 9]
    assert draft.probs.tolist() == [1 / 2, 1 / 4, 1 / 8]
    cache.accept("a", [3, 7])  # one accepted, the second refused, the third unseen
    cache.accept("a", [9, 1, 2])
    draft = cache.draft("a", max_draft=3)
    assert (draft.tokens.tolist(), draft.match_length) == ([3, 7, 9], 3)
    assert draft.probs.tolist() == [1 / 2, 1 / 4, 1 / 8]  # another class
    cache.accept("a", [8, 1, 2])
    draft = cache.draft("a", max_draft=3)
    assert draft.match_length == 2
    assert draft.probs.tolist() == pytest.approx([2 / 3, 2 / 9, 1 / 9])
    assert len(cache.draft("a", max_draft=3, min_prob=0.2)) == 2
    assert cache.draft("a", max_draft=3, min_prob=0.9).reason is Reason.BELOW_MIN
    for _ in range(1024):
        cache.draft("a", max_draft=3)
    assert cache.draft("a", max_draft=3).probs.tolist() == [1 / 2, 1 / 4, 1 / 8]  # counts were halved to 0
