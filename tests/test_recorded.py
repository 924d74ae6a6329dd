"""`recorded`: steps that a trace carries, replayed as they were, and refused where they cannot be the trace's own."""

import json
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ngramspec.cli import main
from ngramspec.drafting.cost import CostModel
from ngramspec.errors import ConfigError, TraceError
from ngramspec.kernels.verify import DRAFTED, EMITTED, STEPS
from ngramspec.replay import Facts, Labels, Options, Ragged, build, read, run, simulate, write
from ngramspec.replay.recorded import recorded_steps, replay_recorded
from ngramspec.replay.report import write_report
from tests.naive_replay import NaiveLookup, make_trace, traces

COST = CostModel.from_linear(10.0, 0.5, 0.01)


def with_spec(trace, specs):
    """The trace, row by row with these specs (None: none)."""
    return replace_spec(trace, Labels.of(None if spec is None else json.dumps(spec) for spec in specs))


def replace_spec(trace, labels):
    return replace(trace, spec=labels)


def one(spec, n_output=11, **row):
    return with_spec(make_trace([{"prompt": [1, 2], "output": list(range(n_output)), **row}]), [spec])


def steps_of(spec, n_output=11):
    return recorded_steps(one(spec, n_output))


# What is read


@pytest.mark.parametrize(
    ("spec", "lengths"),
    [
        ({"accept_lengths": [3, 1, 4, 2]}, [3, 1, 4, 2]),
        ({"accept_lengths": [3, 1, 4, 5]}, [3, 1, 4, 5]),  # the end cut the last step
        ({"n_steps": 4}, [2, 3, 2, 3]),
        ({"spec_verify_ct": 10}, [1] * 10),
        ({"spec_verify_ct": 1}, [10]),
        ({"accept_length": 2.5}, [2, 3, 2, 3]),
        ({"spec_accept_length": 2.75}, [2, 3, 2, 3]),  # SGLang counts the first token: 11 tokens in 4 steps
        ({"accept_lengths": [9, 1], "spec_verify_ct": 5}, [9, 1]),
    ],
)
def test_lengths_are_read_or_spread_evenly(spec, lengths):
    assert steps_of(spec).lengths == [lengths]


def test_a_histogram_keeps_its_steps_in_a_mixed_order():
    found = steps_of({"spec_correct_drafts_histogram": [12, 2, 6, 0, 1]}, 40).lengths[0]
    assert sorted(found) == [1] * 12 + [2] * 2 + [3] * 6 + [5]
    assert len(set(found[:7])) > 1 and len(set(found[-7:])) > 1


def test_the_cut_step_of_a_histogram_comes_last():
    found = steps_of({"spec_correct_drafts_histogram": [2, 0, 0, 0, 2]}, 11).lengths[0]
    assert sorted(found) == [1, 1, 5, 5] and found[-1] == 5


@pytest.mark.parametrize(
    ("spec", "drafted"),
    [
        ({"accept_lengths": [3, 7]}, None),
        ({"accept_lengths": [3, 7], "n_drafted": 7}, [7, 7]),
        ({"accept_lengths": [3, 7], "n_drafted": [2, 9]}, [2, 9]),
        ({"n_steps": 4, "spec_num_proposed_drafts": 15}, [3, 4, 4, 4]),
    ],
)
def test_drafted_tokens_are_read_or_are_those_accepted(spec, drafted):
    found = steps_of(spec)
    assert found.drafted_known is (drafted is not None)
    assert found.drafted == [drafted or [2, 6]]


