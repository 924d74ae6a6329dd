"""The C sources: constants equal the Python ones, no warning, no allocation, no globals, no floats, fit for C++."""

import importlib
import re
import subprocess

import pytest

from ngramspec import arena
from ngramspec.arena import digest63
from ngramspec.caches import image
from ngramspec.kernels import evidence, hash_draft, mixer, trie_draft
from ngramspec.native.build import FLAGS
from tests.native.built import built, needed
from tests.native.tables import TABLES, text
from tests.sources import ROOT

pytestmark = pytest.mark.native

SOURCES = ROOT / "native"
MAIN = SOURCES / "src" / "ngramspec.c"
STRICT = ("-Wall", "-Wextra", "-Werror", "-Wpedantic", "-Wshadow", "-Wvla")

#: What C sources may take from elsewhere: compilers call these to copy, clear and compare.
ALLOWED_SYMBOLS = {"memset", "memcpy", "memmove", "memcmp", "bcmp", "_GLOBAL_OFFSET_TABLE_"}

#: Headers whose enumerators C alone needs.
C_ONLY = {"blake2b", "layout", "cache", "check", "check_text", "check_trie", "rows", "squash_table", "stretch_table"}

#: What is called something else there, and what is not there.
PYTHON_NAMES = {"TRIE_MAX_COUNT": "MAX_COUNT"}
NOT_THERE = {"MAX_DEPTH"}


@pytest.fixture(autouse=True)
def core():
    return built()


@pytest.fixture(params=["gcc", "clang"])
def cc(request):
    return needed(request.param)


