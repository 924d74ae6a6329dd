"""The suffix trie by example: faults seen in released drafters, with the right values, and its own limits."""

import os
import random
import subprocess
import sys

import numpy as np
import pytest

from ngramspec.arena import C_COUNT, C_NEWER, C_OLDER, C_TOKEN, C_USE, NODE, P_OWN, P_SHARED, PLACE, X_NODE, X_PLACE
from ngramspec.caches.suffix_trie import SuffixTrieCache
from ngramspec.config import TrieConfig
from ngramspec.draft import DraftBatch, Reason, Source
from ngramspec.errors import ConfigError, SnapshotError
from tests.naive_trie import Counts
from tests.sources import ROOT
from tests.trie_view import as_lists, drafted, trees, trie


def chain(cache, request_id, n):
    """Tokens of a chain."""
    return cache.draft(request_id, max_draft=n, topology="chain").tokens.tolist()


def share(cache, text, **settings):
    """One request that emits `text` and ends."""
    cache.begin("history", [], **settings)
    cache.accept("history", text)
    cache.finish("history")


@pytest.mark.jit_off
@pytest.mark.parametrize(
    ("context", "n", "expected"),
    [
        ([1, 2, 3, 1, 2], 3, [3, 1, 2]),  # the first step of a cold request
        ([7, 8, 0, 7, 8], 2, [0, 7]),  # id 0 is a token like any other
        ([151_643, 151_644, 7, 151_643, 151_644], 1, [7]),
        ([2**31 - 2, 5, 2**31 - 2], 2, [5, 2**31 - 2]),  # the largest id
        ([1, 2, 9, 1, 2, 7, 1, 2], 3, [7, 1, 2]),  # of equals the most recent
        ([1, 2, 9, 1, 2, 9, 1, 2, 7, 1, 2], 1, [9]),  # more often is more
        ([5, -1, -1, 6, 5], 4, []),
        ([5, 6, -1, 5], 4, [6]),  # not beyond the placeholder
        ([3, 5, -1, 3], 3, [5]),
        ([], 3, []),
        ([9], 3, []),
    ],
)
def test_a_request_drafts_from_its_own_text(context, n, expected):
    cache = trie(vocab_size=2**31 - 1)
    cache.begin("a", context)
    assert chain(cache, "a", n) == expected
    cache.check_integrity()


@pytest.mark.jit_off
def test_degenerate_requests_get_an_empty_draft_and_its_reason():
    cache = trie()
    cache.begin("empty", [])
    cache.begin("one", [9])
    cache.begin("known", [1, 2, 1])
    assert cache.draft("empty", max_draft=3).reason is Reason.TOO_SHORT
    assert cache.draft("one", max_draft=3).reason is Reason.NO_MATCH
    assert cache.draft("known", max_draft=0).reason is Reason.BUDGET
    assert cache.draft("known", max_draft=3, remaining=1).reason is Reason.LENGTH_LIMIT
    assert cache.draft("known", max_draft=3, min_prob=1.0).reason is Reason.BELOW_MIN
    assert len(cache.draft("known", max_draft=3, topology="chain", remaining=2)) == 1


@pytest.mark.jit_off
def test_outputs_are_shared_within_a_tenant_and_prompts_only_on_request():
    cache = trie()
    cache.begin("a", [1, 2, 3], tenant="x")
    cache.accept("a", [4, 5, 6])
    cache.begin("all", [31, 32, 33], tenant="x", share="all")
    cache.begin("none", [41, 42], tenant="x", share="none")
    cache.accept("none", [43])
    cache.begin("b", [3], tenant="x")  # the prompt ahead of a shared output is matched, never drafted
    draft = cache.draft("b", max_draft=4, topology="chain")
    assert (draft.tokens.tolist(), draft.sources.tolist()) == ([4, 5, 6], [Source.SHARED] * 3)
    cache.finish("b")
    for last, expected in [(2, []), (31, [32, 33]), (41, []), (42, [])]:
        cache.begin("c", [last], tenant="x")
        assert chain(cache, "c", 4) == expected
        cache.finish("c")
    for tenant in ("y", None):
        cache.begin("c", [4], tenant=tenant)
        assert chain(cache, "c", 4) == []
        cache.finish("c")
    cache.check_integrity()


