"""Programs in C: the example drafts as Python does, the CMake package works, sanitizers find nothing."""

import shutil
import subprocess

import numpy as np
import pytest

from ngramspec import Drafter, DrafterConfig, snapshot
from ngramspec.cli import main
from tests.native.built import built, missing, needed
from tests.sources import ROOT

pytestmark = pytest.mark.native

NATIVE = ROOT / "native"
SOURCES = [str(NATIVE / "src/ngramspec.c"), f"-I{NATIVE / 'include'}"]
SANITIZED = ("-std=c11", "-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")

#: The settings of examples/embed.c.
CONFIG = DrafterConfig(
    vocab_size=1000, capacity_tokens=4096, max_requests=4, max_sessions=4, shared_percent=50, counted_per_token=0.5
)
MAX_DRAFT, MIN_PROB = 8, 2**26 / 2**30


@pytest.fixture(autouse=True)
def core():
    return built()


def ran(arguments, **settings):
    done = subprocess.run([str(a) for a in arguments], capture_output=True, text=True, check=False, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def embed(tmp_path_factory):
    program = tmp_path_factory.mktemp("embed") / "embed"
    ran(["cc", "-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, NATIVE / "examples/embed.c", *SOURCES])
    return program


def loop(drafter, prompt, output):
    """The example's loop, in Python."""
    drafter.begin("example", prompt)
    lines, at, steps = [], 0, 0
    while at < len(output):
        left = len(output) - at
        draft = drafter.draft("example", max_draft=MAX_DRAFT, min_prob=MIN_PROB, remaining=left)
        last, right = -1, 0
        for i, (token, parent) in enumerate(zip(draft.tokens.tolist(), draft.parents.tolist())):
            if right < left and parent == last and token == output[at + right]:
                last, right = i, right + 1
        shown = "".join(f" {t}<{p}" for t, p in zip(draft.tokens.tolist(), draft.parents.tolist()))
        lines.append(f"drafted{shown}: {right} right")
        emitted = output[at : at + right + 1]
        drafter.accept("example", emitted)
        at, steps = at + len(emitted), steps + 1
    return "\n".join([*lines, f"{len(output)} tokens in {steps} steps", ""])


def traffic():
    """Texts that repeat each other."""
    rng = np.random.default_rng(0)
    phrases = [rng.integers(0, 1000, 12).tolist() for _ in range(6)]
    return [[t for k in rng.integers(0, 6, 8) for t in phrases[k]] for _ in range(8)]


@pytest.fixture
def prior(tmp_path):
    assert main(["native", "prior", str(tmp_path / "prior")]) == 0
    return tmp_path / "prior"


def trained(path, tokenizer=None):
    """A snapshot of a drafter that saw all texts but the last."""
    drafter = Drafter(CONFIG, engine="native")
    for i, text in enumerate(traffic()[:-1]):
        drafter.begin(f"r{i}", text[:30])
        for at in range(30, len(text), 3):
            drafter.draft(f"r{i}", max_draft=MAX_DRAFT)
            drafter.accept(f"r{i}", text[at : at + 3])
        drafter.finish(f"r{i}")
    snapshot.save(drafter, path, tokenizer=tokenizer)


def test_the_example_goes_on_with_a_snapshot_that_python_saved(embed, prior, tmp_path):
    trained(tmp_path / "snapshot")
    prompt, output = traffic()[-1][:20], traffic()[-1][20:]
    printed = ran([embed, prior, tmp_path / "snapshot"], input=numbers(prompt, output))
    drafter = Drafter(CONFIG)
    snapshot.load(drafter, tmp_path / "snapshot")
    assert printed == loop(drafter, prompt, output)
    assert len(output) > 1.5 * int(printed.split()[-2])  # it drafts, and well


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda data: data[:-1], "not as it was written"),
        (lambda data: data[:300], "not exactly ngs_bytes long"),
        (lambda data: data[:5000] + bytes([data[5000] ^ 1]) + data[5001:], "not as it was written"),
        (lambda data: b"x" + data[1:], "another state"),
    ],
    ids=["truncated", "a piece of the head", "a bit flipped", "another file"],
)
def test_the_example_refuses_damaged_snapshots(embed, prior, tmp_path, damage, text):
    trained(tmp_path / "snapshot")
    (tmp_path / "damaged").write_bytes(damage((tmp_path / "snapshot").read_bytes()))
    done = subprocess.run([embed, prior, tmp_path / "damaged"], input="", capture_output=True, text=True, check=False)
    assert done.returncode == 1 and text in done.stderr


