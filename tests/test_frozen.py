"""Frozen corpora: every place of a context is found, none across documents, and files come back or are refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngramspec import CapacityError, ConfigError, SnapshotError
from ngramspec.arena import (
    BLOCK,
    M_FILL,
    M_NEXT,
    M_OWNER_LO,
    M_PREV,
    META,
    S_BLOCKS,
    S_CLOCK,
    S_CURSOR,
    S_HEAD,
    S_HEADS,
    S_HOPS,
    S_LINKS,
    S_META,
    S_ORDER0,
    S_ORDERS,
    S_TEXT,
    S_TOKENS,
    S_TOP,
    WORDS,
)
from ngramspec.caches.frozen import FrozenCorpus
from ngramspec.kernels.store import heads_of, newer, walk
from ngramspec.snapshot import inspect, load, save
from tests.kinds import make
from tests.snapshots import HEAD, sealed, with_words
from tests.strategies import VOCAB_SIZE, texts

ORDERS = (1, 2, 4, 8)
FROZEN = 2 * WORDS  # of the file: its head, the arena's header, then this

#: Few enough positions for one look-up to visit all of them.
documents = st.lists(texts(max_size=20), min_size=1, max_size=3).filter(any)
long_document = st.builds(lambda text, n: (text * 41)[:n], texts(min_size=1), st.integers(30, 62))


def build(documents, **settings):
    return FrozenCorpus.build("c", documents, **{"vocab_size": VOCAB_SIZE, "max_hops": 64} | settings)


def real(token):
    return 0 <= token < VOCAB_SIZE


def found(corpus, context):
    """What look-ups find for a context: (document, index of its last token there, length), longest order first."""
    wanted = np.array([token + 1 for token in context[::-1]], np.int32)
    positions, lengths, starts = np.zeros((3, 512), np.int32)
    header, mem = corpus.header, corpus.mem
    heads_of(header, 0, 0, wanted, len(wanted), starts)
    n = 0
    for order in range(len(corpus.orders) - 1, -1, -1):
        start = int(mem[header[S_HEAD] + order * header[S_HEADS] + starts[order]]) if starts[order] >= 0 else 0
        n = walk(header, mem, start, order, 0, 0, -1, wanted, len(wanted), positions, lengths, n)
    first_blocks = np.cumsum([0, *(-(-len(d) // BLOCK) for d in corpus.documents())])
    places = []
    for p, length in zip(positions[:n].tolist(), lengths[:n].tolist()):
        document = int(np.searchsorted(first_blocks, p // BLOCK, side="right")) - 1
        places.append((document, p - int(first_blocks[document]) * BLOCK, length))
    return places


def expected(documents, context, orders=ORDERS):
    """The same by comparing the context with every place there is."""
    places = []
    for d, document in enumerate([document for document in documents if len(document)]):
        for i in range(len(document)):
            length = 0
            while length <= i and length < len(context) and document[i - length] == context[-1 - length]:
                if not real(document[i - length]):
                    break
                length += 1
            places.append((d, i, length))
    by_order = []
    for order, above in reversed(list(zip(orders, [*orders[1:], 10**9]))):
        by_order += [place for place in reversed(places) if order <= place[2] < above]
    return by_order


def followers(corpus, places):
    """What stands behind each place."""
    first_blocks = np.cumsum([0, *(-(-len(d) // BLOCK) for d in corpus.documents())])
    header, mem = corpus.header, corpus.mem
    behind = []
    for document, i, _ in places:
        q = int(newer(header, mem, int(first_blocks[document]) * BLOCK + i))
        behind.append(None if q < 0 else int(mem[header[S_TEXT] + q]) - 1)
    return behind


# Look-ups.


@given(documents=documents, context=texts(min_size=1, placeholders=False))
def test_look_ups_find_every_place_newest_first(documents, context):
    corpus = build(documents)
    corpus.check_integrity()
    assert found(corpus, context) == expected(documents, context)


@given(document=long_document, n_back=st.integers(1, 32), end=st.integers(1, 62))
def test_documents_of_several_blocks_are_one_text(document, n_back, end):
    corpus = build([document])
    context = [token for token in document[:end][-n_back:] if real(token)]
    places = found(corpus, context)
    assert places == expected([document], context)
    behind = [document[i + 1] if i + 1 < len(document) else None for _, i, _ in places]
    assert followers(corpus, places) == [-2 if b is not None and not real(b) else b for b in behind]


@given(documents=documents)
def test_other_orders_work_too(documents):
    orders = (2, 3, 7)
    corpus = build(documents, orders=orders, max_match=9)
    assert (corpus.orders, corpus.max_match) == (orders, 9)
    for document in documents:
        context = [token for token in document if real(token)][-9:]
        if context:
            assert found(corpus, context) == expected(documents, context, orders)


def test_a_match_never_crosses_documents():
    corpus = build([[1, 2, 3], [4, 5], [3, 4, 6]])
    assert found(corpus, [3, 4]) == [(2, 1, 2), (1, 0, 1)]
    assert followers(corpus, found(corpus, [3])) == [4, None]
    assert followers(corpus, found(corpus, [3, 4])) == [6, 5]


def test_a_document_that_fills_its_last_block_ends_there():
    first, second = [1, 2] * BLOCK, [3, 4, 5]
    corpus = build([first, second])
    assert followers(corpus, [(0, 2 * BLOCK - 1, 1)]) == [None]
    assert corpus.stats()["blocks"] == 3
    assert [d.tolist() for d in corpus.documents()] == [first, second]


def test_look_ups_change_nothing():
    corpus = build([[1, 2, 3, 1, 2, 3]])
    before = corpus.digest()
    assert found(corpus, [1, 2])
    assert corpus.digest() == before


# Building.


@given(documents=documents)
def test_documents_come_back_as_they_went_in(documents):
    corpus = build(documents)
    kept = [[token if real(token) else -1 for token in document] for document in documents if document]
    assert [document.tolist() for document in corpus.documents()] == kept
    assert corpus.n_documents == len(kept) == corpus.stats()["documents"]
    assert corpus.stats()["tokens"] == sum(map(len, documents))


@given(lengths=st.lists(st.integers(0, 100), min_size=1, max_size=5).filter(any))
def test_size_is_known_before_anything_is_built(lengths):
    corpus = build([[0] * n for n in lengths])
    assert FrozenCorpus.nbytes_for(lengths) == corpus.nbytes == corpus.mem.nbytes == corpus.stats()["nbytes"]
    tokens = BLOCK * sum(-(-n // BLOCK) for n in lengths)
    assert corpus.nbytes - 41 * tokens < 2_048


def test_views_are_what_kernels_take():
    corpus = build([[1, 2]])
    for view, dtype in ((corpus.header, np.int64), (corpus.mem, np.int32)):
        assert view.dtype == dtype and view.ndim == 1
        assert view.flags.c_contiguous and view.flags.writeable and view.flags.aligned
    assert len(corpus.header) == WORDS


def test_documents_may_be_any_sequences_once():
    frozen = np.array([1, 2, 3])
    frozen.flags.writeable = False
    corpus = build(iter([(1, 2, 3), [1, 2, 3], frozen, np.array([1, 2, 3], np.uint8)]))
    assert [d.tolist() for d in corpus.documents()] == [[1, 2, 3]] * 4
    assert frozen.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("documents", "settings", "text"),
    [
        ([], {}, "documents: got no token"),
        ([[], []], {}, "documents: got no token"),
        ([[1], [1.5]], {}, r"documents\[1\]: must be a flat list of integer"),
        ([[2**40]], {}, r"documents\[0\]: got token id"),
        ([[1]], {"vocab_size": 0}, "vocab_size: got 0"),
        ([[1]], {"orders": (2, 1)}, "orders: got"),
        ([[1]], {"orders": (1, 40)}, r"orders\[1\]: got 40"),
        ([[1]], {"max_hops": 0}, "max_hops: got 0"),
        ([[1]], {"max_match": 65}, "max_match: got 65"),
    ],
)
def test_what_cannot_be_built_is_refused(documents, settings, text):
    with pytest.raises(ConfigError, match=text):
        build(documents, **settings)


@pytest.mark.parametrize("name", ["", "x" * 129, "a\0b", 7, b"x", "\ud800"])
def test_names_fit_the_file(name):
    with pytest.raises(ConfigError, match="name: got"):
        FrozenCorpus.build(name, [[1]], vocab_size=8)


def test_more_tokens_than_positions_are_refused_before_anything_is_allocated():
    with pytest.raises(CapacityError, match="use several corpora"):
        FrozenCorpus.nbytes_for([2**31 - 1])


# Merging.


@given(parts=st.lists(documents, min_size=1, max_size=3))
def test_a_merged_corpus_is_the_one_built_of_all_documents(parts):
    merged = FrozenCorpus.merge([build(part) for part in parts], "all")
    merged.check_integrity()
    assert merged.name == "all"
    assert merged.digest() == build([document for part in parts for document in part]).digest()


def test_merging_leaves_the_parts_alone_and_names_them():
    parts = [FrozenCorpus.build(name, [[1, 2]], vocab_size=8) for name in ("a", "b")]
    before = [part.digest() for part in parts]
    assert FrozenCorpus.merge(parts).name == "a+b"
    assert FrozenCorpus.merge(parts * 40).name == "80 corpora"
    assert [part.digest() for part in parts] == before
    assert FrozenCorpus.merge(parts[:1]) is parts[0]


@pytest.mark.parametrize("changed", [{"vocab_size": 9}, {"orders": (1, 2)}, {"max_hops": 3}, {"max_match": 9}])
def test_corpora_of_different_settings_are_not_merged(changed):
    with pytest.raises(ConfigError, match=f"corpora: {next(iter(changed))} of 'c' is"):
        FrozenCorpus.merge([build([[1]]), build([[1]], **changed)])
    with pytest.raises(ConfigError, match="at least one"):
        FrozenCorpus.merge([])


# Files.


@pytest.fixture
def path(tmp_path):
    return tmp_path / "corpus.ngs"


def sample(seed=0, **settings):
    rng = np.random.default_rng(seed)
    return build([rng.integers(0, VOCAB_SIZE + 1, n) for n in (40, 3, 0, 64)], **settings)


def test_a_saved_corpus_comes_back(path):
    corpus = sample(orders=(1, 3), max_hops=5, max_match=7)
    corpus.save(path, tokenizer="model")
    other = FrozenCorpus.load(path, tokenizer="model")
    assert other.digest() == corpus.digest()
    for field in ("name", "vocab_size", "orders", "max_hops", "max_match", "n_documents"):
        assert getattr(other, field) == getattr(corpus, field)
    assert inspect(path)["components"] == {"frozen": {"tokens": 107, "blocks": 5, "orders": [1, 3], "max_match": 7}}
    assert (inspect(path)["kind"], inspect(path)["name"]) == ("frozen", "c")
    with pytest.raises(SnapshotError, match="tokenizer is"):
        FrozenCorpus.load(path)


def refused(path, text=""):
    for mapped in (False, True):
        with pytest.raises(SnapshotError) as error:
            FrozenCorpus.load(path, mapped=mapped)
        assert text in str(error.value)
        assert str(error.value).startswith(f"{path}: ")
        assert str(error.value).count(str(path)) == 1


def test_corpora_and_caches_are_not_mixed_up(path):
    save(make("rolling-hash"), path)
    refused(path, "kind is 'rolling-hash', must be 'frozen'")
    sample().save(path)
    with pytest.raises(SnapshotError, match="kind is 'frozen', must be 'rolling-hash'"):
        load(make("rolling-hash"), path)


@given(share=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_truncated_and_flipped_files_are_refused(share, bit, tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "file"
    sample().save(path)
    data = path.read_bytes()
    where = int(share * len(data))
    path.write_bytes(data[:where])
    refused(path)
    path.write_bytes(data[:where] + bytes([data[where] ^ 1 << bit]) + data[where + 1 :])
    refused(path)


def test_a_save_that_fails_leaves_the_old_file_alone(path, monkeypatch):
    def fail(*unused):
        raise OSError(28, "full")

    sample().save(path)
    data = path.read_bytes()
    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="full"):
        sample(1).save(path)
    assert path.read_bytes() == data
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({12: 0}, "name: got ''"),
        ({10: 0}, "vocab_size: got 0"),
        ({10: 2**40}, "vocab_size: got"),
        ({FROZEN + S_BLOCKS: 0}, "got no token"),
        ({FROZEN + S_BLOCKS: -1}, "got no token"),
        ({FROZEN + S_BLOCKS: 2**40}, "can be numbered"),
        ({FROZEN + S_BLOCKS: 6}, "hold no 6 blocks"),
        ({FROZEN + S_ORDERS: 0}, "orders: got ()"),
        ({FROZEN + S_ORDERS: 2**40}, "orders: got"),
        ({FROZEN + S_ORDERS: 3}, "hold no 5 blocks"),
        ({FROZEN + S_ORDER0: -1}, "orders[0]: got -1"),
        ({FROZEN + S_ORDER0 + 4: 9}, "unused word"),
        ({FROZEN + S_HOPS: 2**40}, "max_hops: got"),
        ({FROZEN + S_TOP: 0}, "max_match: got 0"),
        ({FROZEN + S_HEAD: 1}, "offset in word"),
        ({FROZEN + S_CURSOR: 4}, "4 blocks are in use, must be 5"),
        ({FROZEN + S_CLOCK: -1}, "clock is -1"),
        ({FROZEN + S_TOKENS: 0}, "token counter"),
    ],
)
def test_headers_that_deceive_are_refused(changes, text, path):
    sample().save(path)
    path.write_bytes(with_words(path.read_bytes(), changes))
    refused(path, text)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ([(S_TEXT, 0, VOCAB_SIZE + 1)], "text is 9"),
        ([(S_META, M_FILL, BLOCK + 1)], "fill out of range"),
        ([(S_META, META + M_PREV, 6)], "link of a block is 6"),
        ([(S_META, META + M_PREV, 0)], "not linked both ways"),
        ([(S_META, M_NEXT, 5), (S_META, META + M_PREV, 0), (S_META, 4 * META + M_PREV, 1)], "linked both ways"),
        ([(S_META, M_OWNER_LO, 1)], "has an owner"),
        ([(S_LINKS, 1, 2**31 - 1)], "link out of range"),
        ([(S_HEAD, 1, -1)], "head out of range"),
    ],
)
def test_text_that_deceives_is_refused(changes, text, path):
    sample().save(path)
    path.write_bytes(spoilt(path.read_bytes(), changes))
    refused(path, text)


def test_blocks_out_of_order_are_refused(path):
    """Linked both ways, full, and yet no document that building could have laid out."""
    build([[1] * BLOCK, [2] * BLOCK, [3] * BLOCK]).save(path)
    path.write_bytes(spoilt(path.read_bytes(), [(S_META, M_NEXT, 3), (S_META, 2 * META + M_PREV, 1)]))
    refused(path, "do not follow one another")


def spoilt(data, changes):
    """The file's bytes with elements of sections changed, sealed again."""
    buffer = bytearray(data)
    header, elements = np.frombuffer(buffer, np.int64)[FROZEN:], np.frombuffer(buffer, np.int32)
    for word, index, value in changes:
        elements[HEAD // 4 + int(header[word]) + index] = value
    return sealed(buffer)


values = st.one_of(st.integers(-2, 70), st.integers(-(2**31), 2**31 - 1))


@pytest.mark.jit_off
@given(changes=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), values), min_size=1, max_size=8))
def test_whatever_is_accepted_is_safe_to_look_up(changes, tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "file"
    sample().save(path)
    buffer = bytearray(path.read_bytes())
    elements = np.frombuffer(buffer, np.int32)
    first = 3 * HEAD // 4
    for where, value in changes:
        elements[first + int(where * (len(elements) - first))] = value
    path.write_bytes(sealed(buffer))
    try:
        corpus = FrozenCorpus.load(path)
    except SnapshotError:
        return
    for first_token in range(VOCAB_SIZE):
        places = found(corpus, [first_token, 1, 2, first_token])
        assert all(i >= 0 for _, i, _ in places)
        assert all(token is None or -2 <= token < VOCAB_SIZE for token in followers(corpus, places))
