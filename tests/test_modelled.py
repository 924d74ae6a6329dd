"""Replay with a budget, an engine's shape and a cost model: what is verified, and how much faster that would be."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngramspec.cli import main
from ngramspec.drafting.budget import Budget
from ngramspec.drafting.cost import CostModel
from ngramspec.drafting.profiles import profile
from ngramspec.errors import ConfigError
from ngramspec.replay import Options, drafters, run, simulate, write
from ngramspec.replay.plain import plain_ms
from ngramspec.replay.schedule import Schedule
from ngramspec.replay.verify import output_ends
from tests.naive_replay import NaiveLookup, make_trace, traces

pytestmark = pytest.mark.jit_off

#: Every token and every KV token costs something.
LINEAR = CostModel.from_linear(5.0, 0.5, 0.01, name="line")

#: Verifying costs nothing: the speed-up is the accept length.
FREE = CostModel.from_points([{"n_tokens": n, "batch": 1, "ms": 7.0} for n in (1, 2)])


@pytest.fixture
def naive(monkeypatch):
    monkeypatch.setitem(drafters.DRAFTERS, "naive", lambda facts: NaiveLookup())
    return "naive"


def naive_plain_ms(trace, ends, concurrency, cost):
    """Milliseconds of each row without speculation, one step at a time."""
    spent, schedule, running = np.zeros(len(trace)), Schedule(trace), []
    lengths = (ends - trace.output.offsets[:-1]).tolist()
    while True:
        while len(running) < concurrency and (row := schedule.start()) >= 0:
            if lengths[row] > 1:
                running.append([row, 1])
            else:
                schedule.ended(row)
        if not running:
            return spent
        kv_tokens = sum(len(trace.prompt[row]) + n for row, n in running)
        for item in running:
            spent[item[0]] += cost.decode_ms(len(running), kv_tokens) / len(running)
        for item in list(running):
            item[1] += 1
            if item[1] == lengths[item[0]]:
                running.remove(item)
                schedule.ended(item[0])


@given(traces, st.integers(1, 4))
def test_time_without_speculation_is_that_of_single_steps(trace, concurrency):
    ends = output_ends(trace, None, None)
    # Half a token of context, where an even number of steps has no middle one.
    assert plain_ms(trace, ends, concurrency, LINEAR) == pytest.approx(
        naive_plain_ms(trace, ends, concurrency, LINEAR), abs=0.005 * 4 * 9
    )


class Recorder(NaiveLookup):
    """Remembers the batches that it drafted for and what every running request holds."""

    def __init__(self):
        super().__init__()
        self.steps = []

    def draft_batch(self, slots, out, **settings):
        kv_tokens = sum(len(self.running[self._by_slot(slot)]["text"]) for slot in slots)
        super().draft_batch(slots, out, **settings)
        self.steps.append((len(slots), kv_tokens, out.n_draft[: len(slots)].tolist()))


@given(traces, st.integers(1, 4), st.sampled_from(["ideal", "sglang"]))
def test_steps_are_priced_by_tokens_batch_and_context(trace, concurrency, shape):
    cache, cost = Recorder(), LINEAR.with_exposed(100.0)
    counts = simulate(trace, cache, Options(max_draft=3, concurrency=concurrency, shape=shape, cost=cost))
    tokens = [sum(1 + (3 if shape == "sglang" else k) for k in drafted) for _, _, drafted in cache.steps]
    expected = [
        5.0 + 0.5 * n + 0.01 * kv_tokens + 0.1 * batch
        for n, (batch, kv_tokens, _) in zip(tokens, cache.steps, strict=True)
    ]
    assert counts.per_row_ms[:, 0].sum() == pytest.approx(sum(expected))
    assert counts.per_row[:, 6].sum() == sum(tokens)
    assert counts.batch_steps == len(cache.steps)


@given(traces)
def test_where_verifying_is_free_the_speedup_is_the_accept_length(trace):
    counts = simulate(trace, NaiveLookup(), Options(cost=FREE))
    steps, emitted = counts.per_row[:, :2].sum(0).tolist()
    assert counts.per_row_ms.sum(0) == pytest.approx([7.0 * steps, 7.0 * emitted])


@given(traces, st.integers(1, 4))
def test_a_threshold_budget_drafts_what_a_drafter_with_that_threshold_drafts(trace, concurrency):
    # A chain's paths fall, so that its prefix above the threshold is what the drafter keeps.
    settings = {"max_draft": 4, "topology": "chain", "concurrency": concurrency}
    own = simulate(trace, NaiveLookup(), Options(**settings, min_prob=0.3))
    planned = simulate(trace, NaiveLookup(), Options(**settings, budget=Budget(mode="threshold", min_prob=0.3)))
    assert np.array_equal(own.per_row, planned.per_row) and np.array_equal(own.per_depth, planned.per_depth)


def test_where_verifying_never_pays_nothing_is_verified():
    dear = CostModel.from_points([{"n_tokens": n, "batch": 1, "ms": ms} for n, ms in ((1, 1.0), (2, 90.0))])
    trace = make_trace([{"prompt": [1, 2, 3], "output": [1, 2, 3, 1, 2]}] * 2)
    counts = simulate(trace, NaiveLookup(), Options(budget=Budget(mode="cost", cost=dear)))
    assert counts.per_row[:, 3].sum() == 0 and counts.per_reason[4] == counts.per_row[:, 0].sum() > 0
    assert counts.per_row_ms[:, 0].tolist() == counts.per_row_ms[:, 1].tolist() == [4.0, 4.0]


def test_a_uniform_width_is_chosen_step_by_step():
    # The first request's text is known and the second's is not: rows are padded to the longer one.
    rows = [{"prompt": [1, 2, 3], "output": [1, 2, 3, 1]}, {"prompt": [7], "output": [4, 5, 6, 8]}]
    budget = Budget(mode="cost", cost=CostModel.from_linear(100.0, 0.01), uniform_width=True, widths=(2,))
    counts = simulate(make_trace(rows), NaiveLookup(), Options(concurrency=2, shape="sglang", budget=budget))
    assert counts.per_row[0, [0, 3, 6]].tolist() == [1, 2, 3]
    assert counts.per_row[1, [0, 3, 6]].tolist() == [3, 0, 3 + 1 + 1]  # alone, it decodes plainly


def test_a_run_names_the_model_and_draws_whole_sessions(naive):
    rows = [{"prompt": [1, 2, 3, i], "output": [1, 2, 3, i, 9], "category": "ab"[i % 2]} for i in range(4)]
    result = run(make_trace(rows), naive, Options(max_draft=3, cost=LINEAR, concurrency=2))
    low, high = result["modelled_speedup_interval_95"]
    assert low <= result["modelled_speedup"] <= high
    assert result["modelled"]["kind"] == "modelled" and result["modelled"]["label"] == "modelled, uncalibrated"
    plain, spec = (result["modelled"][name] for name in ("tokens_per_second_plain", "tokens_per_second"))
    assert spec / plain == pytest.approx(result["modelled_speedup"])
    assert 1.0 < result["modelled"]["batch_mean"] <= 2.0
    assert result["config"]["cost"]["name"] == "line" and result["config"]["shape"] == "ideal"
    assert {kind["modelled_speedup"] > 1 for kind in result["by_category"].values()} == {True}
    json.dumps(result, allow_nan=False)
    assert "modelled_speedup" not in run(make_trace(rows), naive, Options())


def test_two_runs_are_equal_and_options_can_be_compared(naive):
    trace = make_trace([{"prompt": [1, 2, 3], "output": [1, 2, 3, 1, 9]}] * 3)
    options = Options(budget=Budget(mode="cost", cost=LINEAR), concurrency=2)
    first, second = (simulate(trace, NaiveLookup(), options) for _ in range(2))
    assert np.array_equal(first.per_row, second.per_row) and np.array_equal(first.per_row_ms, second.per_row_ms)
    assert hash(options) == hash(Options(budget=Budget(mode="cost", cost=LINEAR), concurrency=2))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"shape": "trt"}, "shape: got 'trt', allowed ideal, vllm, sglang"),
        ({"shape": "vllm"}, "topology: got 'tree', but shape 'vllm' verifies chains only"),
        ({"shape": "sglang", "verify_width": 20}, "verify_width: has no effect"),
        ({"shape": "sglang", "budget": Budget(max_draft=3)}, "take uniform_width=True"),
        ({"budget": Budget(max_draft=3, uniform_width=True)}, "take uniform_width=False"),
    ],
)
def test_wrong_options_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Options(**settings)


@pytest.fixture
def file(tmp_path):
    rows = [{"prompt": [1, 2, 3, i], "output": [1, 2, 3, i, 9]} for i in range(4)]
    write(make_trace(rows), tmp_path / "t.jsonl")
    return str(tmp_path / "t.jsonl")


def test_step_times_of_one_width_are_told(file, naive, tmp_path, capsys):
    (tmp_path / "two.json").write_text('{"baseline_tps": 82, "verify_ms": 30}')
    assert main(["replay", file, "--drafter", naive, "--cost", str(tmp_path / "two.json")]) == 0
    assert "note: step times two: one width of verify steps at batch 1: others" in capsys.readouterr().out
    assert main(["replay", file, "--drafter", naive, "--profile", "dense-8b-h100"]) == 0
    assert "one width" not in capsys.readouterr().out


def test_the_command_prints_speedups_and_says_what_they_are(file, naive, tmp_path, capsys):
    out = tmp_path / "r.json"
    arguments = ["--profile", "dense-8b-h100", "--shape", "sglang", "--budget", "cost", "--widths", "2,5"]
    assert main(["replay", file, "--drafter", naive, *arguments, "--concurrency", "8", "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "speed-up," in printed and "modelled, uncalibrated; step times dense-8b-h100: read" in printed
    assert "requests ran at a time on average, not 8" in printed
    result = json.loads(out.read_text())["runs"][0]
    assert result["modelled_speedup"] > 1.5 and result["config"]["budget"]["widths"] == [2, 5]
    assert result["config"]["cost"]["points"] == profile("dense-8b-h100").describe()["points"]


def test_the_command_takes_its_threshold_from_min_prob(file, naive, tmp_path, capsys):
    out = tmp_path / "r.json"
    assert (
        main(["replay", file, "--drafter", naive, "--budget", "threshold", "--min-prob", "0.3", "--json", str(out)])
        == 0
    )
    budget = json.loads(out.read_text())["runs"][0]["config"]["budget"]
    assert (budget["mode"], budget["min_prob"], budget["max_draft"]) == ("threshold", 0.3, 11)
    assert "speed-up" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budget", "cost"], "--budget cost needs step times: give --cost or --profile"),
        (["--budget", "greedy"], "mode: got 'greedy', allowed fixed, threshold, cost"),
        (["--widths", "1,2"], "--widths has no effect without --budget"),
        (["--widths", "1,x", "--budget", "fixed"], "--widths: got '1,x', allowed integers"),
        (["--widths", "1", "--budget", "threshold"], "widths: has no effect without uniform_width"),
        (["--shape", "trt"], "--shape: got 'trt', allowed ideal, vllm, sglang"),
        (["--shape", "vllm"], "shape 'vllm' verifies chains only"),
        (["--profile", "tpu"], "profile: got 'tpu', allowed"),
        (["--profile", "dense-8b-h100", "--cost", "x.csv"], "give one of --cost, --profile"),
        (["--exposed-us", "3"], "--exposed-us has no effect without step times"),
        (["--cost", "x.csv"], "x.csv: cannot be read"),
    ],
)
def test_wrong_input_is_one_line_and_status_2(file, arguments, message, capsys):
    assert main(["replay", file, "--drafter", "none", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("error: ") == 1 and message in printed.err
