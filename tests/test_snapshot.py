"""Snapshots: what others may see outlives the process, and nothing else does."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngramspec import SnapshotError
from ngramspec.arena import (
    K_OFF,
    K_TOKENS,
    LAYOUT_VERSION,
    S_HOPS,
)
from ngramspec.kernels.shared_text import SHARED_CONTEXT
from ngramspec.snapshot import inspect, load, save
from tests.kinds import make
from tests.snapshots import SAVED, feed, shared_drafts, trained
from tests.strategies import VOCAB_SIZE

saved_caches = pytest.mark.parametrize("name", SAVED)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.ngs"


# What comes back.


@saved_caches
@pytest.mark.parametrize(("private", "n_steps"), [(False, 12), (True, 1)])
def test_a_loaded_cache_drafts_from_shared_text_as_the_saved_one_does(name, private, n_steps, path):
    """And learns on as it does, unless private contexts take room in the one that was not loaded."""
    cache = trained(name, private)
    save(cache, path)
    other = make(name)
    load(other, path)
    other.check_integrity()
    expected = shared_drafts(cache, 2, n_steps)
    assert shared_drafts(other, 2, n_steps) == expected
    assert any(2 in sources for _, _, _, sources, _ in expected), "some of it comes from shared text"
    assert shared_drafts(make(name), 2, n_steps) != expected


@saved_caches
def test_what_was_loaded_is_saved_as_the_same_bytes(name, path, tmp_path):
    save(trained(name), path)
    other = make(name)
    load(other, path)
    save(other, tmp_path / "again")
    load(other, tmp_path / "again")
    save(other, path)
    assert path.read_bytes() == (tmp_path / "again").read_bytes()


@saved_caches
def test_loading_replaces_shared_text_and_keeps_idle_sessions(name, path):
    save(make(name), path)
    cache = trained(name)
    idle = cache.stats()["idle_sessions"]
    load(cache, path)
    stats = cache.stats()
    assert (stats["shared_tokens"], stats["idle_sessions"]) == (0, idle)
    assert idle > 0 and stats["own_tokens"] > 0
    cache.check_integrity()
    feed(cache, 3, prefix="later")
    cache.check_integrity()


@saved_caches
def test_saving_changes_nothing_and_may_happen_while_requests_run(name, path):
    cache = trained(name)
    feed(cache, 4, finish=False, prefix="live")
    before = cache.digest()
    save(cache, path)
    assert cache.digest() == before
    other = make(name)
    load(other, path)
    other.check_integrity()
    assert other.stats()["running_requests"] == 0
    assert other.stats()["shared_tokens"] == cache.stats()["shared_tokens"]


@saved_caches
def test_settings_that_do_not_shape_shared_state_may_differ(name, path):
    save(trained(name), path)
    changed = {"max_sessions": 3, "max_hops": 3, "max_requests": 5}
    if name == "ngramspec":
        changed |= {"deferred": True, "draft_threads": 2}
    other = make(name, **changed)
    load(other, path)
    other.check_integrity()
    assert other.arena.header("shared")[S_HOPS] == 3
    assert any(tokens for tokens, *_ in shared_drafts(other, 2))


@saved_caches
@given(seed=st.integers(0, 10_000))
def test_every_state_that_calls_lead_to_can_be_saved_and_loaded(name, seed, tmp_path_factory):
    """Blocks are reused over and over, outputs taken back, requests still running."""
    path = tmp_path_factory.mktemp("any") / "state"
    small = {"capacity_tokens": 640, "max_sessions": 2}
    cache, rng = make(name, **small), np.random.default_rng(seed)
    running = {}
    for i in range(int(rng.integers(10, 80))):
        if running and (len(running) == 8 or rng.random() < 0.7):
            request_id = list(running)[int(rng.integers(len(running)))]
            kind = rng.random()
            if kind < 0.6:
                n = int(rng.integers(1, 40))
                cache.draft(request_id, max_draft=4)
                cache.accept(request_id, rng.integers(-1, 4, n))
                running[request_id] += n
            elif kind < 0.8:
                running[request_id] = int(rng.integers(running[request_id] + 1))
                cache.truncate(request_id, running[request_id])
            else:
                cache.finish(request_id)
                del running[request_id]
        else:
            share = str(rng.choice(["outputs", "all", "none"]))
            running[f"r{i}"] = int(rng.integers(1, 40))
            cache.begin(f"r{i}", rng.integers(-1, 4, running[f"r{i}"]), share=share)
    save(cache, path)
    other = make(name, **small)
    load(other, path)
    other.check_integrity()
    assert other.stats()["shared_tokens"] == cache.stats()["shared_tokens"]


# What never leaves the process.


def unique(first, n):
    return list(range(first, first + n))


def file_values(path):
    return set(np.frombuffer(path.read_bytes(), np.int32).tolist())


@saved_caches
def test_own_text_is_not_in_the_file(name, path):
    """Ids that occur once each are looked for all over the file, as they are stored: id + 1."""
    cache = make(name, vocab_size=2_000_000)
    prompt, output, private_prompt, private_output, shared_prompt = (unique(k * 100_003, 40) for k in range(1, 6))
    cache.begin("a", prompt)
    cache.begin("b", private_prompt, share="none")
    cache.begin("c", shared_prompt, share="all")
    for i in range(40):
        cache.accept("a", output[i : i + 1])
        cache.accept("b", private_output[i : i + 1])
    for request_id in "ab":
        cache.finish(request_id)
    save(cache, path)
    values = file_values(path)
    kept = [[token for token in text if token + 1 in values] for text in (prompt, private_prompt, private_output)]
    assert kept == [prompt[-SHARED_CONTEXT:], [], []]
    assert {token + 1 for token in output + shared_prompt} <= values


def test_counted_contexts_of_shared_text_are_all_saved(path):
    cache = make("ngramspec")
    feed(cache, 5, n_requests=3)
    counts = cache.arena.section("counts", K_OFF).copy()
    assert counts.any()
    save(cache, path)
    other = make("ngramspec")
    load(other, path)
    assert (other.arena.section("counts", K_OFF) == counts).all()


def test_private_requests_leave_no_counted_context_and_shared_ones_theirs(path):
    cache, alone = make("ngramspec"), make("ngramspec")
    for each in (cache, alone):
        each.begin("a", [1, 2, 3])
        each.accept("a", [1, 2, 3, 4, 1, 2, 3, 4])
    cache.begin("b", [1, 2, 3], share="none")
    cache.accept("b", [5, 6, 5, 6, 5, 6])
    assert not (cache.arena.section("counts", K_OFF) == alone.arena.section("counts", K_OFF)).all()
    save(cache, path)
    other = make("ngramspec")
    load(other, path)
    assert (other.arena.section("counts", K_OFF) == alone.arena.section("counts", K_OFF)).all()


# What a file says about itself.


def test_inspect_tells_what_a_file_holds(path):
    cache = trained("ngramspec")
    save(cache, path, tokenizer="model")
    shared_tokens = cache.stats()["shared_tokens"]
    counted = int(cache.arena.header("counts")[K_TOKENS])
    assert inspect(path) == {
        "kind": "ngramspec",
        "name": "",
        "format_version": 1,
        "layout_version": LAYOUT_VERSION,
        "nbytes": path.stat().st_size,
        "tokenizer": hashlib.blake2b(b"model", digest_size=16).hexdigest(),
        "vocab_size": VOCAB_SIZE,
        "eos_ids": [VOCAB_SIZE - 1],
        "components": {
            "shared": {"tokens": shared_tokens, "blocks": 32, "orders": [1, 2, 4, 8], "max_match": 32},
            "counts": {"tokens": counted, "rows": 512},
            "mixer": {},
        },
    }
    save(cache, path)
    assert inspect(path)["tokenizer"] is None


@saved_caches
def test_inspect_reads_headers_alone_where_it_is_asked_to(name, path):
    save(trained(name), path)
    facts = inspect(path)
    assert inspect(path, verify_checksum=False) == facts
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert inspect(path, verify_checksum=False) == facts
    with pytest.raises(SnapshotError, match="checksum differs"):
        inspect(path)
    path.write_bytes(data[:-64])
    with pytest.raises(SnapshotError, match="truncated or damaged"):
        inspect(path, verify_checksum=False)
