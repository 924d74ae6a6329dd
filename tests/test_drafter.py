"""What the calibrated drafter must do on streams whose right answer is known."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import ngramspec as ns
from ngramspec.arena import F_OFF, OFFER_ROW
from ngramspec.kernels import drafter as kernels

VOCAB = 60_000


def drafter(**settings: object) -> ns.Drafter:
    """A small drafter."""
    defaults = {"capacity_tokens": 60_000, "vocab_size": VOCAB, "max_requests": 8}
    return ns.Drafter(ns.DrafterConfig(**{**defaults, **settings}))


def random_text(seed: int, n_ids: int, n_tokens: int) -> np.ndarray:
    """Token ids drawn evenly."""
    return np.random.default_rng(seed).integers(0, n_ids, n_tokens)


def serve(cache: ns.Cache, request_id: str, prompt, output, **how) -> tuple[int, int, list[int]]:
    """Decode a recorded output; returns (steps, drafted tokens, tokens emitted in each step)."""
    output = [int(token) for token in output]
    cache.begin(request_id, prompt)
    cache.accept(request_id, output[:1])
    done, drafted, emitted = 1, 0, []
    while done < len(output):
        draft = cache.draft(request_id, **how)
        drafted += len(draft)
        node, accepted = -1, 0
        while done + accepted < len(output):
            wanted = output[done + accepted]
            found = [i for i in range(node + 1, len(draft)) if draft.parents[i] == node and draft.tokens[i] == wanted]
            if not found:
                break
            node, accepted = found[0], accepted + 1
        emitted.append(min(accepted + 1, len(output) - done))
        cache.accept(request_id, output[done : done + emitted[-1]])
        done += emitted[-1]
    cache.finish(request_id)
    return len(emitted), drafted, emitted


STREAMS = {
    "every token new": (np.arange(1000), np.arange(5000, 8000)),
    "random, large vocabulary": (random_text(1, 50_000, 2000), random_text(2, 50_000, 3000)),
    "random, small vocabulary": (random_text(3, 500, 2000), random_text(4, 500, 3000)),
}


@pytest.mark.parametrize("name", STREAMS)
def test_text_without_repeats_is_hardly_drafted_at_threshold_02(name: str) -> None:
    prompt, output = STREAMS[name]
    _, drafted, _ = serve(drafter(), "r", prompt, output, max_draft=11, min_prob=0.2)
    assert drafted <= 0.02 * len(output)


@pytest.mark.parametrize("topology", ["chain", "tree"])
def test_verbatim_copies_emit_at_least_25_tokens_a_step(topology: str) -> None:
    text = np.random.default_rng(0).integers(0, 50_000, 2000)
    steps, _, _ = serve(drafter(), "r", text, text, max_draft=64, topology=topology)
    assert (len(text) - 1) / steps >= 25


@pytest.mark.parametrize(("period", "least"), [(1, 9.0), (2, 9.0), (7, 8.0)])
def test_periodic_text_fills_the_budget(period: int, least: float) -> None:
    steps, _, _ = serve(drafter(), "r", [1, 2, 3], list(range(10, 10 + period)) * (700 // period), max_draft=11)
    assert 700 / steps >= least


def test_recovers_within_8_steps_when_a_stream_turns_repetitive() -> None:
    noise = list(np.random.default_rng(5).integers(0, 50_000, 1500))
    cache = drafter()
    serve(cache, "noise", noise[:500], noise[500:], max_draft=11)
    _, _, emitted = serve(cache, "turn", [1, 2, 3], [100, 101, 102, 103] * 60, max_draft=11, topology="chain")
    assert max(emitted[:12]) >= 6  # one period (4 tokens) has to be seen first, then at most 8 steps


def test_a_refused_first_token_is_not_offered_again_before_progress() -> None:
    cache = drafter()
    cache.begin("r", [1, 2, 3, 1, 2, 4, 1, 2])
    seen: set[int] = set()
    for _ in range(4):
        draft = cache.draft("r", max_draft=1)
        assert not seen & set(draft.tokens.tolist())
        seen |= set(draft.tokens.tolist())
        cache.accept("r", [])
    assert seen == {3, 4}
    cache.accept("r", [3, 1, 2])
    assert set(cache.draft("r", max_draft=1).tokens.tolist()) <= {3, 4}


def test_a_tenant_cannot_poison_another() -> None:
    cache = drafter()
    rng = np.random.default_rng(6)
    cache.begin("evil", rng.integers(0, 50, 400), tenant="a", share="all")
    cache.accept("evil", rng.integers(0, 50, 400))
    cache.finish("evil")
    cache.begin("good", [3, 4, 5], tenant="b")
    assert len(cache.draft("good", max_draft=11)) == 0
    cache.begin("private", [3, 4, 5], tenant="a", share="none")
    cache.accept("private", [40_000, 40_001, 3, 4, 5])
    cache.finish("private")
    cache.begin("other", [3, 4, 5], tenant="a")
    assert not {40_000, 40_001} & set(cache.draft("other", max_draft=30).tokens.tolist())


def test_what_is_truncated_is_not_drafted() -> None:
    cache = drafter()
    cache.begin("r", [1, 2, 3])
    cache.accept("r", [70, 71, 72, 1, 2, 3])
    assert 70 in cache.draft("r", max_draft=5).tokens
    cache.truncate("r", 3)
    assert len(cache.draft("r", max_draft=5)) == 0
    cache.finish("r")
    cache.begin("s", [1, 2, 3])
    assert len(cache.draft("s", max_draft=5)) == 0


def _script(cache: ns.Drafter, settle: bool = False) -> list[list[int]]:
    """A mixed batch of 6 requests for 40 steps; returns what was drafted."""
    rng = np.random.default_rng(7)
    slots = np.array([cache.begin(str(i), rng.integers(0, 40, 60)) for i in range(6)], np.int32)
    out, seen = ns.DraftBatch.allocate(6, 11), []
    for step in range(40):
        batch = slots[: 3 + step % 4]
        cache.draft_batch(batch, out, max_draft=11)
        seen += [out.tokens[i, : out.n_draft[i]].tolist() for i in range(len(batch))]
        if settle:
            cache.settle(batch)
        counts = rng.integers(1, 4, len(batch))
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        cache.accept_batch(batch, rng.integers(0, 40, offsets[-1]).astype(np.int32), offsets)
    return seen


def test_thread_count_and_process_change_nothing() -> None:
    one, three = drafter(), drafter(draft_threads=3)
    assert _script(one) == _script(three)
    assert one.digest() == three.digest()
    code = "from tests.test_drafter import _script, drafter; c = drafter(); _script(c); print(c.digest())"
    run = [sys.executable, "-c", code]
    for seed in ("1", "2"):
        done = subprocess.run(
            run, env={**__import__("os").environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True
        )
        assert done.stdout.strip() == one.digest(), done.stderr


def test_a_slot_that_comes_twice_gives_one_state_whatever_the_threads() -> None:
    """It is not allowed; threads that shared its row would race."""
    states = []
    for n_threads in (1, 3):
        cache = drafter(draft_threads=n_threads)
        rows = [cache.begin(f"r{i}", [1, 2, 3, i, 1, 2]) for i in range(3)]
        twice, out = np.array(rows * 3, np.int32), ns.DraftBatch.allocate(9, 4)
        cache.draft_batch(twice, out, max_draft=4)
        states.append((cache.digest(), out.tokens.tolist()))
    assert states[0] == states[1]


def test_deferred_learning_is_the_same_wherever_it_is_settled() -> None:
    late, early = drafter(deferred=True), drafter(deferred=True)
    assert _script(late) == _script(early, settle=True)
    for cache in (late, early):
        for i in range(6):
            cache.finish(str(i))
    assert late.digest() == early.digest()


def test_more_tokens_than_one_settling_takes() -> None:
    text = np.random.default_rng(8).integers(0, 50_000, 1000)
    once, often = drafter(), drafter()
    for cache, size in ((once, 1000), (often, 160)):
        cache.begin("r", [5])
        for start in range(0, 1000, size):
            cache.accept("r", text[start : start + size])
        cache.accept("r", text[:8])
        cache.check_integrity()
    assert once.draft("r", max_draft=9).tokens.tolist() == often.draft("r", max_draft=9).tokens.tolist()
    assert once.draft("r", max_draft=9, topology="chain").tokens.tolist() == text[8:17].tolist()


def test_explain_names_matches_followers_and_the_end_of_the_last_draft() -> None:
    cache = drafter()
    cache.begin("r", [1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3])
    draft = cache.draft("r", max_draft=3, topology="chain")
    told = cache.explain("r")
    assert told["own_matches"][0] == draft.match_length == 7
    assert told["followers"][0]["token"] == draft.tokens[0] == 4
    assert told["followers"][0]["probability"] == pytest.approx(float(draft.probs[0]), abs=1e-3)
    assert told["last_draft"] == {"tokens": 3, "ended": "budget"}
    for how, ended in (({"min_prob": 0.999}, "below_min"), ({"remaining": 2}, "length_limit")):
        cache.draft("r", max_draft=3, **how)
        assert cache.explain("r")["last_draft"]["ended"] == ended
    stats = cache.stats()
    assert stats["drafts"] == 3 == sum(stats[f"drafts_{reason.name.lower()}"] for reason in ns.Reason)


def test_no_look_up_when_nothing_may_be_drafted() -> None:
    cache = drafter()
    cache.begin("r", [1, 2, 1, 2])
    before = cache.digest()
    assert cache.draft("r", max_draft=0).reason is ns.Reason.BUDGET
    head = cache.arena.header("requests").copy()
    cache.reset()
    assert head[8] == 1 and before  # counted, and nothing else happened


def corpus(name: str, *documents: list[int]) -> ns.FrozenCorpus:
    """A frozen corpus of the tests' vocabulary."""
    return ns.FrozenCorpus.build(name, [np.array(document, np.int32) for document in documents], vocab_size=VOCAB)


