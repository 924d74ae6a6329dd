"""The compile cache follows the sources and forgets old ones."""

import os
import time
from pathlib import Path

import pytest

from tests.numba_cache import CACHES, KEEP_SECONDS, digest, folder


@pytest.fixture
def root(tmp_path):
    (tmp_path / "ngramspec" / "kernels").mkdir(parents=True)
    (tmp_path / "ngramspec" / "kernels" / "a.py").write_text("x = 1\n")
    return tmp_path


def test_any_change_to_any_source_changes_the_digest(root):
    before = digest(root)
    (root / "ngramspec" / "kernels" / "a.py").write_text("x = 2\n")
    edited = digest(root)
    (root / "ngramspec" / "kernels" / "a.py").rename(root / "ngramspec" / "a.py")
    moved = digest(root)
    assert len({before, edited, moved}) == 3


def test_same_sources_have_the_same_folder(root):
    assert folder(root / "caches", root) == folder(root / "caches", root)


def test_unused_folders_are_dropped_and_recent_ones_stay(root):
    caches = root / "caches"
    first = folder(caches, root)
    (root / "ngramspec" / "b.py").touch()
    second = folder(caches, root)
    assert first.is_dir() and second.is_dir() and first != second
    old = time.time() - KEEP_SECONDS - 1
    os.utime(first, (old, old))
    assert folder(caches, root) == second
    assert not first.exists()


def test_the_tests_keep_their_compiled_code_there():
    assert Path(os.environ["NUMBA_CACHE_DIR"]).parent == CACHES