def compiled(cc, arguments):
    done = subprocess.run([cc, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def enumerators(text):
    """Names between the braces of every enum."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    bodies = re.findall(r"\benum\s*\w*\s*\{(.*?)\}", text, flags=re.DOTALL)
    return [name for body in bodies for name in re.findall(r"(?:^|,)\s*([A-Z]\w*)", body)]


def printed(tmp_path, lines):
    """What a C program that includes all sources prints, as integers by name."""
    source = tmp_path / "printing.c"
    source.write_text(
        f'#include "{MAIN}"\n#include <stdio.h>\nint main(void) {{\n' + "\n".join(lines) + "\nreturn 0;}\n"
    )
    compiled("cc", ["-std=c11", "-o", str(tmp_path / "printing"), str(source)])
    out = subprocess.run([tmp_path / "printing"], capture_output=True, text=True, check=True).stdout
    return {name: int(value) for name, value in (line.split() for line in out.splitlines())}


def mirrored():
    """C header by Python module of the same name."""
    for path in sorted((SOURCES / "src").glob("*.h")):
        if path.stem not in C_ONLY:
            yield path, arena if path.stem == "arena" else importlib.import_module(f"ngramspec.kernels.{path.stem}")


def test_words_of_a_snapshot_s_head_are_python_s(tmp_path):
    names = enumerators((SOURCES / "src" / "snapshot.c").read_text())
    assert len(names) == 12
    found = printed(tmp_path, [f'printf("{name} %lld\\n", (long long){name});' for name in names])
    assert found == {name: getattr(image, name) for name in names}
    assert printed(tmp_path, ['printf("magic %lld\\n", (long long)SNAPSHOT_MAGIC);'])["magic"] == image.MAGIC


def test_every_constant_is_python_s(tmp_path):
    names = {(path.stem, name): module for path, module in mirrored() for name in enumerators(path.read_text())}
    names = {key: module for key, module in names.items() if key[1] not in NOT_THERE}
    assert len(names) > 200
    lines = [f'printf("{stem}:{name} %lld\\n", (long long){name});' for stem, name in names]
    found = printed(tmp_path, lines)
    expected = {
        f"{stem}:{name}": int(getattr(module, PYTHON_NAMES.get(name, name))) for (stem, name), module in names.items()
    }
    assert found == expected


def test_names_and_tables_are_python_s(tmp_path):
    components = ("requests", "own", "shared", "counts", "mixer", "offers", "trie", "frozen")
    lines = [f'printf("{name} %lld\\n", (long long)NAME_{name.upper()});' for name in components]
    lines += ['printf("magic %lld\\n", (long long)MAGIC);', "for (i64 i = 0; i < 65; i++)"]
    lines += ['printf("tier%lld %lld\\n", (long long)i, (long long)tier_of(i));']
    expected = {name: digest63(name.encode()) for name in components} | {"magic": arena.MAGIC}
    expected |= {f"tier{i}": int(tier) for i, tier in enumerate(evidence.TIER)}
    assert printed(tmp_path, lines) == expected


@pytest.mark.parametrize(
    ("header", "name", "expected"),
    [
        ("hash_draft", "confidence", hash_draft.CONFIDENCE),
        ("trie_draft", "claims", trie_draft.CLAIM),
        ("trie_draft", "kept_back", trie_draft.KEPT_BACK),
    ],
)
def test_constants_of_the_caches_are_python_s(header, name, expected):
    found = re.search(rf"\b{name}\[\w*\] = \{{(.*?)\}}", (SOURCES / f"src/{header}.h").read_text(), re.DOTALL)
    assert [int(value) for value in found[1].split(",")] == expected.tolist()


@pytest.mark.parametrize("stem", TABLES)
def test_tables_of_the_mixer_are_python_s(stem):
    assert (SOURCES / "src" / f"{stem}.h").read_text() == text(stem)


def test_buckets_and_steps_of_the_mixer_are_python_s(tmp_path):
    lines = [
        'for (i64 i = 0; i < 1024; i++) printf("step%lld %lld\\n", (long long)i, (long long)step_of(i));',
        'for (i64 i = 0; i < 64; i++) printf("total%lld %lld\\n", (long long)i, (long long)total_bucket(i));',
        'for (i64 i = 0; i < 128; i++) printf("count%lld %lld\\n", (long long)i, (long long)count_bucket(i));',
        'printf("least %lld\\n", (long long)total_bucket(-7));',
    ]
    expected = {f"step{i}": int(step) for i, step in enumerate(mixer.STEP)}
    expected |= {f"total{i}": int(bucket) for i, bucket in enumerate(mixer.TOTAL_BUCKET)}
    expected |= {f"count{i}": int(bucket) for i, bucket in enumerate(mixer.BUCKET)}
    assert printed(tmp_path, lines) == expected | {"least": int(mixer.TOTAL_BUCKET[-7])}


def test_it_compiles_without_a_warning(cc, tmp_path):
    for level in ("-O0", "-O3"):
        compiled(cc, [*FLAGS, *STRICT, level, "-o", str(tmp_path / "core.so"), str(MAIN)])


@pytest.mark.parametrize("cxx", ["g++", "clang++"])
def test_the_header_is_cplusplus_too(cxx, tmp_path):
    needed(cxx)
    source = tmp_path / "use.cpp"
    source.write_text("#include <ngramspec.h>\nint main() { return ngs_abi_version() - NGS_ABI_VERSION; }\n")
    compiled(cxx, ["-std=c++11", *STRICT[:4], f"-I{SOURCES / 'include'}", "-fsyntax-only", str(source)])


def test_it_needs_nothing_and_keeps_nothing(cc, tmp_path):
    compiled(cc, ["-std=c11", "-O2", "-fPIC", "-c", "-o", str(tmp_path / "core.o"), str(MAIN)])
    rows = subprocess.run(["nm", tmp_path / "core.o"], capture_output=True, text=True, check=True).stdout.splitlines()
    symbols = [(row.split()[-1], row.split()[-2]) for row in rows]
    assert {name for name, kind in symbols if kind == "U"} <= ALLOWED_SYMBOLS
    assert [name for name, kind in symbols if kind in "dDbBC"] == []  # nothing writable
    assert all(name.startswith("ngs_") for name, kind in symbols if kind == "T")


def test_every_declared_function_is_there():
    declared = re.findall(r"NGS_API [\w *]+?\b(ngs_\w+)\(", (SOURCES / "include/ngramspec.h").read_text())
    assert len(declared) > 15
    assert [name for name in declared if not hasattr(built(), name)] == []


def test_sources_are_short_and_use_no_floats():
    paths = [*(SOURCES / "src").iterdir(), *(SOURCES / "include").iterdir()]
    assert len(paths) > 10
    for path in paths:
        text = path.read_text()
        assert re.search(r"\b(float|double)\b", text) is None, path
        assert max(map(len, text.splitlines())) <= 120, path
        assert text.count("\n") <= 400, path
