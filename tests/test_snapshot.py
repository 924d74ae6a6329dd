"""Snapshots: what others may see outlives the process; a file is there whole, or refused with the reason."""

import hashlib
import os
import resource
import stat
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngramspec import ConfigError, SnapshotError
from ngramspec.arena import (
    A_COMPONENTS,
    A_VERSION,
    B_FINAL,
    B_NODE,
    B_TABLES,
    BLOCK,
    COUNT_ROW,
    K_OFF,
    K_TOKENS,
    LAYOUT_VERSION,
    M_FILL,
    M_FREE,
    M_NEXT,
    M_PREV,
    M_WRITER,
    META,
    S_BLOCKS,
    S_CLOCK,
    S_CURSOR,
    S_FREE,
    S_HEAD,
    S_HOPS,
    S_LINKS,
    S_META,
    S_ORDERS,
    S_TEXT,
    S_TOKENS,
    WORDS,
)
from ngramspec.kernels.counts import K_CHECK, K_COUNT, K_TOTAL, K_VALUE, MAX_COUNT
from ngramspec.kernels.requests import SHARED_CONTEXT
from ngramspec.snapshot import inspect, load, save
from tests.checks import drafts
from tests.kinds import make
from tests.snapshots import HEAD, sealed, with_words
from tests.sources import ROOT
from tests.strategies import VOCAB_SIZE

SAVED = ("rolling-hash", "ngramspec")
saved_caches = pytest.mark.parametrize("name", SAVED)

#: Words of the file's head, of the arena's own header behind it, and of the first component's, `shared`.
FORMAT, LAYOUT, VOCAB, N_EOS, EOS0 = 1, 2, 10, 11, 32
ARENA, SHARED = WORDS, 2 * WORDS


def feed(cache, seed, n_requests=4, *, prefix="old", finish=True, private=True):
    """Requests with repeating text, one after the other: two tenants, sessions, and every way of sharing."""
    rng = np.random.default_rng(seed)
    for i in range(n_requests):
        request_id = f"{prefix}{i}"
        prompt, output = rng.integers(0, VOCAB_SIZE - 1, (2, 40))
        cache.begin(
            request_id,
            prompt[: int(rng.integers(1, 40))],
            tenant=(None, "x")[i % 2],
            session=(None, None, "s")[i % 3],
            share=("outputs", "all", "outputs", "none" if private else "outputs")[i % 4],
        )
        for step in output.reshape(-1, 4):
            cache.draft(request_id, max_draft=5)
            cache.accept(request_id, [*step, *step])
        if finish:
            cache.finish(request_id)


def trained(name, private=True, **changed):
    cache = make(name, **changed)
    feed(cache, 1, private=private)
    return cache


def shared_drafts(cache, seed, n_steps=6):
    """Drafts of new requests of both tenants while they learn; they end behind it."""
    rng = np.random.default_rng(seed)
    slots = [cache.begin(f"new{i}", rng.integers(0, 7, 12), tenant=(None, "x")[i % 2]) for i in range(4)]
    found = []
    for _ in range(n_steps):
        found += [
            (row.tokens.tolist(), row.parents.tolist(), row.probs.tolist(), row.sources.tolist(), row.reason)
            for row in drafts(cache, slots)
        ]
        for i in range(4):
            cache.accept(f"new{i}", rng.integers(0, 7, 3))
    for i in range(4):
        cache.finish(f"new{i}")
    return found


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.ngs"


def refused(cache, path, text="", **settings):
    """Loading is refused for the reason given, names the file, and changes nothing."""
    before = cache.digest()
    with pytest.raises(SnapshotError) as error:
        load(cache, path, **settings)
    assert text in str(error.value)
    assert str(error.value).startswith(f"{path}: ")
    assert cache.digest() == before


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


# What is refused.


@saved_caches
def test_running_requests_refuse_a_load(name, path):
    cache = trained(name)
    save(cache, path)
    cache.begin("a", [1, 2])
    refused(cache, path, "1 requests are running")
    cache.finish("a")
    load(cache, path)


