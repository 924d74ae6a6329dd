"""From measured streams to step times, and from step times back to what was measured."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngramspec.drafting.cost import CostModel
from ngramspec.drafting.cost_file import load, parse
from ngramspec.drafting.cost_points import Throughput
from ngramspec.errors import ConfigError
from ngramspec.replay import Options, run
from ngramspec.replay.calibrate import Step
from ngramspec.replay.calibrate.points import ASSUMED, as_model
from ngramspec.replay.calibrate.stream import MIN_EVENTS, Stream, pace
from ngramspec.replay.reproduction import calibrated, reproduces
from tests.naive_replay import make_trace


def made_stream(start, step, n_steps, bundle=1, emits=1):
    times = [start + step * k for k in range(n_steps + 1) if k % bundle == 0 or k == n_steps]
    return Stream(times, 10, 1 + emits * n_steps, n_steps)


@given(
    st.lists(st.tuples(st.floats(0, 0.2), st.integers(60, 90)), min_size=1, max_size=5),
    st.floats(0.001, 0.01),
    st.integers(1, 3),
)
def test_pace_finds_the_step_time_of_streams_that_start_apart(streams, step, emits):
    made = [made_stream(start * 20 * step, step, n, emits=emits) for start, n in streams]
    found = pace(made)
    assert found.step_s == pytest.approx(step, rel=1e-6)
    assert found.tokens_per_second == pytest.approx(emits * len(made) / step, rel=1e-6)


def test_pace_looks_only_where_all_run():
    # One stream decodes alone at 1 ms a step; then both run at 3 ms.
    alone = [0.001 * k for k in range(50)]
    together = [alone[-1] + 0.003 * k for k in range(1, 40)]
    both = pace([Stream(alone + together, 1, 89, 88), Stream(together, 1, 39, 38)])
    assert both.step_s == pytest.approx(0.003)
    assert both.tokens_per_second == pytest.approx(2 / 0.003)


@pytest.mark.parametrize(
    "streams",
    [
        [made_stream(0.0, 0.01, 20), made_stream(0.19, 0.01, 20)],
        [made_stream(0.0, 0.01, 20), made_stream(0.5, 0.01, 20)],
        [made_stream(0.0, 0.01, MIN_EVENTS - 1)],
        [made_stream(0.0, 0.0, 20)],
        [Stream([1.0], 1, 1, 0)],
    ],
    ids=["hardly overlap", "one after the other", "too short", "at once", "one event"],
)
def test_pace_refuses_to_guess(streams):
    assert pace(streams) is None


def step(batch=1, width=1, ms=10.0, rate=100.0, kv=50):
    return Step(
        batch=batch, n_tokens=batch * width, kv_tokens=kv, ms=ms, spread=0.0, prompt_tokens=40, output_tokens=20,
        tokens_per_second=rate, busy=0.1,
    )  # fmt: skip


PLAIN = (step(), step(batch=4, ms=16.0, kv=200))


def model(steps=PLAIN, kind="measured-gpu", **changed):
    return as_model(steps, name="m", kind=kind, note="now", **changed)


def test_without_speculation_verify_steps_are_taken_from_decode_steps():
    made = model()
    assert made.kind == "modelled" and made.note == f"now; {ASSUMED}"
    assert made.breakeven_accept_length(batch=1, width=3, kv_tokens=50) == pytest.approx(1.6)
    assert made.decode_ms(4, 200) == 16.0


def test_no_assumed_verify_step_is_cheaper_than_its_decode_step():
    longer = (step(ms=12.0, kv=5000), step(batch=4, ms=40.0, kv=20000))
    made = model(longer, add=model())
    assert made.step_ms(4, 1, 50) == 40.0
    assert made.decode_ms(4, 200) == 16.0 and made.decode_ms(4, 20000) == 40.0


def test_verify_steps_of_several_widths_stand_side_by_side():
    made = model((step(width=4, ms=11.0), step(batch=4, width=4, ms=20.0, kv=200)), add=model())
    made = model((step(width=8, ms=15.0),), add=made)
    assert made.kind == "measured-gpu" and made.note == "now; now; now"
    assert [made.step_ms(n, 1, 50) for n in (4, 6, 8)] == [11.0, 13.0, 15.0]
    again = model((step(width=8, ms=16.0),), add=made)
    assert again.step_ms(8, 1, 50) == 16.0 and len(again.verify) == 3


@pytest.mark.parametrize(
    ("steps", "changed", "message"),
    [
        ((step(),), {}, "one batch size say nothing about verify steps"),
        ((step(width=4),), {}, "calibrate it without speculation first"),
        ((step(width=4),), {"add": CostModel.from_two(80, 30, name="other")}, "add: is of model 'other'"),
        ((step(width=4),), {"add": CostModel.from_two(80, 30, name="m", kind="measured-cpu")}, "add: is measured-cpu"),
    ],
)
def test_calibrations_that_do_not_fit_together(steps, changed, message):
    with pytest.raises(ConfigError, match=message):
        model(steps, **changed)


def test_a_model_reproduces_what_it_was_made_of():
    made = model((step(rate=100.0), step(batch=4, ms=16.0, rate=4 * 62.5, kv=200)))
    assert [reproduces(made, m) for m in made.measured] == [pytest.approx(1.0), pytest.approx(1.0)]
    assert not calibrated(made)  # its verify steps are assumed
    verified = model((step(width=4, ms=11.0), step(batch=4, width=4, ms=20.0, kv=200)), add=made)
    assert calibrated(verified)


@pytest.mark.parametrize(("rate", "good"), [(96.0, True), (104.9, True), (94.0, False), (106.0, False)])
def test_five_percent_is_the_limit(rate, good):
    made = CostModel.from_two(100.0, 30.0, kind="measured-gpu", measured=(Throughput(1, 10, 20, rate),))
    assert reproduces(made, made.measured[0]) == pytest.approx(100.0 / rate)
    assert calibrated(made) is good


def test_nothing_measured_is_not_calibrated():
    assert not calibrated(CostModel.from_two(100.0, 30.0, kind="measured-gpu"))


@pytest.mark.parametrize(("rate", "label"), [(101.0, "modelled, calibrated"), (110.0, "modelled, uncalibrated")])
def test_a_replay_says_whether_its_speed_up_is_calibrated(rate, label):
    cost = CostModel.from_two(100.0, 12.0, kind="measured-gpu", measured=(Throughput(1, 10, 20, rate),))
    trace = make_trace([{"prompt": [1, 2], "output": [1, 2, 3]}])
    assert run(trace, "none", Options(cost=cost))["modelled"]["label"] == label


def test_growing_context_is_part_of_the_reproduction():
    made = CostModel.from_linear(10.0, 0.0, 0.01)
    n_steps, kv = 19, np.arange(41, 60)
    expected = 1000 * 2 * n_steps / (10.0 * n_steps + 0.01 * 2 * kv.sum())
    assert reproduces(made, Throughput(2, 40, 20, 1.0)) == pytest.approx(expected)


def test_measured_throughputs_go_through_files(tmp_path):
    made = model()
    (tmp_path / "c.json").write_text(json.dumps(made.describe()))
    assert load(tmp_path / "c.json") == made


@pytest.mark.parametrize(
    ("measured", "message"),
    [
        (3, "measured: must be a list of objects"),
        ([{"batch": 1}], r"measured\[0\]: got fields batch; needs batch, prompt_tokens"),
        ([Throughput(0, 1, 2, 1.0)._asdict()], r"measured\[0\].batch: got 0"),
        ([Throughput(1, 1, 2, 0.0)._asdict()], r"measured\[0\].tokens_per_second: got 0.0"),
    ],
)
def test_measured_throughputs_are_checked(measured, message):
    with pytest.raises(ConfigError, match=message):
        parse(CostModel.from_two(80, 30).describe() | {"measured": measured})
