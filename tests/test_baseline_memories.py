"""Rival rules with one memory for all requests, on hand-made cases with their released packages' drafts."""

import random

import numpy as np
import pytest

from ngramspec.draft import Reason, Source
from ngramspec.errors import ConfigError
from tests.baselines import chain, replay, rule, seen


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
    with pytest.raises(ConfigError, match=r"capacity_nodes: got 4, must be an integer of at least 5"):
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


def common_end(a, b, most):
    n = 0
    while n < min(len(a), len(b), most) and a[-1 - n] == b[-1 - n]:
        n += 1
    return n


def plain_adaptive(documents, text, width, depth):
    """What the rule drafts from finished documents alone, found by searching them: (chain, match length)."""
    places = {}  # (document, position) of each candidate -> match length
    for key in (4, 2):
        for slot in range(8):
            found = [
                (d, i)
                for d in range(slot, len(documents), 8)
                for i in range(key, len(documents[d]))
                if len(text) >= key and documents[d][i - key : i] == text[-key:]
            ]
            if found:
                d, i = max(found)
                places[d, i] = common_end(documents[d][:i], text, depth)
    best = (-1.0, 0, [])
    for length in set(places.values()):
        alive = [(d, i) for (d, i), n in places.items() if n >= length]
        chain, share, score = [], np.float32(1), np.float32(0)
        for k in range(width):
            votes = {}
            for d, i in alive:
                if i + k < len(documents[d]):
                    votes.setdefault(documents[d][i + k], []).append((d, i))
            if not votes:
                break
            token = max(votes, key=lambda t: (len(votes[t]), max(votes[t])))
            share = share * np.float32(len(votes[token])) / np.float32(len(alive))
            score += share
            chain.append(token)
            alive = votes[token]
        best = max(best, (float(score), length, chain))
    return best[2], best[1]


def test_adaptive_agrees_with_a_plain_search():
    rng = random.Random(11)
    cache = rule(
        "vllm-suffix-adaptive", capacity_tokens=1 << 22, num_tokens=6, max_depth=5
    )  # no two keys share a bucket
    documents, n_shared = [], 0
    for r in range(20):
        prompt = [rng.randrange(5) for _ in range(5)]
        output = [rng.randrange(5) for _ in range(25)]
        cache.begin(f"r{r}", prompt)
        for i, token in enumerate(output):
            text = prompt + output[:i]
            own = max((common_end(text[:end], text, 5), end) for end in range(1, len(text)))
            expected, match = plain_adaptive(documents, text, 6, 5)
            if match <= own[0]:
                expected, match = text[own[1] : own[1] + 6] if own[0] else [], own[0]
            else:
                n_shared += 1
            draft = cache.draft(f"r{r}", max_draft=6)
            assert (draft.tokens.tolist(), draft.match_length) == (expected, match)
            cache.accept(f"r{r}", [token])
        cache.finish(f"r{r}")
        documents.append(prompt[-3:] + output)
    assert n_shared > 100