@pytest.mark.jit_off
def test_a_reused_id_drafts_as_a_fresh_one():
    cache = trie()
    share(cache, [1, 2, 3, 4, 5])
    share(cache, [11, 12, 13, 14, 15])
    cache.begin("a", [1, 2, 3])
    assert chain(cache, "a", 1) == [4]
    cache.finish("a")
    cache.begin("a", [11, 12, 13])
    assert chain(cache, "a", 1) == [14]


@pytest.mark.jit_off
def test_absence_from_a_batch_changes_nothing():
    cache = trie()
    slots = np.array([cache.begin("a", [1, 2, 3]), cache.begin("b", [21, 22])], np.int32)
    cache.accept("a", [50, 51, 52, 53])
    cache.accept_batch(slots[1:], np.array([23, 24], np.int32), np.array([0, 2], np.int32))
    cache.accept("a", [60, 3])
    assert chain(cache, "a", 1) == [50]


@pytest.mark.jit_off
def test_eviction_behind_a_live_match_is_noticed():
    cache = trie(depth=4, max_nodes=12)
    cache.begin("history", [])
    cache.accept("history", [1, 2, 3, 4])
    slot = cache.begin("query", [1, 2, 3], share="none")
    first = int(cache.arena.header("trie")[X_PLACE]) + slot * PLACE
    cache.draft("query", max_draft=4)
    for token in (11, 12, 13, 14, 15, 16):
        cache.accept("history", [token])
        stateful = cache.draft("query", max_draft=4)
        cache.arena.mem[[first + P_OWN, first + P_SHARED]] = 0
        assert drafted(stateful) == drafted(cache.draft("query", max_draft=4))
        cache.check_integrity()
    assert cache.stats()["nodes_evicted"] > 0


@pytest.mark.jit_off
def test_a_recycled_node_is_not_taken_for_its_predecessor():
    """Small limits, many rows: whoever still stands on a node that became another one would draft from it."""
    cache = trie(depth=3, max_nodes=9)
    rng = random.Random(5)
    for i, request_id in enumerate("abcd"):
        cache.begin(request_id, [], share="none" if i < 2 else "outputs", tenant=request_id)
    for _ in range(600):
        request_id = rng.choice("abcd")
        cache.accept(request_id, [10 * "abcd".index(request_id) + rng.randrange(3)])
        for i, other in enumerate("abcd"):
            assert all(10 * i <= token < 10 * i + 3 for token in cache.draft(other, max_draft=5).tokens)
        cache.check_integrity()
    assert cache.stats()["nodes_evicted"] > 100


@pytest.mark.jit_off
@pytest.mark.parametrize("keep", [0, 1, 5, 6, 8, 9])
def test_a_truncated_request_drafts_as_a_fresh_one_with_that_text(keep):
    prompt, output = [1, 2, 3, 1, 2, 4], [1, 2, 5]
    cache, fresh = trie(), trie()
    cache.begin("a", prompt)
    cache.accept("a", output)
    cache.truncate("a", keep)
    fresh.begin("a", prompt[:keep])
    if keep > len(prompt):
        fresh.accept("a", output[: keep - len(prompt)])
    assert drafted(cache.draft("a", max_draft=8)) == drafted(fresh.draft("a", max_draft=8))
    assert trees(cache) == trees(fresh)
    cache.check_integrity()


