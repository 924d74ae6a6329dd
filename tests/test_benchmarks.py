"""Benchmarks still fit the code that they measure, and what they make is what they say."""

import importlib
import os

import numpy as np
import pytest

from benchmarks import ablation, replay, run, traces, tuning
from ngramspec.replay import write
from tests.figures import unnamed_in_json
from tests.naive_replay import make_trace
from tests.sources import PACKAGE

NAMES = run.modules()


@pytest.mark.parametrize("name", NAMES)
def test_each_can_be_asked_for_help_and_for_json(name, monkeypatch, capsys):
    module = importlib.import_module(f"benchmarks.{name}")
    monkeypatch.setattr("sys.argv", [name, "--help"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 0 and "--json" in capsys.readouterr().out


@pytest.mark.parametrize("variant", ablation.VARIANTS)
def test_the_line_that_an_ablation_changes_stands_once(variant):
    file, old, new, extra = ablation.VARIANTS[variant]
    assert old != new or extra or variant == "all parts"
    assert not file or (PACKAGE / file).read_text().count(old) == 1


def test_traces_come_from_the_command_line_and_from_the_environment(tmp_path, monkeypatch):
    paths = [tmp_path / f"{name}.jsonl" for name in "abc"]
    monkeypatch.setenv("NGRAMSPEC_TRACES", os.pathsep.join(map(str, paths[1:])))
    assert traces.named(paths[:1]) == paths
    monkeypatch.delenv("NGRAMSPEC_TRACES")
    assert traces.named([]) == []
    write(make_trace([{"prompt": [1], "output": [2]}] * 3), paths[0])
    name, trace = traces.load(paths[0], 2)
    assert name == "a" and len(trace) == 2 and len(traces.load(paths[0])[1]) == 3
    assert traces.load(None)[0] == "sample"


def test_the_long_trace_has_its_length_and_copies_in_ids_of_their_own():
    once = replay.long(1)
    trace = replay.long(len(once.prompt.tokens) + len(once.output.tokens) + 1)
    n = len(trace) // 2
    assert n == len(once) and len(set(trace.ids)) == 2 * n
    assert np.array_equal(trace.output.lengths[:n], trace.output.lengths[n:])
    first, second = (trace.select(range(k * n, k * n + n)).output.tokens for k in (0, 1))
    assert np.array_equal(first, once.output.tokens)
    assert np.isin(first[first != second], trace.eos_ids).sum() == 0
    assert (first == second).mean() < 0.1
    again = replay.long(1)
    assert np.array_equal(again.prompt.tokens, once.prompt.tokens)


def test_speed_is_of_the_tokens_that_were_emitted():
    trace = make_trace([{"prompt": [1, 2, 3, 1, 2], "output": [3, 1, 2, 3, 9]}] * 4)
    found = replay.timed(trace, "rolling-hash", 2)
    assert found["emitted_tokens"] == 16 and found["prefill_tokens"] == 4 and found["prompt_tokens"] == 20
    assert found["accept_length"] == 16 / found["steps"]
    assert found["emitted_tokens_per_s"] == round(16 / found["cpu_s"])


@pytest.fixture
def small():
    random = np.random.default_rng(5)
    book = random.integers(3, 30, (5, 8))
    rows = []
    for i in range(12):
        text = book[random.integers(0, 5, 8)].reshape(-1).tolist()
        rows.append({"prompt": text[:24], "output": text, "session": f"s{i}", "category": "ab"[i % 2]})
    return make_trace(rows)


def test_a_grid_is_searched_and_replayed_whole(small, monkeypatch):
    few = {name: values[:1] for name, values in tuning.GRID["ngramspec"].items()}
    monkeypatch.setitem(tuning.GRID, "ngramspec", few | {"max_draft": [1, 2, 4, 8], "verify": ["all", "0.2"]})
    monkeypatch.setattr(tuning, "TRIALS", 2)
    found = tuning.grid(small, "ngramspec")
    assert found["grid_points"] == 8 and found["searched_points"] <= 8
    assert tuning.REACHED <= found["reached"] <= 1 + 1e-12  # a mean of logarithms on one side
    assert found["reached"] == found["speedup_searched"] / found["speedup_best_of_grid"]
    assert unnamed_in_json({"kind": "modelled", "grid": found}) == []
    assert "drafting_us" not in str(found) and found["held_out"]["speedup"] > 1


def test_a_verdict_is_told_for_each_category_and_for_batches_that_it_can_fill(small, monkeypatch):
    monkeypatch.setattr(tuning, "CHAINS", tuning.CHAINS | {"max_draft": [2, 4], "verify": ["all"]})
    monkeypatch.setattr(tuning, "BATCHES", ((1,), (32,)))
    parts = tuning.categories(small, 6)
    assert [(name, len(part)) for name, part in parts] == [("a", 6), ("b", 6)]
    assert tuning.categories(small, 7) == []
    found = tuning.verdicts(parts[0][1])
    assert "1" in found and "32" not in found and found["repeats"]["in_earlier_outputs"] > 0
    assert "batch 1: " in tuning.line("a", found)
