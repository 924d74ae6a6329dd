"""Compiled code follows the sources: a cached kernel is not used after an edit to one that it calls."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.sources import PACKAGE

#: Calls `row_at`, which stands in another file.
CALL = """
import numpy as np
from ngramspec.arena import LIVE, R_OFF, R_ROWS, ROW, T_STATE, WORDS
from ngramspec.kernels import limits
head, memory = np.zeros(WORDS, np.int64), np.zeros(4 * ROW, np.int32)
head[R_ROWS], memory[ROW + T_STATE] = 4, LIVE
print(limits.bad_slot(head, memory, np.array([1, 0], np.int32)), sum(limits.bad_slot.stats.cache_hits.values()))
"""


@pytest.fixture
def copy(tmp_path):
    """A copy of the package, and how to run `CALL` in it: what it says, and how often it came from the cache."""
    shutil.copytree(PACKAGE, tmp_path / "ngramspec", ignore=shutil.ignore_patterns("__pycache__", "data"))
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    environment.pop("NUMBA_DISABLE_JIT", None)

    def call():
        run = [sys.executable, "-c", CALL]
        return subprocess.run(run, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout

    return tmp_path / "ngramspec", call


def test_an_edited_callee_is_compiled_anew(copy):
    package, call = copy
    assert call().split() == ["1", "0"]
    assert call().split() == ["1", "1"]
    requests = package / "kernels" / "requests.py"
    source = requests.read_text()
    edited = source.replace("return hr[R_OFF] + row * ROW", "return hr[R_OFF] + (row + 1) * ROW")
    assert edited != source
    requests.write_text(edited)
    assert call().split() == ["0", "0"]


def test_an_edit_elsewhere_compiles_nothing(copy):
    package, call = copy
    call()
    (package / "cli" / "app.py").write_text("")
    assert call().split()[1] == "1"