def test_times_and_names_are_gathered():
    rows = [{"prompt": [], "output": [1, 2, 3]}, {"prompt": [], "output": [1] * 7}, {"prompt": [], "output": [1]}]
    specs = [{"n_steps": 1, "draft_us": 40, "drafter": "EAGLE-3"}, {"n_steps": 3, "draft_us": 80.0, "drafter": "MTP"}]
    found = recorded_steps(with_spec(make_trace(rows), [*specs, None]))
    assert found.draft_us == pytest.approx((40 + 3 * 80) / 4) and found.drafters == ("EAGLE-3", "MTP")
    del specs[0]["draft_us"]
    assert recorded_steps(with_spec(make_trace(rows), [*specs, None])).draft_us is None


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (None, "1 of 1 requests record no verify steps, the first is '0'; give each a field spec"),
        ({"drafter": "EAGLE"}, "record no verify steps"),
        ("words", "record no verify steps"),
        ({"accept_lengths": [3, 1]}, "2 steps emit 4 tokens, but 10 stand behind the first of the output; are bonus"),
        ({"accept_lengths": [3, 7, 1]}, "3 steps emit 11 tokens, but 10"),
        ({"accept_lengths": []}, "0 steps emit 0 tokens"),
        ({"accept_lengths": [10, 0]}, "accept_lengths: got [10, 0], allowed integers from 1"),
        ({"accept_lengths": 10}, "accept_lengths: got 10, allowed integers"),
        ({"accept_lengths": [True] * 10}, "allowed integers"),
        ({"spec_correct_drafts_histogram": [11]}, "11 steps emit 11 tokens, but 10"),
        ({"spec_correct_drafts_histogram": [2**31 - 1]}, "12 steps emit 12 tokens, but 10"),
        ({"spec_correct_drafts_histogram": [1, -1]}, "allowed integers from 0"),
        ({"spec_verify_ct": 11}, "spec_verify_ct: got 11, 11 steps for 10 tokens; allowed at most one a token"),
        ({"spec_verify_ct": 0}, "spec_verify_ct: got [0], allowed integers from 1"),
        ({"spec_verify_ct": 2.5}, "allowed integers from 1"),
        ({"accept_length": 0.5}, "accept_length: got 0.5, allowed a number from 1"),
        ({"accept_length": "2"}, "accept_length: got '2'"),
        ({"accept_length": 100.0}, "got 100.0, 0 steps for 10 tokens"),
        ({"n_steps": 5, "n_drafted": [1, 2]}, "n_drafted: got 2 entries for 5 steps"),
        ({"n_steps": 2, "n_drafted": 3}, "n_drafted: a step drafted fewer tokens than were accepted"),
        ({"n_steps": 2, "spec_num_proposed_drafts": 6}, "spec_num_proposed_drafts: a step drafted fewer"),
        ({"n_steps": 2, "draft_us": -1}, "draft_us: got -1, allowed a number from 0"),
        ({"n_steps": 2, "draft_us": None}, "draft_us: got None"),
    ],
)
def test_numbers_that_cannot_be_the_trace_s_own_are_refused(spec, message):
    trace = one(None) if spec is None else replace_spec(one(None), Labels.of([json.dumps(spec)]))
    with pytest.raises(TraceError) as caught:
        run(trace, "recorded", Options())
    assert message in str(caught.value) and str(caught.value).startswith("made")


def test_it_cannot_be_built():
    with pytest.raises(ConfigError, match="'recorded' cannot draft anew"):
        build("recorded", Facts(vocab_size=8))


# What is replayed


def test_what_sglang_said_of_a_request_comes_out_again():
    spec = {
        "spec_accept_rate": 0.12244897959183673, "spec_accept_length": 1.9047619047619047,
        "spec_num_correct_drafts": 18, "spec_num_proposed_drafts": 147, "spec_verify_ct": 21,
        "spec_correct_drafts_histogram": [12, 2, 6, 0, 1],
    }  # fmt: skip
    result = run(one(spec, 40), "recorded", Options())
    assert (result["steps"], result["emitted_tokens"], result["accepted_tokens"]) == (21, 39, 18)
    assert result["drafted_tokens"] == 147 and result["verified_tokens"] == 21 + 147
    assert result["accept_rate"] == spec["spec_accept_rate"]
    # SGLang counts the first token, which no verify step emitted.
    assert result["accept_length"] == pytest.approx((21 * spec["spec_accept_length"] - 1) / 21)


def naive_end(lengths, left):
    """Steps and emitted tokens until `left` tokens are out."""
    n_steps = n_emitted = 0
    while n_emitted < left:
        n_emitted = min(n_emitted + lengths[n_steps], left)
        n_steps += 1
    return n_steps, n_emitted


