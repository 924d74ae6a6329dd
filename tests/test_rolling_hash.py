"""The rolling hash: blocks reused under load, long texts and copies, sessions, and one buffer that holds it all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngramspec import DraftBatch, HashConfig, RollingHashCache
from ngramspec.arena import BLOCK, S_CLOCK
from ngramspec.draft import Source
from tests import strategies as some

LONG = 131_072


def make(capacity_tokens=16_384, max_requests=8, **settings):
    return RollingHashCache(HashConfig(capacity_tokens=capacity_tokens, max_requests=max_requests, **settings))


def chain(cache, request_id, max_draft, **settings):
    return cache.draft(request_id, max_draft=max_draft, topology="chain", **settings).tokens.tolist()


def random_text(seed, n, vocab_size=32_000):
    return np.random.default_rng(seed).integers(0, vocab_size, n, dtype=np.int32)


# Blocks are reused safely.

SMALLEST = HashConfig(max_requests=2).min_capacity_tokens


def fenced(config, margin=4_096):
    """A cache in the middle of a larger buffer, and the bytes around it."""
    n = config.nbytes
    whole = np.full(n + 2 * margin, 0xA5, np.uint8)
    middle = whole[margin : margin + n]
    middle[:] = RollingHashCache(config).arena.buffer
    return RollingHashCache(config, middle), (whole[:margin], whole[margin + n :])


def churn(cache, rng, n_calls):
    """Random calls on two requests, long and short texts over and over; ends both."""
    lengths = [None, None]
    kinds = rng.integers(0, 8, n_calls)
    texts = rng.integers(0, 4, 4_096, dtype=np.int32)
    starts, sizes = rng.integers(0, 3_800, n_calls), rng.choice([1, 2, 3, 5, 40, 90, 250], n_calls)
    shares = rng.choice(["outputs", "all", "none"], n_calls)
    out = DraftBatch.allocate(2, 5)
    slots = [0, 0]
    for i, kind in enumerate(kinds.tolist()):
        which = i & 1
        request_id, tokens = "ab"[which], texts[starts[i] : starts[i] + sizes[i]]
        if lengths[which] is None:
            session = "s" if kind & 1 else None
            slots[which] = cache.begin(request_id, tokens, session=session, share=str(shares[i]))
            lengths[which] = len(tokens)
        elif kind < 5:
            rows = np.array([slots[which]], np.int32)
            cache.draft_batch(rows, out, max_draft=5)
            cache.accept_batch(rows, tokens, np.array([0, len(tokens)], np.int32))
            lengths[which] += len(tokens)
        elif kind == 5:
            lengths[which] = int(starts[i]) % (lengths[which] + 1)
            cache.truncate(request_id, lengths[which])
        elif kind == 6:
            cache.finish(request_id)
            lengths[which] = None
    for which, length in enumerate(lengths):
        if length is not None:
            cache.finish("ab"[which])


def test_every_capacity_from_the_smallest_up_works_for_ever():
    """200,000 calls in all; capacities within one block share a layout, so that each layout takes 30,000."""
    for capacity in range(SMALLEST, SMALLEST + 201):
        config = HashConfig(
            capacity_tokens=capacity,
            max_requests=2,
            max_sessions=capacity % 3,
            vocab_size=4,
            shared_percent=(0, 50, 95)[capacity % 3],
        )
        cache, around = fenced(config)
        rng = np.random.default_rng(capacity)
        for _ in range(2):
            churn(cache, rng, 500)
            cache.check_integrity()
            if capacity % 10 == 0:
                cache.reset()
        assert cache.nbytes == config.nbytes == cache.arena.buffer.nbytes
        assert all((fence == 0xA5).all() for fence in around), "no byte outside the buffer is touched"


def test_others_shared_text_never_evicts_live_text():
    cache = make(SMALLEST + 2_048, max_requests=2)
    prompt = random_text(1, 600).tolist()
    cache.begin("live", [*prompt, *prompt[:2]], share="none")
    own = cache.stats()["own_tokens"]
    for i in range(50):
        cache.begin("other", [i])
        cache.accept("other", random_text(i, 400))
        cache.finish("other")
    stats = cache.stats()
    assert stats["shared_tokens_evicted"] > 15_000
    assert own <= stats["own_tokens"] <= 2_048 + SMALLEST
    assert chain(cache, "live", 40) == prompt[2:42]


def test_shared_text_goes_oldest_first():
    cache = make(2_048, max_requests=2)
    texts = [random_text(seed, 100).tolist() for seed in range(30)]
    for text in texts:
        cache.begin("a", text[:1], session="s")
        cache.accept("a", text[1:])
        cache.finish("a")
    found = []
    for text in texts:
        cache.begin("b", text[:3], share="none")
        found.append(chain(cache, "b", 5) == text[3:8])
        cache.finish("b")
    n_kept = sum(found)
    assert 5 <= n_kept < 30
    assert found == [False] * (30 - n_kept) + [True] * n_kept


def test_idle_sessions_yield_to_running_text_least_recently_used_first():
    cache = make(2_048, max_requests=2, max_sessions=8)
    texts = [random_text(seed, 200).tolist() for seed in range(3)]
    for i, text in enumerate(texts):
        cache.begin("a", text, session=f"s{i}", share="none")
        cache.finish("a")
    cache.begin("a", texts[0], session="s0", share="none")  # used again: now the newest
    cache.finish("a")
    cache.begin("big", random_text(9, 500), share="none")
    cache.finish("big")
    ingested = []
    for i in (0, 2, 1):
        before = cache.stats()["prompt_tokens"]
        cache.begin("a", texts[i], session=f"s{i}", share="none")
        ingested.append(cache.stats()["prompt_tokens"] - before)
        cache.finish("a")
    assert ingested[0] == ingested[1] == 0
    assert ingested[2] > 0, "s1 had to make room"
    cache.check_integrity()


def test_concurrent_outputs_do_not_interleave():
    cache = make(max_requests=32)
    texts = {f"r{i}": random_text(i, 60).tolist() for i in range(31)}
    slots = np.array([cache.begin(i, text[:1]) for i, text in texts.items()], np.int32)
    for step in range(1, 60):
        tokens = np.array([text[step] for text in texts.values()], np.int32)
        cache.accept_batch(slots, tokens, np.arange(32, dtype=np.int32))
    for text in texts.values():
        cache.begin("late", text[:3], share="none")
        assert chain(cache, "late", 100) == text[3:]
        cache.finish("late")


@pytest.mark.parametrize("store", ["own", "shared"])
def test_chains_survive_the_clock_running_over(store):
    plain, wrapped = make(), make()
    wrapped.arena.header(store)[S_CLOCK] = 0x7FFFFFFF - 25
    text = random_text(3, 60, vocab_size=5).tolist()
    for cache in (plain, wrapped):
        cache.begin("a", text[:1])
        cache.accept("a", text[1:])
        cache.begin("b", text[:4], share="none")
    for request_id in ("a", "b"):
        assert chain(wrapped, request_id, 20) == chain(plain, request_id, 20) != []
    assert 0 < wrapped.arena.header(store)[S_CLOCK] < 100


# Long texts, long copies.


@pytest.fixture(scope="module")
def roomy():
    return make(4 * LONG + 1_024, max_requests=4)


def test_a_context_of_131072_tokens_is_found_to_its_first_token(roomy):
    roomy.reset()
    text = random_text(5, LONG, vocab_size=2**31 - 1)
    roomy.begin("a", text, share="all")
    roomy.accept("a", text[:3])
    assert chain(roomy, "a", 50) == text[3:53].tolist()
    roomy.truncate("a", LONG)
    roomy.accept("a", text[LONG - 9 : LONG - 1])
    period = [text[-1], *text[LONG - 9 : LONG - 1]]
    assert chain(roomy, "a", 50) == (period * 6)[:50]
    roomy.check_integrity()


def test_one_token_131072_times_costs_no_more_than_its_hops(roomy):
    roomy.reset()
    roomy.begin("a", np.full(LONG, 7, np.int32))
    assert chain(roomy, "a", 64) == [7] * 64
    explained = roomy.explain("a")
    assert explained["own_matches"][0] == roomy.config.max_match
    assert len(explained["own_matches"]) <= roomy.config.max_hops * len(roomy.config.orders)
    roomy.truncate("a", LONG // 2)
    roomy.accept("a", [7] * 40)
    assert chain(roomy, "a", 64) == [7] * 64
    roomy.check_integrity()
    roomy.truncate("a", 1)
    assert chain(roomy, "a", 64) == []
    assert roomy.stats()["own_tokens"] == 1


@pytest.mark.parametrize("source", ["own", "shared"])
@pytest.mark.parametrize("width", [64, 1_500])
def test_a_verbatim_copy_is_drafted_without_a_depth_cap(roomy, source, width):
    roomy.reset()
    text = random_text(6, 2_000).tolist()
    if source == "own":
        roomy.begin("a", [*text, *text[:2]])
    else:
        roomy.begin("h", [text[0]])
        roomy.accept("h", text[1:])
        roomy.begin("a", text[:2])
    draft = roomy.draft("a", max_draft=width, topology="chain")
    assert draft.tokens.tolist() == text[2 : 2 + width]
    assert set(draft.sources.tolist()) == {Source.OWN if source == "own" else Source.SHARED}
    accepted, at = 0, 2
    while at < 1_900:
        tree = roomy.draft("a", max_draft=64)
        n, parent = 0, -1
        while next_ := [i for i in range(len(tree)) if tree.parents[i] == parent and tree.tokens[i] == text[at + n]]:
            n, parent = n + 1, next_[0]
            if at + n == len(text):
                break
        roomy.accept("a", text[at : at + n + 1])
        at, accepted = at + n + 1, accepted + 1
    assert (at - 2) / accepted >= 25, "tokens a step on a copy, budget 64"


# Who sees what.


def test_two_tenants_with_the_same_text_do_not_meet():
    cache, alone = make(), make()
    text = random_text(8, 100).tolist()
    for tenant in ("x", "y"):
        cache.begin(f"h{tenant}", text[:10], tenant=tenant)
        cache.accept(f"h{tenant}", text[10:])
        cache.begin(f"a{tenant}", text[10:13], tenant=tenant)
    alone.begin("h", text[:10])
    alone.accept("h", text[10:])
    alone.begin("a", text[10:13])
    assert chain(cache, "ax", 20) == chain(cache, "ay", 20) == chain(alone, "a", 20) == text[13:33]
    cache.accept("hx", [1, 2, 3, 1, 2, 4])
    cache.begin("by", [1, 2], tenant="y")
    assert chain(cache, "by", 3) == []
    cache.begin("bx", [1, 2], tenant="x")
    assert chain(cache, "bx", 1) == [4]


def test_what_a_request_shares_is_not_evidence_of_its_own_twice():
    text = random_text(4, 60, vocab_size=5).tolist()
    found = []
    for share in ("none", "outputs", "all"):
        cache = make()
        cache.begin("a", text[:20], share=share)
        cache.accept("a", text[20:])
        draft = cache.draft("a", max_draft=24)
        assert set(draft.sources.tolist()) == {Source.OWN}
        found.append((draft.tokens.tolist(), draft.probs.tolist()))
    assert found[0] == found[1] == found[2]


def test_texts_in_one_chain_by_accident_are_told_apart():
    """So many owners that several land on one head, all with the same context and a follower of their own."""
    n = 600
    cache = make(capacity_tokens=8 * n * BLOCK, max_requests=2 * n)
    for i in range(n):
        cache.begin(f"own{i}", [1, 1_000 + i, 1], share="none")
        cache.begin(f"shares{i}", [1], tenant=f"t{i}")
        cache.accept(f"shares{i}", [1_000 + i])
        cache.finish(f"shares{i}")
    for i in range(n):
        cache.begin(f"reads{i}", [1], tenant=f"t{i}")
        assert chain(cache, f"reads{i}", 5) == [1_000 + i]
        assert set(cache.draft(f"own{i}", max_draft=5).tokens.tolist()) == {1, 1_000 + i}


def prompt_tokens(cache, *begin, **settings):
    """Tokens that a begin ingests."""
    before = cache.stats()["prompt_tokens"]
    cache.begin(*begin, **settings)
    return cache.stats()["prompt_tokens"] - before


def test_a_sessions_next_turn_ingests_only_what_is_new():
    cache = make()
    first, answer, question = (random_text(seed, n).tolist() for seed, n in ((1, 100), (2, 30), (3, 20)))
    assert prompt_tokens(cache, "a", first, session="s") == 100
    cache.accept("a", answer)
    cache.finish("a")
    assert prompt_tokens(cache, "b", first + answer + question, session="s") == 20
    cache.finish("b")
    assert prompt_tokens(cache, "c", first[:40] + question, session="s") == 20, "diverges early"
    cache.finish("c")
    assert prompt_tokens(cache, "d", first[:10], session="s") == 0, "is shorter"
    cache.finish("d")
    assert prompt_tokens(cache, "e", first, session="s", tenant="other") == 100
    cache.finish("e")
    assert prompt_tokens(cache, "g", first + answer, session="s", tenant="other") == 30
    cache.finish("g")
    assert prompt_tokens(cache, "f", first, session="other") == 100
    cache.check_integrity()


def test_a_turn_without_a_session_is_found_by_its_text():
    cache = make()
    first, answer, question = (random_text(seed, n).tolist() for seed, n in ((1, 100), (2, 30), (3, 20)))
    assert prompt_tokens(cache, "a", first) == 100
    cache.accept("a", answer)
    cache.finish("a")
    assert prompt_tokens(cache, "other", first + answer + question, tenant="other") == 150
    assert prompt_tokens(cache, "b", first + answer + question) == 20
    cache.accept("b", answer)
    cache.finish("b")
    assert prompt_tokens(cache, "c", first + answer + question + answer + question) == 20
    cache.finish("c")
    assert prompt_tokens(cache, "d", first[:90] + question) == 110, "repeats no whole prompt"


def test_a_turn_found_by_its_text_reveals_no_prompt():
    cache = make()
    public, secret = random_text(1, 64).tolist(), random_text(2, 40).tolist()
    cache.begin("a", public + secret)
    cache.finish("a")
    assert prompt_tokens(cache, "b", public) == 64, "not its whole prompt: not the same conversation"
    assert chain(cache, "b", 5) == []
    cache.accept("b", secret[:2])
    assert chain(cache, "b", 5) == []
    cache.begin("private", [*public, *public], share="none")
    cache.finish("private")
    assert prompt_tokens(cache, "c", [*public, *public, 5]) == 129, "shares nothing, so is never gone on with"


@given(data=st.data())
def test_going_on_with_earlier_text_changes_no_draft(data):
    """One cache remembers ended requests, one forgets them at once; both draft the same."""
    pool = [random_text(seed, BLOCK, some.VOCAB_SIZE).tolist() for seed in range(3)]
    remembers, forgets = make(2_048, max_requests=4), make(2_048, max_requests=4, max_sessions=0)
    running = []
    for i in range(data.draw(st.integers(2, 8))):
        if len(running) == 4 or (running and data.draw(st.booleans())):
            ended = running.pop(data.draw(st.integers(0, len(running) - 1)))
            remembers.finish(ended)
            forgets.finish(ended)
        prompt = sum(data.draw(st.lists(st.sampled_from(pool), max_size=3)), data.draw(st.just([])))
        prompt = prompt + data.draw(some.texts(max_size=6))
        session, tenant = data.draw(st.sampled_from([None, None, "s"])), data.draw(st.sampled_from([None, "x"]))
        output = data.draw(st.one_of(st.sampled_from(pool), some.texts(max_size=6)))
        for cache in (remembers, forgets):
            cache.begin(f"r{i}", prompt, session=session, tenant=tenant)
            cache.accept(f"r{i}", output)
        running.append(f"r{i}")
        for request_id in running:
            expected = forgets.draft(request_id, max_draft=11)
            draft = remembers.draft(request_id, max_draft=11)
            assert draft.tokens.tolist() == expected.tokens.tolist()
            assert draft.probs.tolist() == expected.probs.tolist()
    remembers.check_integrity()
