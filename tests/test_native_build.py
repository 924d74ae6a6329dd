"""Building and loading the C core: whole or not at all, and one clear line where it cannot be had."""

import subprocess
import sys

import pytest

from ngramspec.cli import main
from ngramspec.errors import NativeError
from ngramspec.native import build, library
from tests.kinds import make
from tests.native.built import built
from tests.sources import ROOT

pytestmark = pytest.mark.native


@pytest.fixture(autouse=True)
def core():
    return built()


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """An empty cache folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    library.library.cache_clear()
    yield tmp_path / "cache" / "ngramspec"
    library.library.cache_clear()


def test_build_is_whole_and_only_done_once(elsewhere):
    path = build.build()
    assert [path] == list(elsewhere.iterdir())
    before = path.stat().st_mtime_ns
    assert build.build() == path and path.stat().st_mtime_ns == before
    assert library.library().ngs_abi_version() == library.ABI_VERSION


def test_without_a_build_it_says_what_to_run(elsewhere, monkeypatch):
    monkeypatch.setenv("NGRAMSPEC_ENGINE", "native")
    with pytest.raises(NativeError, match="run `ngramspec native build`"):
        make("rolling-hash")


def test_without_a_compiler_it_says_what_to_install(elsewhere, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(elsewhere))
    monkeypatch.delenv("CC", raising=False)
    assert main(["native", "build"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: no C compiler found") and error.count("\n") == 1 and "set CC" in error
    assert main(["native", "info"]) == 0
    assert "no C compiler found" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("cc", "text"),
    [
        ("no-such-compiler -m64", "no such program"),
        ("false", "failed with status 1"),
        ("true", "wrote nothing"),
        ('gcc "', "CC: got 'gcc .', no command .No closing quotation.: mend it"),
    ],
)
def test_a_compiler_that_fails_leaves_nothing(elsewhere, monkeypatch, cc, text):
    monkeypatch.setenv("CC", cc)
    with pytest.raises(NativeError, match=text):
        build.build()
    assert not elsewhere.exists() or list(elsewhere.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(NativeError, match="set XDG_CACHE_HOME to a writable folder"):
        build.build()
    monkeypatch.setenv("XDG_CACHE_HOME", "x" * 300)
    with pytest.raises(NativeError, match=r"File name too long.*: set XDG_CACHE_HOME to a writable folder"):
        build.build()


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch):
    def nowhere(path):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("pathlib.Path.expanduser", nowhere)
    with pytest.raises(NativeError, match="no home folder is known for the compiled core: set XDG_CACHE_HOME"):
        build.target()


def test_other_sources_get_another_file(tmp_path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.h").write_text("1")
    one = build.digest(tmp_path)
    (tmp_path / "src" / "a.h").write_text("2")
    assert build.digest(tmp_path) != one


def test_the_command_builds_and_tells(elsewhere, capsys):
    assert main(["native", "info"]) == 0
    assert "no: the C core is not built" in capsys.readouterr().out
    assert main(["native", "build"]) == 0
    path = capsys.readouterr().out.strip()
    assert main(["native", "info"]) == 0
    out = capsys.readouterr().out
    assert path in out and f"yes, interface version {library.ABI_VERSION}" in out


def test_with_the_core_nothing_is_compiled_by_numba(monkeypatch):
    code = (
        "from ngramspec import HashConfig, RollingHashCache\n"
        "from ngramspec.kernels import hash_draft, limits, requests\n"
        "cache = RollingHashCache(HashConfig(vocab_size=9, capacity_tokens=4096, max_requests=2), engine='native')\n"
        "cache.begin('a', list(range(9)) * 10)\n"
        "print(cache.draft('a', max_draft=3).tokens.tolist())\n"
        "cache.accept('a', [0, 1])\n"
        "cache.truncate('a', 40)\n"
        "cache.finish('a')\n"
        "cache.begin('b', list(range(9)) * 10)\n"
        "kernels = [k for m in (hash_draft, limits, requests) for k in vars(m).values() if hasattr(k, 'signatures')]\n"
        "print(len(kernels) > 20, [k for k in kernels if k.signatures])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["[0, 1, 2]", "True []"], done.stderr
