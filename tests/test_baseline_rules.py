"""Rival rules that read own text, counted trees or a corpus, on hand-made cases with the drafts of their originals."""

import random

import pytest

from ngramspec.draft import Source
from ngramspec.errors import CapacityError, ConfigError
from tests.baselines import chain, every_path, replay, rule, seen


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


def test_rest_counts_continuations_of_the_longest_match_in_its_corpus():
    corpus = [[9, 1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 6], [7, 1, 2, 8, 8]]
    cache = rule("rest", corpus=corpus)
    cache.begin("a", [1, 2, 3, 4, 0, 1, 2])
    draft = cache.draft("a", max_draft=64)
    assert draft.match_length == 2
    assert draft.tokens.tolist()[:2] == [3, 6]  # equals as a heap has them
    by_path = {tuple(p): round(float(x), 6) for p, x in zip(every_path(draft), draft.probs)}
    assert by_path == {(3,): 0.5, (3, 4): 0.25, (3, 5): 0.25, (6,): 0.25, (8,): 0.25, (8, 8): 0.25}
    assert set(draft.sources.tolist()) == {Source.FROZEN}
    cache.begin("b", [0, 7, 1, 2])
    assert cache.draft("b", max_draft=64).tokens.tolist() == [8, 8]  # three tokens match in one place
    cache.begin("c", [5, 2])
    assert chain(cache, "c") == []  # one token is not enough
    assert len(cache.draft("a", max_draft=64, min_prob=0.3)) == 1
    assert len(cache.draft("a", max_draft=2)) == 2


def test_rest_agrees_with_a_plain_search():
    rng = random.Random(5)
    corpus = [[rng.randrange(4) for _ in range(60)] for _ in range(5)]
    cache = rule("rest", corpus=corpus, max_match=6, max_depth=3)
    cache.begin("a", [rng.randrange(4) for _ in range(6)])
    for _ in range(60):
        text = cache._requests["a"].text.tokens.tolist()
        places = []
        for n in range(min(6, len(text)), 1, -1):
            ends = [(d, i + n) for d in corpus for i in range(len(d) - n + 1) if d[i : i + n] == text[-n:]]
            places = [d[i : i + 3] for d, i in ends]
            if places:
                break
        counts = {}
        for place in places:
            for k in range(1, len(place) + 1):
                counts[tuple(place[:k])] = counts.get(tuple(place[:k]), 0) + 1
        draft = cache.draft("a", max_draft=200)
        expected = sorted(counts.values(), reverse=True)[:64]
        paths = [tuple(path) for path in every_path(draft)]
        assert [counts[path] for path in paths] == expected
        assert len(set(paths)) == len(paths)
        assert draft.probs.tolist() == pytest.approx([counts[path] / len(places) for path in paths])
        cache.accept("a", [rng.randrange(4)])


def test_rest_drafts_ten_deep_64_wide_and_never_across_documents():
    cache = rule("rest", corpus=[list(range(100)), [200, 201], [202, 203]])
    cache.begin("a", [3, 4])
    assert chain(cache, max_draft=30) == list(range(5, 15))
    cache.begin("b", [200, 201])
    assert chain(cache, "b") == []
    cache = rule("rest", corpus=[[1, 2, i, i] for i in range(10, 110)])
    cache.begin("a", [1, 2])
    assert len(cache.draft("a", max_draft=200)) == 64
    cache.reset()
    cache.begin("a", [1, 2])
    assert len(cache.draft("a", max_draft=200)) == 64  # the corpus is frozen
    with pytest.raises(CapacityError, match="corpus: got 401 tokens"):
        rule("rest", corpus=[range(400)], capacity_tokens=400)