@saved_caches
@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"vocab_size": 9}, "vocab_size is 8, must be 9"),
        ({"eos_ids": ()}, "eos_ids is (7,), must be ()"),
        ({"eos_ids": (6,)}, "eos_ids is (7,), must be (6,)"),
        ({"capacity_tokens": 4_096}, "shared: blocks of text is 32, must be 64"),
        ({"shared_percent": 25}, "shared: blocks of text is 32, must be 16"),
        ({"orders": (1, 2, 4)}, "shared: number of orders is 4, must be 3"),
        ({"orders": (1, 2, 4, 7)}, "shared: orders[3] is 8, must be 7"),
        ({"max_match": 31}, "shared: max_match is 32, must be 31"),
    ],
)
def test_other_settings_are_refused(name, changed, text, path):
    save(trained(name), path)
    refused(make(name, **changed), path, text)


def test_another_number_of_counted_contexts_is_refused(path):
    save(trained("ngramspec"), path)
    refused(make("ngramspec", counted_per_token=1.0), path, "counts: counted rows is 512, must be 1024")


def test_another_kind_of_cache_is_refused(path):
    save(trained("ngramspec"), path)
    refused(make("rolling-hash"), path, "kind is 'ngramspec', must be 'rolling-hash'")


@pytest.mark.parametrize(
    ("at_save", "at_load"), [("a", "b"), ("a", None), (None, "a"), (b"{1}", b"{2}"), ("model@1", b"model@2")]
)
def test_another_tokenizer_is_refused(at_save, at_load, path):
    save(trained("rolling-hash"), path, tokenizer=at_save)
    cache = make("rolling-hash")
    refused(cache, path, "tokenizer is ", tokenizer=at_load)
    load(cache, path, tokenizer=at_save)


@pytest.mark.parametrize("tokenizer", ["", b"", 7, ["a"]])
def test_a_tokenizer_is_a_name_or_bytes(tokenizer, path):
    with pytest.raises(ConfigError, match="tokenizer: got"):
        save(make("rolling-hash"), path, tokenizer=tokenizer)
    assert not path.exists()


@pytest.mark.parametrize(("name", "text"), [("suffix-trie", "own and shared text"), ("none", "no shared state")])
def test_caches_without_shared_state_of_its_own_are_refused(name, text, path):
    cache = make(name)
    for call in (save, load):
        with pytest.raises(SnapshotError, match=text):
            call(cache, path)
    assert not path.exists()


@pytest.mark.parametrize("content", [b"", b"x", b"tokens: 1 2 3\n" * 100, bytes(4096)])
def test_other_files_are_refused(content, path):
    path.write_bytes(content)
    refused(make("rolling-hash"), path, "does not start as a snapshot does")
    with pytest.raises(SnapshotError, match="does not start"):
        inspect(path)


def test_what_is_not_there_is_the_systems_error(path, tmp_path):
    cache = make("rolling-hash")
    with pytest.raises(FileNotFoundError):
        load(cache, path)
    with pytest.raises(IsADirectoryError):
        load(cache, tmp_path)
    with pytest.raises(FileNotFoundError):
        save(cache, tmp_path / "nowhere" / "state")


@pytest.fixture(scope="module", params=SAVED)
def good(request, tmp_path_factory):
    """A cache to load into, the bytes of a file that fits it, and where to put others."""
    path = tmp_path_factory.mktemp("good") / "state"
    save(trained(request.param), path)
    return make(request.param), path.read_bytes(), path.with_name("bad")