def test_frozen_corpora_are_drafted_from_while_they_are_there() -> None:
    cache = drafter()
    cache.begin("r", [1, 2, 3, 4])
    assert len(cache.draft("r", max_draft=3)) == 0
    cache.add_corpus(corpus("manual", [9, 1, 2, 3, 4, 50, 51, 52]))
    draft = cache.draft("r", max_draft=3, topology="chain")
    assert draft.tokens.tolist() == [50, 51, 52]
    assert set(draft.sources.tolist()) == {ns.Source.FROZEN}
    assert cache.explain("r")["frozen_matches"]
    cache.add_corpus(corpus("faq", [2, 3, 4, 60, 61], [50, 70]))
    assert cache.corpora == ("manual", "faq")
    assert {50, 60} <= set(cache.draft("r", max_draft=8).tokens.tolist())
    cache.accept("r", [50, 51])
    cache.remove_corpus("manual")
    assert 52 not in cache.draft("r", max_draft=8).tokens
    cache.remove_corpus("faq")
    cache.accept("r", [5000])
    cache.begin("s", [2, 3, 4], tenant="b")
    assert len(cache.draft("s", max_draft=3)) == 0
    cache.check_integrity()


def test_own_text_comes_before_frozen_text() -> None:
    cache = drafter()
    cache.add_corpus(corpus("manual", [1, 2, 3, 4, 50]))
    cache.begin("r", [1, 2, 3, 4, 70, 1, 2, 3, 4])
    assert cache.draft("r", max_draft=1).tokens.tolist() == [70]