def test_a_snapshot_of_another_tokenizer_is_refused(embed, prior, tmp_path):
    trained(tmp_path / "snapshot", tokenizer="theirs")
    done = subprocess.run([embed, prior, tmp_path / "snapshot"], input="", capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "another state" in done.stderr


def test_the_example_starts_from_the_prior(embed, prior):
    text = traffic()[0]
    printed = ran([embed, prior], input=numbers(text[:20], text[20:]))
    assert printed == loop(Drafter(CONFIG), text[:20], text[20:])


def numbers(prompt, output):
    return " ".join(map(str, [*prompt, -1, *output]))


def test_the_package_is_found_by_cmake(tmp_path):
    needed("cmake")
    build, prefix, user = tmp_path / "build", tmp_path / "prefix", tmp_path / "user"
    ran(["cmake", "-S", NATIVE, "-B", build, f"-DCMAKE_INSTALL_PREFIX={prefix}", "-DNGRAMSPEC_EXAMPLES=ON"])
    ran(["cmake", "--build", build])
    ran(["cmake", "--install", build])
    user.mkdir()
    (user / "main.cpp").write_text(
        "#include <ngramspec.h>\nint main() { return ngs_abi_version() - NGS_ABI_VERSION; }\n"
    )
    (user / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(user C CXX)\nfind_package(ngramspec 0.1 REQUIRED)\n"
        "add_executable(user main.cpp)\ntarget_link_libraries(user ngramspec::ngramspec)\n"
    )
    ran(["cmake", "-S", user, "-B", user / "build", f"-DCMAKE_PREFIX_PATH={prefix}"])
    ran(["cmake", "--build", user / "build"])
    ran([user / "build" / "user"])


#: What is fuzzed: any calls of any cache, tries of any shape, files to load; each with a folder of inputs.
TARGETS = {"fuzz": "calls", "fuzz_trie": "trie", "fuzz_load": "load"}


def needs_sanitizers(folder):
    """Pass over where not even an empty program can be built with them; one of ours that cannot be is a failure."""
    empty = folder / "empty.c"
    empty.write_text("int main(void) { return 0; }\n")
    done = subprocess.run(["cc", *SANITIZED, "-o", folder / "empty", empty], capture_output=True, check=False)
    if done.returncode:
        missing("no sanitizers here")


@pytest.fixture(scope="module", params=TARGETS)
def fuzzer(request, tmp_path_factory):
    """A fuzz target with sanitizers, as a program of its own, and its inputs."""
    program = tmp_path_factory.mktemp("fuzz") / request.param
    needs_sanitizers(program.parent)
    source = str(NATIVE / "tests" / f"{request.param}.c")
    ran(["cc", *SANITIZED, "-DNGS_FUZZ_MAIN", "-o", program, source, *SOURCES])
    return program, sorted((NATIVE / "tests" / "corpus" / TARGETS[request.param]).iterdir())


def test_sanitizers_find_nothing_in_the_corpus(fuzzer, tmp_path):
    program, corpus = fuzzer
    assert len(corpus) > 20
    ran([program, *corpus], cwd=tmp_path)


def test_sanitizers_find_nothing_in_random_inputs(fuzzer, tmp_path):
    assert int(ran([fuzzer[0], "4", "7"], cwd=tmp_path).split()[0]) > 40


def test_every_target_builds_with_libfuzzer(tmp_path):
    needed("clang")
    for target in TARGETS:
        flags = [*SANITIZED, "-Wall", "-Wextra", "-Werror", "-fsanitize=fuzzer"]
        ran(["clang", *flags, "-o", tmp_path / target, NATIVE / "tests" / f"{target}.c", *SOURCES])
        said = subprocess.run(
            [tmp_path / target, "-runs=20"], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert said.returncode == 0 and "Done 20 runs" in said.stderr, said.stderr[-2000:]


def test_a_fuzz_target_tells_a_core_that_is_wrong(tmp_path):
    """With a check of the file left out, the target for files to load must fail on its own corpus."""
    source = tmp_path / "src"
    shutil.copytree(NATIVE, source, ignore=shutil.ignore_patterns("corpus"))
    text = (source / "src" / "snapshot.c").read_text()
    line = "    if (!good_ring(there.shared, there.mem, cache->requests[R_VOCAB])) return NGS_DAMAGED_TEXT;\n"
    assert text.count(line) == 1
    (source / "src" / "snapshot.c").write_text(text.replace(line, ""))
    program = tmp_path / "wrong"
    files = [source / "tests/fuzz_load.c", source / "src/ngramspec.c", f"-I{source / 'include'}"]
    needs_sanitizers(tmp_path)
    ran(["cc", *SANITIZED, "-DNGS_FUZZ_MAIN", "-o", program, *files])
    corpus = sorted((NATIVE / "tests" / "corpus" / "load").iterdir())
    assert subprocess.run([program, *corpus], capture_output=True, check=False, cwd=tmp_path).returncode != 0
