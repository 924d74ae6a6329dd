"""The C core opens what Python saved, to the same state, and refuses what Python refuses, changing nothing."""

import hashlib

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ngramspec import FrozenCorpus, SnapshotError
from ngramspec.arena import A_DIGEST, WORDS
from ngramspec.native.core import pointer
from ngramspec.snapshot import load, save
from tests.kinds import KINDS, make
from tests.native.built import built
from tests.snapshots import HEAD, SAVED, feed, sealed, trained
from tests.strategies import VOCAB_SIZE

# A failing example shows its arguments, a whole file among them; Hypothesis warns of that in place of the failure.
pytestmark = [pytest.mark.native, pytest.mark.filterwarnings("ignore:Generating overly large repr")]

saved_caches = pytest.mark.parametrize("name", SAVED)

BUSY, UNSUPPORTED = -17, -15


@pytest.fixture(autouse=True, scope="module")
def core():
    return built()


def native(name, **changed):
    """A cache of the C core with a life of its own before."""
    kind = KINDS[name]
    cache = kind.attach(make(name, **changed).config, None, "native")
    feed(cache, 2, prefix="mine")
    return cache


def opened(cache, data, tokenizer=None):
    """Status of `ngs_load` of these bytes."""
    file = np.frombuffer(data + bytes(-len(data) % 8), np.int64).copy()
    mark = None if tokenizer is None else np.frombuffer(tokenizer.encode(), np.uint8).copy()
    where = (None, 0) if mark is None else (pointer(mark), len(mark))
    return built().ngs_load(cache._core._here, pointer(file), len(data), *where)


@saved_caches
@pytest.mark.parametrize("tokenizer", [None, "model@1", "x" * 300])
def test_it_opens_what_python_saved(name, tokenizer, tmp_path):
    save(trained(name), tmp_path / "state", tokenizer=tokenizer)
    data = (tmp_path / "state").read_bytes()
    ours, theirs = native(name), native(name)
    assert opened(ours, data, tokenizer) == 0
    load(theirs, tmp_path / "state", tokenizer=tokenizer)
    assert ours.digest() == theirs.digest()
    ours.check_integrity()
    ours._core.check()
    assert opened(ours, data, "another") < 0


@saved_caches
def test_it_refuses_while_requests_run(name, tmp_path):
    save(trained(name), tmp_path / "state")
    cache = native(name)
    cache.begin("a", [1, 2])
    assert opened(cache, (tmp_path / "state").read_bytes()) == BUSY


def test_it_refuses_for_a_trie():
    assert opened(native("suffix-trie"), bytes(1024)) == UNSUPPORTED


@pytest.fixture(scope="module", params=SAVED)
def good(request, tmp_path_factory):
    """A cache, and a file for it."""
    path = tmp_path_factory.mktemp("saved") / "state"
    save(trained(request.param), path)
    return native(request.param), path.read_bytes()


@given(share=st.floats(0, 1, exclude_max=True))
def test_truncated_files_are_refused(good, share):
    cache, data = good
    before = cache.digest()
    assert opened(cache, data[: int(share * len(data))]) < 0
    assert cache.digest() == before


@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_flipped_bit_is_refused(good, where, bit):
    cache, data = good
    flipped = bytearray(data)
    flipped[int(where * len(data))] ^= 1 << bit
    assert opened(cache, bytes(flipped)) < 0


places = st.one_of(st.floats(0, 1, exclude_max=True), st.integers(0, HEAD))
values = st.one_of(st.integers(-2, 70), st.sampled_from([2**31 - 1, -(2**31), 60_000, 2**20]))


@example(changes=[(24, -1)])  # a name that is not text
@given(changes=st.lists(st.tuples(places, values), min_size=1, max_size=6))
def test_files_made_to_deceive_are_refused_where_python_refuses_them(good, changes, tmp_path_factory):
    cache, data = good
    words = np.frombuffer(bytearray(data), np.int32)
    for place, value in changes:
        words[int(place * len(words)) if isinstance(place, float) else place] = value
    # The settings' digest, which the core does not compute: it compares the settings themselves.
    digest = slice(2 * (WORDS + A_DIGEST), 2 * (WORDS + A_DIGEST + 1))
    words[digest] = np.frombuffer(data, np.int32)[digest]
    path = tmp_path_factory.mktemp("deceiving") / "state"
    path.write_bytes(sealed(words.tobytes()))
    twin = native(cache.name)
    try:
        load(twin, path)
    except SnapshotError:
        before = cache.digest()
        assert opened(cache, path.read_bytes()) < 0
        assert cache.digest() == before
    else:
        ours = native(cache.name)
        if opened(ours, path.read_bytes()) == 0:
            assert ours.digest() == twin.digest()
            feed(ours, 3, prefix="after")
            ours._core.check()


@given(text=st.text(max_size=300))
def test_tenants_have_the_same_keys(text):
    data = np.frombuffer(text.encode() + b"\0", np.uint8).copy()
    expected = int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")
    assert built().ngs_tenant_key(pointer(data), len(text.encode())) == expected


@given(changes=st.lists(st.tuples(places, values), max_size=4))
def test_corpora_made_to_deceive_are_refused_or_safe(changes):
    drafter = make("ngramspec")
    drafter = KINDS["ngramspec"].attach(drafter.config, None, "native")
    documents = [np.arange(200) % 7, np.arange(99) % 5]
    corpus = FrozenCorpus.build("c", documents, vocab_size=VOCAB_SIZE)
    words = corpus.mem.copy()
    for place, value in changes:
        words[int(place * len(words)) if isinstance(place, float) else place] = value
    status = built().ngs_use_corpus(drafter._core._here, pointer(words), words.nbytes, 0)
    assert status == 0 if not changes else status <= 0
    feed(drafter, 3)
    drafter._core.check()
    drafter.check_integrity()