@pytest.mark.parametrize("deferred", [False, True])
def test_a_state_that_is_attached_knows_nothing_of_corpora(deferred) -> None:
    cache = drafter(deferred=deferred)
    cache.add_corpus(corpus("manual", [9, 1, 2, 3, 4, 50, 51, 52]))
    slots = np.array([cache.begin("r", [1, 2, 3, 4])], np.int32)
    assert cache.draft("r", max_draft=2).tokens.tolist() == [50, 51]
    cache.accept("r", [50])
    assert cache.draft("r", max_draft=1).tokens.tolist() == [51]
    attached = ns.Drafter(cache.config, cache.arena.buffer.copy())
    offers = attached.arena.section("offers", F_OFF).reshape(-1, OFFER_ROW)
    assert (offers[:, [kernels.O_N, kernels.O_HALF + kernels.O_N]] == 0).all()
    attached.accept_batch(slots, np.array([51, 50], np.int32), np.array([0, 2], np.int32))
    out = ns.DraftBatch.allocate(1, 4)
    attached.draft_batch(slots, out, max_draft=4)
    assert set(out.row(0).tokens.tolist()) <= {1, 2, 3, 4, 50, 51}


def test_corpora_that_do_not_fit_are_refused() -> None:
    cache = drafter()
    cache.add_corpus(corpus("a", [1, 2, 3]))
    other = ns.FrozenCorpus.build("b", [np.arange(9, dtype=np.int32)], vocab_size=10)
    for bad in (corpus("a", [4, 5]), other):
        with pytest.raises(ns.ConfigError, match="corpus"):
            cache.add_corpus(bad)
    with pytest.raises(ns.ConfigError, match="no 'c'"):
        cache.remove_corpus("c")
    assert cache.corpora == ("a",)


def test_corpora_may_change_while_learning_waits() -> None:
    cache = drafter(deferred=True)
    cache.add_corpus(corpus("a", list(range(100, 140)) * 4))
    cache.begin("r", list(range(100, 120)))
    for start in range(120, 138, 2):
        cache.draft("r", max_draft=4)
        cache.accept("r", [start, start + 1])
        if start == 126:
            cache.remove_corpus("a")
        if start == 130:
            cache.add_corpus(corpus("b", list(range(100, 140))))
    cache.check_integrity()