def lengths(n):
    header_ends = [HEAD * k for k in range(1, 4)]
    around = [edge + d for edge in (8, *header_ends, n // 2) for d in (-1, 0, 1)]
    return sorted({0, 1, *around, n - HEAD, n - 64, n - 1} - {n})


def test_truncated_files_are_refused(good):
    cache, data, path = good
    for n in lengths(len(data)):
        path.write_bytes(data[:n])
        refused(cache, path, "truncated" if n >= 8 else "does not start")
    for more in (b"\0", bytes(64), data):
        path.write_bytes(data + more)
        refused(cache, path, "truncated or damaged")


@given(share=st.floats(0, 1, exclude_max=True))
def test_files_truncated_anywhere_are_refused(good, share):
    cache, data, path = good
    path.write_bytes(data[: int(share * len(data))])
    refused(cache, path)


@given(where=st.one_of(st.floats(0, 1, exclude_max=True), st.integers(0, 4 * HEAD - 1)), bit=st.integers(0, 7))
def test_a_flipped_bit_anywhere_is_refused(good, where, bit):
    cache, data, path = good
    changed = bytearray(data)
    changed[int(where * len(data)) if isinstance(where, float) else where] ^= 1 << bit
    path.write_bytes(changed)
    refused(cache, path)


# What is refused although its checksum is right.


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({FORMAT: 2}, "format version is 2, must be 1"),
        ({LAYOUT: 99}, f"layout version is 99, must be {LAYOUT_VERSION}"),
        ({VOCAB: 9}, "vocab_size is 9, must be 8"),
        ({VOCAB: -1}, "vocab_size is -1"),
        ({N_EOS: 17}, "number of eos_ids is 17"),
        ({N_EOS: -1}, "number of eos_ids is -1"),
        ({EOS0: 6}, "eos_ids is (6,)"),
        ({28: 0}, "kind is "),
        ({28: -1}, "not text"),
        ({ARENA + A_VERSION: 99}, "layout version is 99"),
        ({ARENA + A_COMPONENTS: 9}, "holds 9 components"),
        ({SHARED + S_BLOCKS: 2**40}, "blocks of text is"),
        ({SHARED + S_ORDERS: -1}, "number of orders is -1"),
        ({SHARED + S_TEXT: 0}, "offset in word"),
        ({SHARED + S_HEAD: -5}, "offset in word"),
        ({SHARED + S_CURSOR: -1}, "cursor is -1"),
        ({SHARED + S_CURSOR: 2**63 - 1}, "cursor is"),
        ({SHARED + S_CLOCK: 2**40}, "clock is"),
        ({SHARED + S_FREE: 1}, "free blocks is 1"),
        ({SHARED + S_TOKENS: 1}, "token counter differs"),
        ({SHARED + WORDS - 1: 1}, "unused word is 1"),
    ],
)
def test_headers_that_deceive_are_refused(good, changes, text):
    cache, data, path = good
    path.write_bytes(with_words(data, changes))
    refused(cache, path, text)


def shared(word, index, value):
    """A change of one element of a section of `shared`."""
    return "shared", word, index, value


def meta(block, field, value):
    return "shared", S_META, block * META + field, value


SPOILT = [
    (shared(S_TEXT, 0, VOCAB_SIZE + 1), "text is 9, allowed -1 to 8"),
    (shared(S_TEXT, 0, -2), "text is -2"),
    (shared(S_TEXT, 0, 0), "text and fill disagree"),
    (meta(0, M_FILL, BLOCK + 1), "fill out of range"),
    (meta(0, M_FILL, -1), "fill out of range"),
    (meta(0, M_NEXT, 10_000), "link of a block is 10000"),
    (meta(0, M_NEXT, -3), "link of a block is -3"),
    (meta(1, M_PREV, 10_000), "link of a block is 10000"),
    (meta(1, M_PREV, -1), "link of a block is -1"),
    (meta(5, M_PREV, 1), "not linked both ways"),
    (meta(0, M_WRITER, 1), "writer of a block is 1"),
    (meta(0, M_FREE, 1), "free link of a block is 1"),
    (shared(S_LINKS, 0, -1), "clock of a position is -1"),
    (shared(S_LINKS, 3, 2**30), "link out of range"),
    (shared(S_LINKS, 3, -1), "link out of range"),
    (shared(S_HEAD, 3, 2**30), "head out of range"),
    (shared(S_HEAD, 3, -1), "head out of range"),
]
SPOILT_MIXER = [
    (("counts", K_OFF, 3 * COUNT_ROW + K_CHECK, -1), "check word is -1"),
    (("counts", K_OFF, 3 * COUNT_ROW + K_TOTAL, MAX_COUNT + 1), "total is"),
    (("counts", K_OFF, 3 * COUNT_ROW + K_VALUE, VOCAB_SIZE + 1), "follower is 9"),
    (("counts", K_OFF, 3 * COUNT_ROW + K_VALUE + 6, -1), "follower is -1"),
    (("counts", K_OFF, 3 * COUNT_ROW + K_COUNT, -1), "count is -1"),
    (("mixer", B_TABLES, 5, -1), "table entry is -1"),
    (("mixer", B_FINAL, 7, 1 << 30), "table entry is"),
    (("mixer", B_NODE, 9, 2**31 - 1), "weight is"),
]


