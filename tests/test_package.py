"""Importing the package is light, works anywhere, and its sources keep the house rules."""

import json
import os
import shutil
import subprocess
import sys

import pytest

import ngramspec
from tests.sources import PACKAGE, ROOT, source_files

MAX_LINES = 400
MAX_IMPORT_CPU_SECONDS = 0.6

LOADED = "import sys, json; {}; print(json.dumps(sorted({{m.split('.')[0] for m in sys.modules}})))"

DRAFT = """
import ngramspec as ns
cache = ns.RollingHashCache(ns.HashConfig(capacity_tokens=4096, max_requests=8, vocab_size=100, eos_ids=(99,)))
cache.begin("r1", [1, 2, 3, 1, 2])
draft = cache.draft("r1", max_draft=3, topology="chain")
print(ns.__file__, draft.tokens.tolist())
"""


def run(code, cwd=ROOT, **environment):
    """Run `code` in a fresh interpreter; variables given as None are unset."""
    env = {**os.environ, **environment}
    env = {name: value for name, value in env.items() if value is not None}
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def loaded(statement):
    return set(json.loads(run(LOADED.format(statement)).stdout))


def test_import_loads_numpy_and_numba_only():
    allowed = loaded("import numpy, numba") | {"ngramspec"} | set(sys.stdlib_module_names)
    seen = loaded("import ngramspec")
    assert "ngramspec" in seen and "numba" in seen
    assert seen - allowed == set()


def test_import_takes_little_cpu_time():
    code = "import ngramspec, time; print(time.process_time())"
    best = min(float(run(code).stdout) for _ in range(4))  # the first fills the caches, the others may be disturbed
    assert best < MAX_IMPORT_CPU_SECONDS


def test_public_names_exist_and_are_listed_once():
    assert len(set(ngramspec.__all__)) == len(ngramspec.__all__) > 0
    assert [name for name in ngramspec.__all__ if not hasattr(ngramspec, name)] == []


@pytest.fixture
def nowhere(tmp_path):
    """A path that nobody can create, not even root: it leads through a regular file."""
    file = tmp_path / "file"
    file.touch()
    return str(file / "below")


@pytest.fixture
def read_only(tmp_path):
    """A folder with a copy of the package that nothing can be written beside, not even by root."""
    place = tmp_path / "site"
    shutil.copytree(PACKAGE, place / "ngramspec", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [place / "ngramspec", *(place / "ngramspec").rglob("*")]:
        if folder.is_dir():
            (folder / "__pycache__").touch()  # a file in its place: no folder can be made there
    return place


def homeless(nowhere):
    return {"HOME": nowhere, "XDG_CACHE_HOME": None, "PYTHONDONTWRITEBYTECODE": "1"}


@pytest.mark.parametrize("named", [False, True], ids=["no cache folder named", "the one named is unusable"])
def test_imports_where_nothing_can_be_written_and_says_once_what_to_do(read_only, nowhere, named):
    cache = nowhere if named else None
    done = run("import ngramspec; print(ngramspec.__file__)", read_only, NUMBA_CACHE_DIR=cache, **homeless(nowhere))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{read_only / 'ngramspec' / '__init__.py'}\n"
    assert done.stderr.count("set NUMBA_CACHE_DIR") == 1


def test_drafts_where_nothing_can_be_written(read_only, nowhere):
    done = run(DRAFT, read_only, NUMBA_CACHE_DIR=None, **homeless(nowhere))
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{read_only / 'ngramspec' / '__init__.py'} [3, 1, 2]\n"


def test_files_are_short():
    lines = {path.relative_to(ROOT): path.read_text().count("\n") for path in source_files()}
    assert len(lines) > 0
    assert {str(path): n for path, n in lines.items() if n > MAX_LINES} == {}


def test_no_work_is_left_as_a_marker():
    markers = ["TO" + "DO", "FIX" + "ME", "X" * 3]
    found = [
        f"{path.relative_to(ROOT)}: {marker}"
        for path in source_files()
        for marker in markers
        if marker in path.read_text()
    ]
    assert found == []


def test_version_stands_in_one_more_place_only():
    assert f'version = "{ngramspec.__version__}"' in (ROOT / "pyproject.toml").read_text()
