"""One flat buffer is the whole state of a cache: copied, it goes on the same; spoilt or strange, it is refused.

The configuration knows its size, and refuses what would not work.
"""

import numpy as np
import pytest

from ngramspec import CapacityError, ConfigError, SnapshotError
from ngramspec.arena import A_COMPONENTS, A_DIGEST, A_MAGIC, A_NAMES, A_NBYTES, A_VERSION, R_OFF, WORDS
from tests.checks import drafts
from tests.kinds import DRAFTING, KINDS, make

drafting_caches = pytest.mark.parametrize("name", DRAFTING)


def used(name):
    """A cache with running requests, an idle session and shared text; the slots that run."""
    cache = make(name, vocab_size=100, eos_ids=(99,))
    cache.begin("h", [1, 2, 3], session="s")
    cache.accept("h", [4, 5, 6, 1, 2])
    cache.finish("h")
    return cache, [cache.begin("a", [1, 2]), cache.begin("b", [3, 4, 5, 3, 4], tenant="x")]


def attach(name, cache, buffer):
    return KINDS[name].attach(cache.config, buffer)


def drafted(cache, slots):
    rows = drafts(cache, slots)
    assert any(len(row) for row in rows)
    return [(row.tokens.tolist(), row.parents.tolist(), row.probs.tolist(), row.reason) for row in rows]


@drafting_caches
def test_a_copy_of_the_buffer_is_the_cache(name):
    cache, slots = used(name)
    copy = attach(name, cache, cache.arena.buffer.copy())
    assert copy.digest() == cache.digest()
    assert drafted(copy, slots) == drafted(cache, slots)
    rows, tokens, offsets = (np.array(a, np.int32) for a in (slots, [4, 5, 6, 1, 5], [0, 4, 5]))
    for one in (cache, copy):
        one.accept_batch(rows, tokens, offsets)
    assert copy.digest() == cache.digest()
    assert drafted(copy, slots) == drafted(cache, slots)


def spoilt(word, value, header=0):
    def spoil(buffer):
        buffer[: 8 * WORDS * 4].view(np.int64).reshape(-1, WORDS)[header, word] = value

    return spoil


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (spoilt(A_MAGIC, 1), "magic is 1"),
        (spoilt(A_VERSION, 99), "layout version is 99"),
        (spoilt(A_NBYTES, 99), "size in bytes is 99"),
        (spoilt(A_DIGEST, 99), "configuration digest is 99"),
        (spoilt(A_COMPONENTS, 99), "number of components is 99"),
        (spoilt(A_NAMES + 1, 99), "component 1 is not 'own'"),
        (spoilt(R_OFF, 99, header=1), f"offset in word {R_OFF} of 'requests' is wrong"),
        (spoilt(R_OFF, -1, header=1), "offset in word"),
    ],
)
@drafting_caches
def test_a_buffer_that_holds_something_else_is_refused(name, spoil, text):
    cache, _ = used(name)
    buffer = cache.arena.buffer.copy()
    attach(name, cache, buffer.copy())
    spoil(buffer)
    with pytest.raises(SnapshotError, match=text):
        attach(name, cache, buffer)


def read_only(buffer):
    copy = buffer.copy()
    copy.flags.writeable = False
    return copy


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda b: b[:-8].copy(), "needs"),
        (lambda b: np.append(b, b[:8]), "needs"),
        (lambda b: b[:0].copy(), "got 0 bytes"),
        (lambda b: np.append(b[:4], b)[4:], "aligned to 8"),
        (lambda b: np.repeat(b, 2)[::2], "contiguous"),
        (lambda b: b.view(np.int8).copy(), "uint8"),
        (lambda b: b.reshape(2, -1).copy(), "one dimension"),
        (read_only, "writable"),
    ],
)
@drafting_caches
def test_a_buffer_of_the_wrong_kind_is_refused(name, change, text):
    cache, _ = used(name)
    with pytest.raises(SnapshotError, match=text):
        attach(name, cache, change(cache.arena.buffer))


@drafting_caches
def test_another_configuration_is_refused(name):
    cache, _ = used(name)
    same_size = KINDS[name].config(**cache.config.to_dict() | {"vocab_size": 101})
    assert same_size.nbytes == cache.nbytes
    with pytest.raises(SnapshotError, match="configuration digest"):
        KINDS[name].attach(same_size, cache.arena.buffer.copy())


# The configuration says how large the buffer is.


@drafting_caches
def test_memory_is_known_from_the_configuration(name):
    kind = KINDS[name]
    for settings in ({"capacity_tokens": 1_024, "max_requests": 2}, {"capacity_tokens": 50_000}):
        config = kind.config(**settings)
        cache = kind.build(**settings)
        assert cache.nbytes == config.nbytes == cache.arena.buffer.nbytes == cache.stats()["nbytes"]


def test_memory_a_token_of_the_rolling_hash_is_bounded():
    config = KINDS["rolling-hash"].config()
    assert config.nbytes <= 48 * config.capacity_tokens


