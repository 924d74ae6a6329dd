"""Mapping: the cache that loading gives, over the file's own pages, which never change."""

import mmap
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngramspec import Drafter, DrafterConfig, FrozenCorpus, SnapshotError
from ngramspec.caches.mapping import within_zeros
from ngramspec.snapshot import load, map, save
from tests.kinds import KINDS, make
from tests.native.built import built
from tests.snapshots import SAVED, feed, mapped, shared_drafts, trained

saved_caches = pytest.mark.parametrize("name", SAVED)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.ngs"


@saved_caches
@given(
    max_requests=st.integers(1, 16),
    max_sessions=st.integers(0, 40),
    max_hops=st.integers(1, 8),
    blocks=st.integers(40, 400),
)
def test_a_mapped_cache_is_an_empty_one_after_loading(
    name, max_requests, max_sessions, max_hops, blocks, tmp_path_factory
):
    """Wherever in its buffer the shared text begins, and however little of it fills whole pages."""
    path = tmp_path_factory.mktemp("mapped") / "state"
    capacity = {"capacity_tokens": 64 * blocks}
    save(trained(name, **capacity), path)
    cache = make(name, **capacity, max_requests=max_requests, max_sessions=max_sessions, max_hops=max_hops)
    other = mapped(cache, path)
    load(cache, path)
    assert other.digest() == cache.digest()
    assert other.arena.buffer.ctypes.data % 64 == 0 and other.nbytes == cache.nbytes
    other.check_integrity()


@saved_caches
def test_it_drafts_and_learns_as_a_loaded_one_and_the_file_stays_as_it_is(name, path):
    save(trained(name), path)
    data, loaded = path.read_bytes(), make(name)
    load(loaded, path)
    cache = mapped(loaded, path)
    for each in (loaded, cache):
        feed(each, 5, n_requests=12, prefix="later")
    assert cache.digest() == loaded.digest()
    assert shared_drafts(cache, 2) == shared_drafts(loaded, 2)
    cache.check_integrity()
    assert path.read_bytes() == data
    cache.reset()
    assert cache.digest() == make(name).digest() and path.read_bytes() == data


@saved_caches
def test_saving_to_its_own_file_leaves_a_mapped_cache_alone(name, path):
    save(trained(name), path)
    cache, other = (mapped(make(name), path) for _ in range(2))
    feed(cache, 5, prefix="later")
    before = cache.digest(), other.digest()
    save(cache, path)
    assert (cache.digest(), other.digest()) == before
    assert mapped(make(name), path).stats()["shared_tokens"] == cache.stats()["shared_tokens"]
    path.unlink()
    assert (cache.digest(), other.digest()) == before


@pytest.mark.native
@saved_caches
def test_the_c_core_runs_on_mapped_pages(name, path):
    built()
    save(trained(name), path)
    drafts = []
    for engine in ("numba", "native"):
        kind = KINDS[name]
        cache = map(type(make(name)), kind.config(**make(name).config.to_dict()), path, engine=engine)
        assert cache.engine == engine
        feed(cache, 5, prefix="later")
        drafts.append((shared_drafts(cache, 2), cache.digest()))
    assert drafts[0] == drafts[1]


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_to_is_refused(mode, path):
    """It could be changed after it was checked."""
    save(trained("rolling-hash"), path)
    path.chmod(mode)
    with pytest.raises(SnapshotError, match=f"others may write to it .*mode {mode:o}.*load it instead"):
        mapped(make("rolling-hash"), path)
    load(make("rolling-hash"), path)
    path.chmod(0o444)
    mapped(make("rolling-hash"), path)


def test_another_users_file_is_refused(path, monkeypatch):
    save(trained("rolling-hash"), path)
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    if me == 0:  # root's files are anybody's
        mapped(make("rolling-hash"), path)
        os.chown(path, 12345, -1)
    with pytest.raises(SnapshotError, match=r"others may write to it \(owner"):
        mapped(make("rolling-hash"), path)