@pytest.mark.jit_off
def test_a_session_that_goes_on_counts_only_what_is_new():
    cache = trie()
    text = [random.Random(3).randrange(9) for _ in range(200)]
    cache.begin("a", text[:150], session="s")
    cache.accept("a", text[150:])
    cache.finish("a")
    nodes = cache.stats()["nodes"]
    row = cache.begin("b", [*text, 5, 6], session="s")
    assert cache.stats()["prompt_tokens"] == 150 + 2
    assert cache.stats()["nodes"] <= nodes + 2 * 8
    assert trees(cache)["own", row] == as_lists(Counts.of([*text, 5, 6], 8))
    cache.finish("b")
    row = cache.begin("c", [*text[:100], 7], session="s")  # diverges: the rest is forgotten
    assert trees(cache)["own", row] == as_lists(Counts.of([*text[:100], 7], 8))
    cache.check_integrity()


@pytest.mark.jit_off
def test_a_shorter_context_in_a_used_row_drafts_nothing_from_before():
    cache = trie(max_requests=1, max_sessions=0)
    cache.begin("a", [*range(1, 300), 1], share="none")
    assert chain(cache, "a", 2) == [2, 3]
    cache.finish("a")
    cache.begin("b", [*range(1, 13), 1], share="none")
    assert chain(cache, "b", 2) == [2, 3]
    cache.finish("b")
    cache.begin("c", [20, 1], share="none")
    assert chain(cache, "c", 2) == []
    nodes = cache.stats()["nodes"]
    for i in range(50):  # the nodes of ended requests are used again
        cache.finish("c")
        cache.begin("c", [*range(i, i + 30)], share="none")
        cache.check_integrity()
    assert cache.stats()["nodes"] <= nodes + 30 * 8
    assert cache.stats()["nodes_evicted"] == 0


@pytest.mark.jit_off
def test_a_refused_draft_is_not_offered_again_before_progress():
    cache = trie()
    cache.begin("a", [1, 2, 3, 1, 2, 4, 1, 2])
    seen = []
    while len(draft := cache.draft("a", max_draft=1)):
        seen.append(int(draft.tokens[0]))
        cache.accept("a", [])
    assert sorted(seen) == [3, 4]
    assert draft.reason is Reason.NO_MATCH
    cache.accept("a", [9, 1, 2])
    assert chain(cache, "a", 1) == [9]
    for _ in range(20):  # refused again and again, and still offered
        cache.draft("a", max_draft=5)
        cache.accept("a", [8, 1, 2])
    assert chain(cache, "a", 1) == [8]


@pytest.mark.jit_off
def test_a_draft_ends_with_eos():
    cache = trie(eos_ids=(5,))
    cache.begin("a", [1, 2, 5, 7, 1])
    assert chain(cache, "a", 4) == [2, 5]


@pytest.mark.jit_off
def test_permuted_rows_get_permuted_drafts():
    cache = trie(max_requests=8)
    rng = random.Random(11)
    slots = []
    for i in range(8):
        slots.append(cache.begin(str(i), [rng.randrange(6) for _ in range(60)]))
        cache.accept(str(i), [rng.randrange(6) for _ in range(20)])
    drafts = {}
    for order in (slots, slots[::-1], rng.sample(slots, 8), slots[3:] + slots[:3]):
        out = DraftBatch.allocate(8, 11)
        cache.draft_batch(np.array(order, np.int32), out, max_draft=11)
        for i, slot in enumerate(order):
            assert drafts.setdefault(slot, drafted(out.row(i))) == drafted(out.row(i))


@pytest.mark.parametrize("depth", [2, 8, 32])
def test_one_token_repeated_is_counted_once_a_context(depth):
    n = 20_000
    cache = trie(depth=depth, capacity_tokens=n + 1_000)
    row = cache.begin("a", [7] * n)
    counts = trees(cache)["own", row]
    assert counts == {(7,) * c: [(7, n - c)] for c in range(depth)}
    assert cache.stats()["nodes"] == 1 + depth
    assert chain(cache, "a", 5) == [7] * 5
    cache.check_integrity()