def spoil(cache, data, change):
    """The file's bytes with one element of a section changed; offsets in the file are its own."""
    component, word, index, value = change
    names = ["shared", "counts", "mixer"]
    buffer = bytearray(data)
    header = np.frombuffer(buffer, np.int64)[WORDS * (2 + names.index(component)) :]
    np.frombuffer(buffer, np.int32)[HEAD // 4 + int(header[word]) + index] = value
    return sealed(buffer)


@pytest.mark.parametrize(("change", "text"), SPOILT)
def test_shared_text_that_deceives_is_refused(good, change, text):
    cache, data, path = good
    path.write_bytes(spoil(cache, data, change))
    refused(cache, path, text)


@pytest.mark.parametrize(("change", "text"), SPOILT_MIXER)
def test_counts_and_mixer_that_deceive_are_refused(change, text, path):
    cache = make("ngramspec")
    save(trained("ngramspec"), path)
    path.write_bytes(spoil(cache, path.read_bytes(), change))
    refused(cache, path, text)


values = st.one_of(st.integers(-2, 70), st.integers(-(2**31), 2**31 - 1))


@pytest.mark.jit_off
@given(changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), values), min_size=1, max_size=20))
def test_whatever_is_accepted_is_safe_to_use(good, changes):
    """Text, links, heads, counts and tables of any content: refused, or used without leaving buffer or vocabulary."""
    cache, data, path = good
    buffer = bytearray(data)
    elements = np.frombuffer(buffer, np.int32)
    first = 6 * HEAD // 4
    for where, value in changes:
        elements[first + int(where * (len(elements) - first))] = value
    path.write_bytes(sealed(buffer))
    try:
        load(cache, path)
    except SnapshotError:
        return
    cache.check_integrity()
    for tokens, *_ in shared_drafts(cache, len(changes), n_steps=2):
        assert all(0 <= token < VOCAB_SIZE for token in tokens)
    cache.check_integrity()


# Written whole or not at all.


@pytest.fixture
def old(path):
    """A file, and a cache whose state differs from it."""
    save(make("rolling-hash"), path)
    return path, path.read_bytes(), trained("rolling-hash")


def fail(*unused):
    raise OSError(5, "no")


@pytest.mark.parametrize("broken", ["replace", "fsync"])
def test_a_save_that_fails_leaves_the_old_file_alone(old, broken, monkeypatch):
    path, data, cache = old
    monkeypatch.setattr(os, broken, fail)
    with pytest.raises(OSError, match="no"):
        save(cache, path)
    monkeypatch.undo()
    assert path.read_bytes() == data
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("room", [0, 100, HEAD, 5_000])
def test_a_full_disk_leaves_the_old_file_alone(old, room):
    path, data, cache = old
    assert len(data) > room
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        with pytest.raises(OSError):
            save(cache, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == data
    assert list(path.parent.iterdir()) == [path]
    save(cache, path)
    assert path.read_bytes() != data


CRASHES = """
import os, resource, signal, sys
from pathlib import Path
from ngramspec.snapshot import save
from tests.test_snapshot import trained

path = Path(sys.argv[1])
cache, old = trained("rolling-hash"), path.read_bytes()
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
for room in range(0, len(old), len(old) // 40):
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))  # one byte more kills the process
        save(cache, path)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert os.WTERMSIG(status) == signal.SIGXFSZ, (room, status)
    assert path.read_bytes() == old, room
left = sorted(file.stat().st_size for file in path.parent.glob(".state.ngs.*.tmp"))
print(len(left), left[0], left[-1])
"""


def test_a_crash_at_any_byte_leaves_the_old_file(old):
    path, data, cache = old
    done = subprocess.run(
        [sys.executable, "-c", CRASHES, str(path)],
        cwd=ROOT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    n_left, smallest, largest = map(int, done.stdout.split())
    assert n_left >= 40 and smallest == 0 and largest > len(data) // 2, "they died in the middle"
    assert path.read_bytes() == data
    load(make("rolling-hash"), path)
    save(cache, path)
    assert path.read_bytes() != data


def test_a_file_can_be_read_by_its_owner_only(path):
    save(make("rolling-hash"), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_symbolic_link_stays_one(path, tmp_path):
    (tmp_path / "folder").mkdir()
    target = tmp_path / "folder" / "target"
    target.write_bytes(b"old")
    path.symlink_to(target)
    save(make("rolling-hash"), str(path))
    assert path.is_symlink() and target.read_bytes()[:8] == b"ngrmsnap"


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
