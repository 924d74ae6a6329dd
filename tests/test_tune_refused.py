"""`tune` refuses by name what it cannot be asked, before it searches, in Python and on the command line."""

import numpy as np
import pytest

from ngramspec.cli import main
from ngramspec.cli import tune as tune_command
from ngramspec.drafting.profiles import profile
from ngramspec.errors import ConfigError, TraceError
from ngramspec.replay import Trace, tune, write

DENSE = profile("dense-8b-h100")
PRICED = ["--profile", "dense-8b-h100"]
FEW = {"topology": ["chain"], "capacity_tokens": [20_000], "max_draft": [2], "verify": ["all"]}


@pytest.fixture
def mixed():
    text = np.random.default_rng(7).integers(3, 20, (14, 60)).tolist()
    return Trace.of([row[:20] for row in text], [row[20:] for row in text])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"engine": "trt"}, "engine: got 'trt', allowed ngramspec, ngramspec-sglang, sglang, vllm"),
        ({"settings": {"depth": [1]}}, "set: got 'depth', this engine has orders"),
        ({"settings": {"max_draft": []}}, "max_draft: got [], needs at least one value"),
        ({"settings": {"max_draft": [3, 3]}}, "max_draft: got [3, 3], needs at least one value, each once"),
        ({"settings": {"max_draft": 3}}, "max_draft: got 3, needs a list of values"),
        ({"settings": {"max_draft": ["x"]}}, "max_draft: got 'x', allowed 0 to 4096"),
        ({"settings": {"orders": [[1, 2], (1, 2)]}}, "needs at least one value, each once"),
        ({"settings": {"verify": ["most"]}}, "verify: got 'most', allowed all, cost or a path probability"),
        ({"settings": {"topology": ["tree"]}, "shape": "vllm"}, "no combination of these values is allowed"),
        ({"engine": "vllm", "shape": "ideal"}, "shape: engine 'vllm' verifies its own"),
        ({"shape": "round"}, "shape: got 'round', allowed ideal, vllm, sglang"),
        ({"batches": []}, "batches: got [], allowed batch sizes"),
        ({"batches": ["1"]}, "batches: got ['1'], allowed batch sizes"),
        ({"batches": 8}, "batches: got 8, allowed batch sizes"),
        ({"batches": [8, 1]}, "batches: got [8, 1], allowed batch sizes from 1 to 65,536, ascending"),
        ({"trials": -1}, "trials: got -1, allowed 0"),
        ({"trials": "9"}, "trials: got '9', allowed 0"),
        ({"held_out": "half"}, "held_out: got 'half', allowed between 0 and 1"),
        ({"n_workers": 0}, "n_workers: got 0, allowed 1"),
        ({"seed": 2**32}, "seed: got 4294967296, allowed 0 to 4294967295"),
        ({"min_gain": float("nan")}, "min_gain: got nan, allowed 0"),
        ({"held_out": 1.0}, "held_out: got 1.0, allowed between 0 and 1"),
        ({"storage": "nowhere://x"}, "storage: nowhere://x cannot be used"),
    ],
)
def test_wrong_questions_are_refused(mixed, settings, message):
    asked = {"batches": [1], "trials": 0, "settings": FEW}
    with pytest.raises(ConfigError) as refused:
        tune(mixed, DENSE, **(asked | settings))
    assert message in str(refused.value)


def test_a_trace_without_decode_steps_is_refused():
    with pytest.raises(TraceError, match="no output of two tokens"):
        tune(Trace.of([[1]] * 4, [[2]] * 4), DENSE)


def test_memory_that_is_not_there_ends_in_one_line(mixed, tmp_path, monkeypatch, capsys):
    def search(*args, **settings):
        raise MemoryError("Unable to allocate 36.0 TiB")

    monkeypatch.setattr(tune_command, "search", search)
    write(mixed, tmp_path / "t.jsonl")
    assert main(["tune", str(tmp_path / "t.jsonl"), "--profile", "dense-8b-h100"]) == 2
    assert "error: out of memory (Unable to allocate 36.0 TiB): ask for less" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "step times: missing; give --cost or --profile"),
        ([*PRICED, "--set", "max_draft"], "--set: got 'max_draft', allowed NAME=VALUE"),
        ([*PRICED, "--set", "depth=1"], "--set: got 'depth=1', allowed NAME=VALUE,... for orders"),
        ([*PRICED, "--set", "max_draft=a"], "max_draft: got 'a', allowed values like 3, 5"),
        ([*PRICED, "--set", "max_draft=1", "--set", "max_draft=2"], "max_draft is given twice"),
        ([*PRICED, "--ray", "--workers", "2"], "--workers has no effect with --ray"),
        ([*PRICED, "--engine", "vllm", "-o", "x"], "--output: vllm is told by flags"),
        (
            [*PRICED, "--engine", "ngramspec-sglang", "--set", "share=all", "--workers", "1"],
            "share: got 'all', allowed tenant, all users, everything, nothing",
        ),
        ([*PRICED, "--batches", "x"], "--batches: got 'x'"),
        *(
            ([*PRICED, "--engine", engine, "--set", f"{name}={value}"], f"{name}: got {value}, ")
            for engine, name, value in (
                ("ngramspec-sglang", "num_draft_tokens", 0),
                ("ngramspec-sglang", "num_draft_tokens", 4098),
                ("ngramspec-sglang", "max_bytes", 2**20 - 1),
                ("ngramspec-sglang", "max_bytes", 2**40 + 1),
                ("sglang", "num_draft_tokens", 1),
                ("sglang", "max_trie_depth", 1),
                ("sglang", "max_bfs_breadth", 2**70),
                ("sglang", "min_bfs_breadth", 0),
                ("sglang", "capacity", 2**40),
                ("vllm", "num_speculative_tokens", 0),
                ("vllm", "prompt_lookup_min", 0),
                ("vllm", "prompt_lookup_max", 2**70),
            )
        ),
    ],
)
def test_the_command_refuses_wrong_input(mixed, tmp_path, capsys, arguments, message):
    write(mixed, tmp_path / "t.jsonl")
    assert main(["tune", str(tmp_path / "t.jsonl"), *arguments]) == 2
    assert message in capsys.readouterr().err