@pytest.mark.jit_off
def test_limits_below_the_smallest_are_refused_with_it():
    with pytest.raises(ConfigError, match=r"max_nodes: got 30, allowed integers from 31 to .* with depth=8"):
        TrieConfig(max_nodes=30)
    for name, value in [("depth", 1), ("depth", 33), ("max_followers", 0), ("capacity_tokens", 4)]:
        with pytest.raises(ConfigError, match=name):
            TrieConfig(**{name: value})


@pytest.mark.jit_off
@pytest.mark.parametrize("max_bytes", [600_000, 1_000_003, 50_000_000])
def test_the_state_fits_in_max_bytes(max_bytes):
    config = TrieConfig.with_max_bytes(max_bytes, vocab_size=1_000, max_requests=4, max_sessions=16)
    assert SuffixTrieCache(config).arena.buffer.nbytes == config.nbytes <= max_bytes
    larger = TrieConfig(vocab_size=1_000, max_requests=4, max_sessions=16, capacity_tokens=config.capacity_tokens + 32)
    assert larger.nbytes > max_bytes


def test_explain_shows_the_contexts_and_changes_nothing():
    cache = trie()
    share(cache, [1, 2, 9])
    cache.begin("a", [1, 2, 3, 1, 2])
    before = cache.digest()
    assert cache.explain("a") == {
        "tokens": 5,
        "own_contexts": [
            {"length": 2, "count": 2, "followers": {3: 1}},
            {"length": 1, "count": 2, "followers": {3: 1}},
        ],
        "shared_contexts": [
            {"length": 2, "count": 1, "followers": {9: 1}},
            {"length": 1, "count": 1, "followers": {9: 1}},
        ],
    }
    assert cache.digest() == before


@pytest.mark.parametrize("seed", range(12))
def test_a_broken_state_is_found(seed):
    """Whatever single field of a node in use is changed, some invariant fails."""
    rng = random.Random(seed)
    cache = trie(depth=4)
    cache.begin("a", [rng.randrange(4) for _ in range(30)])
    cache.accept("a", [rng.randrange(4) for _ in range(30)])
    cache.check_integrity()
    nodes = cache.arena.section("trie", X_NODE).reshape(-1, NODE)
    for _ in range(20):
        node, where = rng.randrange(cache.stats()["nodes"]), rng.randrange(NODE)
        before = int(nodes[node, where])
        if where == C_USE:
            nodes[node, where] = before + 2
        elif where == C_COUNT:
            nodes[node, where] = 0 if before else 5
        elif nodes[node, C_TOKEN] < 0 and where in (C_NEWER, C_OLDER):
            continue  # a root's key
        else:
            nodes[node, where] = 0 if before > 0 else 1
        with pytest.raises(SnapshotError, match="trie"):
            cache.check_integrity()
        nodes[node, where] = before
    cache.check_integrity()


SCRIPT = """
import random
from tests.trie_view import drafted, trie
cache = trie(depth=5, max_nodes=80, vocab_size=12, capacity_tokens=320, eos_ids=(11,))
rng, seen = random.Random(2), []
for i in range(12):
    cache.begin(str(i), [rng.randrange(-1, 13) for _ in range(30)], session=rng.choice([None, "s"]),
                share=rng.choice(["all", "none", "outputs"]))
    for _ in range(4):
        seen.append(drafted(cache.draft(str(i), max_draft=9)))
        cache.accept(str(i), [rng.randrange(12) for _ in range(rng.randrange(4))])
    cache.truncate(str(i), rng.randrange(20, 30))
    if i >= 3:
        cache.finish(str(i - 3))
print(cache.digest(), seen)
"""


def test_compiled_and_plain_kernels_give_the_same_bytes():
    results = []
    for disable in ("0", "1"):
        environment = {**os.environ, "NUMBA_DISABLE_JIT": disable}
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True, cwd=ROOT
        )
        results.append(run.stdout)
    assert results[0] == results[1] != ""
