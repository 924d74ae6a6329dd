"""Files that are damaged, do not fit or are made to deceive: refused with the reason, and the cache as it was."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngramspec import (
    ConfigError,
    Drafter,
    DrafterConfig,
    FrozenCorpus,
    HashConfig,
    RollingHashCache,
    SnapshotError,
    TrieConfig,
)
from ngramspec.arena import (
    A_COMPONENTS,
    A_VERSION,
    B_FINAL,
    B_NODE,
    B_TABLES,
    BLOCK,
    COUNT_ROW,
    K_OFF,
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
    S_LINKS,
    S_META,
    S_ORDERS,
    S_TEXT,
    S_TOKENS,
    WORDS,
)
from ngramspec.kernels.counts import K_CHECK, K_COUNT, K_TOTAL, K_VALUE, MAX_COUNT
from ngramspec.snapshot import inspect, load, map, save
from tests.kinds import make
from tests.snapshots import HEAD, SAVED, mapped, refused, sealed, shared_drafts, trained, with_words
from tests.strategies import VOCAB_SIZE

saved_caches = pytest.mark.parametrize("name", SAVED)


#: Words of the file's head, of the arena's own header behind it, and of the first component's, `shared`.
FORMAT, LAYOUT, VOCAB, N_EOS, EOS0 = 1, 2, 10, 11, 32
ARENA, SHARED = WORDS, 2 * WORDS


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.ngs"


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
    ("at_save", "at_load"),
    [("a", "b"), ("a", None), (None, "a"), (b"{1}", b"{2}"), ("model@1", b"model@2"), ("\ud800", "\ud801")],
)
def test_another_tokenizer_is_refused(at_save, at_load, path):
    save(trained("rolling-hash"), path, tokenizer=at_save)
    cache = make("rolling-hash")
    refused(cache, path, "tokenizer is ", tokenizer=at_load)
    load(cache, path, tokenizer=at_save)


@pytest.mark.parametrize("wrong", [None, 5, b"state.ngs", "a\0b", "a\ud800b", ["a"]])
def test_what_is_no_path_is_refused_by_name(wrong):
    cache = make("rolling-hash")
    corpus = FrozenCorpus.build("c", [[1]], vocab_size=8)
    cached = (partial(save, cache), partial(load, cache), partial(map, type(cache), cache.config))
    for use in (inspect, corpus.save, FrozenCorpus.load, *cached):
        with pytest.raises(ConfigError, match=r"path: got .*, allowed the path of a file"):
            use(wrong)


@pytest.mark.parametrize(
    ("kind", "config", "text"),
    [
        (RollingHashCache, None, "config: got None, allowed a HashConfig"),
        (RollingHashCache, {}, "config: got {}, allowed a HashConfig"),
        (RollingHashCache, TrieConfig(), "config: got TrieConfig"),
        (Drafter, HashConfig(), "config: got HashConfig"),
        (make("ngramspec"), DrafterConfig(), "kind: got .*, allowed the class Drafter"),
        (None, HashConfig(), "kind: got None, allowed the class Drafter or the class RollingHashCache"),
        (HashConfig, HashConfig(), "kind: got <class"),
        ("ngramspec", HashConfig(), "kind: got 'ngramspec', allowed the class Drafter"),
    ],
)
def test_what_is_no_cache_or_not_its_configuration_is_refused_by_name(kind, config, text, path):
    save(trained("rolling-hash"), path)
    with pytest.raises(ConfigError, match=text):
        map(kind, config, path)


@pytest.mark.parametrize("wrong", [None, 5, "ngramspec", HashConfig(), Drafter])
def test_only_a_cache_is_saved_and_loaded(wrong, path):
    for use in (save, load):
        with pytest.raises(ConfigError, match=r"cache: got .*, allowed a Drafter or a RollingHashCache"):
            use(wrong, path)
    assert not path.exists()


@pytest.mark.parametrize("tokenizer", ["", b"", 7, ["a"]])
def test_a_tokenizer_is_a_name_or_bytes(tokenizer, path):
    with pytest.raises(ConfigError, match="tokenizer: got"):
        save(make("rolling-hash"), path, tokenizer=tokenizer)
    assert not path.exists()


@pytest.mark.parametrize(("name", "text"), [("suffix-trie", "own and shared text"), ("none", "no shared state")])
def test_caches_without_shared_state_of_its_own_are_refused(name, text, path):
    cache = make(name)
    for call in (save, load, mapped):
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
        refused(cache, path)
        return
    for each in (cache, mapped(cache, path)):
        each.check_integrity()
        for tokens, *_ in shared_drafts(each, len(changes), n_steps=2):
            assert all(0 <= token < VOCAB_SIZE for token in tokens)
        each.check_integrity()
