"""The long run of `benchmarks.soak`, shortened: whatever goes wrong in a server, the state is in order."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import ngramspec as ns
from benchmarks import soak
from benchmarks.replay import long
from tests.native.built import built, needed
from tests.sources import ROOT

TOKENS = 40_000
BUILD = "from ngramspec.native.build import build; build()"  # the command loads it, too
SHORT = """
import json, sys
from benchmarks import soak
from benchmarks.replay import long
print(json.dumps(soak.soaked(long(200_000), int(sys.argv[1]), engine="native")["digest"]))
"""


@pytest.fixture(scope="module")
def trace():
    return long(200_000)


@pytest.fixture(scope="module")
def served(trace):
    return soak.soaked(trace, TOKENS)


def test_everything_that_can_happen_happens_and_every_token_is_served(served, trace, monkeypatch):
    assert TOKENS <= served["tokens"] < TOKENS + 1000 and len(served["tenths"]) == 10
    assert served["accept_length"] > 2
    monkeypatch.setattr(soak, "FLUSH", 200)
    often = soak.soaked(trace, TOKENS // 2)
    assert all(often["events"].values()), often["events"]


def test_threads_end_in_the_state_of_one(served, trace):
    assert soak.soaked(trace, TOKENS, draft_threads=4)["digest"] == served["digest"]
    alone = [soak.soaked(trace, TOKENS // 4, seed)["digest"] for seed in range(3)]
    assert soak.together(trace, TOKENS // 4, range(3)) == alone and len(set(alone)) == 3


@pytest.mark.native
def test_the_c_core_ends_in_the_same_state(served, trace):
    built()
    assert soak.soaked(trace, TOKENS, engine="native")["digest"] == served["digest"]


@pytest.mark.native
def test_the_c_core_ends_there_under_sanitizers_without_a_word(served, tmp_path):
    built()
    needed("gcc")  # its sanitizer can be loaded ahead of Python
    runtime = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    environment = os.environ | {
        "CC": "gcc -g -fsanitize=address,undefined -fno-sanitize-recover=all", "XDG_CACHE_HOME": str(tmp_path),
        "LD_PRELOAD": runtime, "ASAN_OPTIONS": "detect_leaks=0",
    }  # fmt: skip
    build = environment | {"LD_PRELOAD": ""}
    subprocess.run([sys.executable, "-c", BUILD], env=build, check=True, cwd=ROOT)
    (library,) = (tmp_path / "ngramspec").iterdir()
    assert b"__asan_report_load" in library.read_bytes() and b"__ubsan_handle" in library.read_bytes()
    run = [sys.executable, "-c", SHORT, str(TOKENS)]
    done = subprocess.run(run, env=environment, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr[-3000:]
    assert json.loads(done.stdout) == served["digest"]


def test_what_went_wrong_is_named():
    calm = {"resident_bytes": 10**9, "step_p99_us": 10.0}
    results = {"engines": {"numba": {"tenths": [calm] * 10, "digest": "a"}}, "threads": {"two": True}}
    assert soak.faults(results) == []
    slow, large = calm | {"step_p99_us": 16.0}, calm | {"resident_bytes": 10**9 + soak.GROWTH + 1}
    results["engines"]["native"] = {"tenths": [calm, large, slow], "digest": "b"}
    results["threads"]["two"] = False
    grown, slower, states, threads = soak.faults(results)
    assert "native: resident memory grew" in grown and "10.0 µs in the first tenth, 16.0" in slower
    assert "numba" in states and threads == "two: ends in another state"


@pytest.mark.parametrize("session", [None, "s"])
def test_names_of_ended_requests_do_not_pile_up(session):
    config = ns.DrafterConfig(capacity_tokens=20_000, vocab_size=100, max_requests=4, max_sessions=8)
    cache = ns.Drafter(config)
    prompt = np.arange(40, dtype=np.int32)
    for i in range(1000):
        prompt[0] = i % 100
        cache.begin(f"r{i}", prompt, session=session and f"{session}{i}", tenant=f"t{i}")
        cache.accept(f"r{i}", [1, 2, 3])
        cache.finish(f"r{i}")
    kept = (cache._rows, cache._pending, cache._names, cache._sessions, cache._by_text)
    assert sum(map(len, kept)) <= 5 * config.n_rows