@pytest.mark.parametrize("max_bytes", [2_000_000, 10_000_003, 64_000_000])
@drafting_caches
def test_the_largest_capacity_within_a_limit_is_chosen(name, max_bytes):
    config_of = KINDS[name].config
    config = config_of.with_max_bytes(max_bytes, max_requests=4, max_sessions=4)
    larger = config_of(**config.to_dict() | {"capacity_tokens": config.capacity_tokens + 64})
    assert config.nbytes <= max_bytes < larger.nbytes
    with pytest.raises(ConfigError, match="max_bytes: got 1000, these settings need at least"):
        config_of.with_max_bytes(1_000)
    for wrong in (None, 64e6, "64000000", True):
        with pytest.raises(ConfigError, match=f"max_bytes: got {wrong!r}, allowed an integer"):
            config_of.with_max_bytes(wrong)


@drafting_caches
def test_a_configuration_comes_back_from_plain_values(name):
    config = KINDS[name].config(vocab_size=77, eos_ids=[3, 5], max_requests=3)
    assert KINDS[name].config.from_dict(config.to_dict()) == config
    with pytest.raises(ConfigError, match=r"\$\.capacity: unknown setting; allowed are capacity_tokens, "):
        KINDS[name].config.from_dict({"capacity": 5})
    for wrong in (None, 5, "x", [], [("vocab_size", 5)]):
        with pytest.raises(ConfigError, match=r"\$: got .*, allowed an object of settings by name"):
            KINDS[name].config.from_dict(wrong)


@drafting_caches
def test_a_configuration_of_another_cache_is_refused(name):
    other = KINDS["suffix-trie" if name != "suffix-trie" else "rolling-hash"].config()
    for wrong in (None, {}, other, KINDS[name].config):
        with pytest.raises(ConfigError, match=r"config: got .*, allowed a (Hash|Trie|Drafter)Config"):
            KINDS[name].attach(wrong, None)
    with pytest.raises(SnapshotError, match="buffer: got bytes, must be a uint8 array"):
        KINDS[name].attach(KINDS[name].config(), b"state")


@drafting_caches
def test_memory_that_the_system_does_not_give_is_told(name, monkeypatch):
    def refuse(*unused):
        raise MemoryError

    config = KINDS[name].config()
    monkeypatch.setattr("ngramspec.arena.np.zeros", refuse)
    with pytest.raises(CapacityError, match=f"needs {config.nbytes} bytes, which this system does not give: lower"):
        KINDS[name].attach(config, None)


EVERY = (
    ({"vocab_size": 0}, "vocab_size: got 0, allowed integers from 1 to"),
    ({"vocab_size": 2**31}, f"vocab_size: got {2**31}, allowed integers from 1 to {2**31 - 1}"),
    ({"eos_ids": (5,), "vocab_size": 5}, r"eos_ids\[0\]: got 5, allowed integers from 0 to 4"),
    ({"eos_ids": range(17)}, "eos_ids: got 17 ids, at most 16"),
    ({"max_requests": 0}, "max_requests: got 0, allowed integers from 1"),
    ({"max_requests": True}, "max_requests: got True"),
    ({"max_sessions": -1}, "max_sessions: got -1, allowed integers from 0"),
    ({"max_sessions": None}, "max_sessions: got None"),
    ({"eos_ids": 5}, "eos_ids: got 5, allowed a list of integers"),
    ({"eos_ids": "57"}, r"eos_ids\[0\]: got '5'"),
)
HASH = (
    ({"orders": ()}, "orders: got"),
    ({"orders": (2, 1)}, "orders: got .2, 1., allowed .* ascending"),
    ({"orders": (1, 1)}, "orders: got"),
    ({"orders": (0, 1)}, r"orders\[0\]: got 0, allowed integers from 1 to 32"),
    ({"orders": (1, 33)}, r"orders\[1\]: got 33"),
    ({"orders": (1, 2, 3, 4, 5, 6, 7)}, "orders: got"),
    ({"orders": None}, "orders: got None, allowed a list of integers"),
    ({"orders": (1, "2")}, r"orders\[1\]: got '2'"),
    ({"max_hops": 0}, "max_hops: got 0, allowed integers from 1 to 64"),
    ({"max_match": 65}, "max_match: got 65"),
    ({"shared_percent": 96}, "shared_percent: got 96"),
)
TRIE = (
    ({"depth": 1}, "depth: got 1, allowed"),
    ({"max_followers": 0}, "max_followers: got 0, allowed"),
    ({"max_nodes": 1}, "max_nodes: got 1, allowed"),
)
DRAFTER = (
    ({"counted_per_token": "1"}, "counted_per_token: got '1', allowed 0.0 to 4.0"),
    ({"counted_per_token": float("nan")}, "counted_per_token: got nan"),
    ({"deferred": "no"}, "deferred: got 'no', allowed true and false"),
    ({"draft_threads": 0}, "draft_threads: got 0, allowed integers from 1 to 64"),
)
OWN = {"rolling-hash": HASH, "suffix-trie": TRIE, "ngramspec": HASH + DRAFTER}


@pytest.mark.parametrize(
    ("name", "settings", "text"), [(name, *row) for name in DRAFTING for row in (*EVERY, *OWN[name])]
)
def test_a_wrong_setting_is_refused_by_name(name, settings, text):
    with pytest.raises(ConfigError, match=text):
        KINDS[name].config(**settings)
