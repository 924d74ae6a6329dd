"""The real engine on a CPU: greedy text must not depend on who drafts, nor on anything of ours that fails."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import pairwise

import pytest

from tests.sglang.drive import BUILT_IN
from tests.sglang.tiny_llama import make
from tests.sources import ROOT

#: Equal terms: SGLang's own corpus shows every request's output to every other.
EVERYBODY = {"share": "all users"}

#: Engine options, our configuration (None: not asked for), a fault, and whether one workload is enough.
VARIANTS = {
    "none": ({}, None, None, False),
    "built-in": (BUILT_IN, None, None, False),
    "ours": ({"speculative_algorithm": "NGRAM"}, EVERYBODY, None, False),
    "chain": ({"speculative_algorithm": "NGRAM"}, EVERYBODY | {"topology": "chain"}, None, True),
    "kernel": ({"speculative_algorithm": "NGRAM"}, EVERYBODY, "kernel", True),
    "contract": (BUILT_IN, EVERYBODY, "contract", True),
    "unknown key": (BUILT_IN, {"shares": "all users"}, None, True),
    "too small": (BUILT_IN, EVERYBODY | {"max_bytes": 2**20}, None, True),
}

#: Where SGLang's own knows nothing and ours has read the prompt.
COPYING = ("copy", "flushed", "long")


class Served:
    """What one variant said, and its log."""

    def __init__(self, folder, name, model):
        options, config, fault, short = VARIANTS[name]
        out = folder / "said.json"
        environment = {key: value for key, value in os.environ.items() if not key.startswith("NGRAMSPEC")}
        environment |= {"OMP_NUM_THREADS": "1", "SGLANG_USE_CPU_ENGINE": "1"}
        if config is not None:
            (folder / "config.json").write_text(json.dumps(config))
            environment["NGRAMSPEC_CONFIG"] = str(folder / "config.json")
        if fault is not None:
            environment["NGRAMSPEC_TEST_FAULT"] = fault
        command = [sys.executable, "-m", "tests.sglang.drive", str(model), str(out), json.dumps(options)]
        run = subprocess.run(
            [*command, *(["short"] if short else [])],
            cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900,
        )  # fmt: skip
        self.log = run.stdout
        assert run.returncode == 0, self.log[-5000:]
        self.said = json.loads(out.read_text())

    def text(self, workload):
        return [(result["ids"], result["finish"]) for result in self.said[workload]]

    def accept_length(self, workload):
        """Tokens a verify step over the whole workload; the first of each request comes from its prefill."""
        results = self.said[workload]
        return sum(len(r["ids"]) - 1 for r in results) / sum(r["verify_steps"] for r in results)


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    """Every variant served once, two at a time."""
    folder = tmp_path_factory.mktemp("served")
    make(folder / "model")
    with ThreadPoolExecutor(2) as pool:
        runs = {}
        for name in VARIANTS:
            (folder / name).mkdir()
            runs[name] = pool.submit(Served, folder / name, name, folder / "model")
        return {name: run.result() for name, run in runs.items()}


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "none"])
def test_text_is_that_of_no_speculation(served, name):
    for workload in served[name].said:
        assert served[name].text(workload) == served["none"].text(workload), workload


def test_ours_is_nowhere_far_below_the_built_in(served):
    # Short random walks decide little by little: a tenth is a handful of steps.
    for workload in served["ours"].said:
        ours, built_in = (served[name].accept_length(workload) for name in ("ours", "built-in"))
        assert ours >= 0.9 * built_in, (workload, ours, built_in)


@pytest.mark.parametrize("workload", COPYING)
def test_ours_accepts_two_tokens_more_where_the_output_copies_the_prompt(served, workload):
    assert served["ours"].accept_length(workload) >= served["built-in"].accept_length(workload) + 2


def test_chains_draft_too(served):
    assert served["chain"].accept_length("copy") >= served["built-in"].accept_length("copy") + 2
    assert "drafts chains of up to 11 tokens" in served["chain"].log


def test_ours_says_once_what_it_does_and_nothing_failed(served):
    log = served["ours"].log
    assert log.count("ngramspec: drafts trees of up to 11 tokens (attention torch_native/torch_native)") == 1
    assert "failed" not in log


def test_the_built_in_runs_where_ours_is_not_asked_for(served):
    assert "ngramspec:" not in served["built-in"].log
    assert "ngramspec:" not in served["none"].log


def test_a_kernel_that_raises_costs_drafts_and_nothing_else(served):
    said = [line for line in served["kernel"].log.splitlines() if "drafting failed" in line]
    times = [datetime.strptime(line[1:20], "%Y-%m-%d %H:%M:%S") for line in said]
    assert said and "MemoryError: made to fail by a test" in served["kernel"].log
    assert all((later - earlier).total_seconds() >= 59 for earlier, later in pairwise(times)), said
    assert 1 < served["kernel"].accept_length("copy") < served["ours"].accept_length("copy")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("contract", "NGRAMWorker._prepare_draft_tokens: takes (self, batch, hint), ours (self, batch)"),
        ("unknown key", "$.shares: unknown setting; allowed are max_bytes, share"),
        ("too small", "max_bytes: got 1048576, these settings need at least"),
    ],
)
def test_ours_stands_aside_with_one_clear_line(served, name, words):
    lines = [line for line in served[name].log.splitlines() if "stands aside" in line]
    assert lines and all(words in line for line in lines)
    assert served[name].accept_length("copy") == served["built-in"].accept_length("copy")