def test_a_system_that_cannot_map_is_told(path, monkeypatch):
    save(trained("rolling-hash"), path)
    monkeypatch.delattr(mmap, "MAP_ANONYMOUS")
    with pytest.raises(SnapshotError, match="cannot map files privately: load it instead"):
        mapped(make("rolling-hash"), path)


def test_what_the_system_refuses_to_map_is_its_error(tmp_path):
    path = tmp_path / "pages"
    path.write_bytes(bytes(4 * mmap.PAGESIZE))
    with path.open("ab") as file, pytest.raises(OSError):
        within_zeros(8 * mmap.PAGESIZE, 0, file, 0)


@given(n=st.integers(1, 600), first=st.integers(0, 200), start=st.integers(0, 400))
def test_a_files_bytes_lie_where_they_are_asked_for_among_zeros(n, first, start, tmp_path_factory):
    """Sizes and places in cache lines: within a page, up to an edge, over several pages."""
    path = tmp_path_factory.mktemp("pages") / "file"
    data = np.random.default_rng(n).bytes(64 * n)
    path.write_bytes(data)
    first = min(first, n)
    with path.open("rb") as file:
        buffer = within_zeros(64 * (start + n + 50), 64 * start, file, 64 * first)
    end = 64 * (start + n - first)
    assert buffer[64 * start : end].tobytes() == data[64 * first :]
    assert not buffer[: 64 * start].any() and not buffer[end:].any()
    buffer[:] = 7
    assert path.read_bytes() == data


def private_nbytes():
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(lines["RssAnon"].split()[0])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells what memory is a process's own")
def test_pages_that_are_only_read_are_not_the_processs_memory(path):
    config = DrafterConfig(vocab_size=1_000, capacity_tokens=1_000_000, max_requests=4, max_sessions=4)
    drafter = Drafter(config)
    drafter.begin("a", np.arange(400_000) * 7 % 997, share="all")
    drafter.finish("a")
    save(drafter, path)
    mapped(drafter, path)  # what is allocated once
    before = private_nbytes()
    other = mapped(drafter, path)
    other.begin("b", [7, 14, 21])
    assert len(other.draft("b", max_draft=4)) == 4
    assert private_nbytes() - before < path.stat().st_size // 10
    other.arena.mem[:: mmap.PAGESIZE // 4] |= 0
    assert private_nbytes() - before > path.stat().st_size


# Frozen corpora.


@given(n=st.integers(1, 3_000))
def test_a_mapped_corpus_is_the_loaded_one(n, tmp_path_factory):
    path = tmp_path_factory.mktemp("corpus") / "file"
    corpus = FrozenCorpus.build("c", [[i % 7 for i in range(n)], [1, 2]], vocab_size=8)
    corpus.save(path)
    other = FrozenCorpus.load(path, mapped=True)
    for view, dtype in ((other.header, np.int64), (other.mem, np.int32)):
        assert view.dtype == dtype and view.flags.c_contiguous and view.flags.writeable and view.flags.aligned
    path.unlink()
    FrozenCorpus.build("d", [[0]], vocab_size=8).save(path)
    assert (other.name, other.digest()) == ("c", corpus.digest())


def test_a_mapped_corpus_is_drafted_from(path):
    FrozenCorpus.build("c", [[1, 2, 3, 4, 5] * 3], vocab_size=8).save(path)
    data, drafter = path.read_bytes(), make("ngramspec")
    drafter.add_corpus(FrozenCorpus.load(path, mapped=True))
    drafter.begin("a", [6, 1, 2, 3])
    assert drafter.draft("a", max_draft=2, topology="chain").tokens.tolist() == [4, 5]
    drafter.accept("a", [4, 5, 1])
    assert path.read_bytes() == data


def test_a_corpus_that_others_may_write_to_is_not_mapped(path):
    FrozenCorpus.build("c", [[1, 2]], vocab_size=8).save(path)
    path.chmod(0o620)
    with pytest.raises(SnapshotError, match="others may write to it"):
        FrozenCorpus.load(path, mapped=True)
    FrozenCorpus.load(path)
