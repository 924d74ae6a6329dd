"""A save is there whole, or the old file is: failures, full disks, crashes at any byte."""

import os
import resource
import stat
import subprocess
import sys

import pytest

from ngramspec.snapshot import load, save
from tests.kinds import make
from tests.snapshots import HEAD, trained
from tests.sources import ROOT


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.ngs"


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
from tests.snapshots import trained

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