cut_rows = st.lists(
    st.tuples(st.lists(st.integers(1, 6), max_size=6), st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=6
)


@settings(max_examples=60, deadline=None)
@given(cut_rows, st.integers(1, 4), st.one_of(st.none(), st.integers(1, 12)), st.sampled_from([(), (7,)]))
def test_every_step_is_replayed_up_to_the_end(rows, concurrency, max_tokens, eos):
    outputs, specs, expected = [], [], []
    for lengths, cut, more in rows:
        n = sum(lengths) - min(cut, (lengths or [1])[-1] - 1)
        output = [(3 * i) % 11 for i in range(n + 1)]
        left = next((i + 1 for i, token in enumerate(output) if token in eos), len(output))
        left = min(left, max_tokens or left)
        outputs.append({"prompt": [1], "output": output})
        specs.append({"accept_lengths": lengths, "n_drafted": [length - 1 + more for length in lengths]})
        expected.append(naive_end(lengths, max(left - 1, 0)))
    trace = with_spec(make_trace(outputs), specs)
    options = Options(concurrency=concurrency, max_tokens=max_tokens, eos_ids=eos)
    _, counts, _ = replay_recorded(trace, options, 0)
    assert counts.per_row[:, [STEPS, EMITTED]].tolist() == [list(pair) for pair in expected]
    drafted = [sum(spec["n_drafted"][:n]) for spec, (n, _) in zip(specs, expected)]
    assert counts.per_row[:, DRAFTED].tolist() == drafted


class Recorder(NaiveLookup):
    """Keeps what every step of every request drafted and emitted."""

    def __init__(self):
        super().__init__()
        self.emitted, self.drafted = {}, {}

    def draft_batch(self, slots, out, **asked):
        super().draft_batch(slots, out, **asked)
        for i, slot in enumerate(slots):
            self.drafted.setdefault(int(self._by_slot(slot)), []).append(int(out.n_draft[i]))

    def accept_batch(self, slots, tokens, offsets):
        for slot, n in zip(slots, np.diff(offsets).tolist()):
            self.emitted.setdefault(int(self._by_slot(slot)), []).append(n)
        super().accept_batch(slots, tokens, offsets)


@settings(max_examples=40, deadline=None)
@given(traces, st.integers(1, 3))
def test_a_replay_of_what_a_drafter_left_equals_the_drafter(trace, concurrency):
    options = Options(topology="chain", max_draft=4, concurrency=concurrency, cost=COST.with_exposed(30.0))
    # Rows end where their EOS stands, so that recorded outputs are whole.
    recorder = Recorder()
    counts = simulate(trace, recorder, options)
    specs = [
        {"accept_lengths": recorder.emitted[row], "n_drafted": recorder.drafted[row], "draft_us": 30.0}
        if row in recorder.emitted
        else None
        for row in range(len(trace))
    ]
    whole = cut_at_end(trace, counts)
    _, again, config = replay_recorded(with_spec(whole, specs), options, 0)
    # A step that the end cut off is recorded without what the end cut off: its last token is a bonus.
    assert again.per_row[:, [STEPS, EMITTED, DRAFTED]].tolist() == counts.per_row[:, [STEPS, EMITTED, DRAFTED]].tolist()
    assert again.per_row_ms == pytest.approx(counts.per_row_ms)
    assert config["cost"]["exposed_us"] == pytest.approx(30.0) or not counts.per_row[:, STEPS].any()


def cut_at_end(trace, counts):
    n = counts.per_row[:, EMITTED] + (trace.output.lengths > 0)
    return replace(trace, output=Ragged.of([trace.output[row][: n[row]] for row in range(len(trace))]))


def test_its_own_time_is_charged():
    spec = {"accept_lengths": [2] * 5, "n_drafted": 3}
    free = run(one(spec), "recorded", Options(cost=COST.with_exposed(500.0)))
    dear = run(one(spec | {"draft_us": 2000.0}), "recorded", Options(cost=COST.with_exposed(500.0)))
    assert free["config"]["cost"]["exposed_us"] == 0.0
    assert dear["modelled"]["tokens_per_second"] == pytest.approx(
        10_000 / (10_000 / free["modelled"]["tokens_per_second"] + 5 * 2.0)
    )
    assert dear["draft_us_per_step"] == 2000.0 and dear["total_us_per_emitted_token"] == pytest.approx(1000.0)
    assert "upper bound: no time of drafting recorded" in free["modelled"]["label"]
    assert "upper bound" not in dear["modelled"]["label"]


def test_settings_of_the_engine_do_not_apply():
    spec = {"accept_lengths": [9, 1], "n_drafted": 15}
    result = run(one(spec), "recorded", Options(max_draft=2, shape="sglang", min_prob=0.5, calibration=True))
    assert result["drafted_tokens"] == 30 and result["accept_length"] == 5.0 and "calibration" not in result
    assert {name: result["config"][name] for name in ("max_draft", "shape", "topology")} == {
        "max_draft": 15,
        "shape": "ideal",
        "topology": "chain",
    }


def test_what_the_record_does_not_tell_is_not_told():
    result = run(one({"n_steps": 4}, category="x"), "recorded", Options(cost=COST))
    assert result["kind"] == "read" and result["not_recorded"] == ["time of drafting", "drafted tokens"]
    assert result["accept_rate"] is None and result["by_category"]["x"]["accept_rate"] is None
    assert result["draft_us_per_step"] is None and result["by_depth"] == [] and result["by_source"] == {}
    assert result["accept_length"] == 2.5 and result["modelled_speedup"] > 1.0


def test_the_run_has_the_shape_of_any_other():
    trace = one({"n_steps": 4, "n_drafted": 3, "draft_us": 5.0})
    other, recorded = (run(trace, name, Options(cost=COST)) for name in ("none", "recorded"))
    assert set(other) - set(recorded) == set()
    assert set(other["config"]) - set(recorded["config"]) == set()


def test_a_report_compares_with_it_and_advises_another(tmp_path):
    specs = [{"accept_lengths": [3, 1, 4, 2], "drafter": "EAGLE-3"}] * 3
    trace = with_spec(make_trace([{"prompt": [1, 2], "output": list(range(11))} for _ in range(3)]), specs)
    runs = [run(trace, name, Options(cost=COST)) for name in ("recorded", "prompt-lookup")]
    write_report(runs, tmp_path / "r.html", traces=[trace])
    page = (tmp_path / "r.html").read_text()
    assert "The drafter 'recorded' (EAGLE-3) did not run here" in unescape(page)
    assert "counted at their least: time of drafting and drafted tokens" in page
    assert "Enable recorded" not in page and "Settings: recorded" not in page
    with pytest.raises(ConfigError, match="the only drafter is 'recorded', a report compares"):
        write_report(runs[:1], tmp_path / "s.html", traces=[trace])


# The command


@pytest.fixture
def trace_file(tmp_path):
    rows = [{"prompt": [1, 2], "output": list(range(11)), "category": "x"} for _ in range(4)]
    specs = [{"accept_lengths": [3, 1, 4, 2], "n_drafted": 4, "drafter": "EAGLE-3"}] * 4
    write(with_spec(make_trace(rows), specs), tmp_path / "t.jsonl")
    return tmp_path / "t.jsonl"


def test_the_command_puts_it_beside_other_drafters(trace_file, tmp_path, capsys):
    out = tmp_path / "r.json"
    assert main(["replay", str(trace_file), "--drafter", "none,recorded", "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "recorded" in printed and "no time of drafting in the record" in printed
    runs = json.loads(out.read_text())["runs"]
    assert [result["accept_length"] for result in runs] == [1.0, 2.5]
    assert runs[1]["config"]["recorded"]["drafters"] == ["EAGLE-3"]


def test_the_command_refuses_a_trace_without(trace_file, tmp_path, capsys):
    write(replace_spec(read(trace_file), Labels.of([None] * 4)), tmp_path / "u.jsonl")
    assert main(["replay", str(tmp_path / "u.jsonl"), "--drafter", "recorded"]) == 2
    assert "u.jsonl: 4 of 4 requests record no verify steps" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", ["npz", "parquet", "jsonl.gz"])
def test_steps_survive_every_format(trace_file, tmp_path, suffix):
    write(read(trace_file), tmp_path / f"t.{suffix}")
    assert recorded_steps(read(tmp_path / f"t.{suffix}")) == recorded_steps(read(trace_file))
