"""Cost models: what is measured comes back, what lies between is interpolated, what is wrong is named."""

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngramspec.drafting.cost import KINDS, CostModel
from ngramspec.drafting.cost_file import load, parse
from ngramspec.drafting.cost_points import Point
from ngramspec.drafting.profiles import PROFILES, profile
from ngramspec.errors import ConfigError
from tests.naive_plan import step_ms

pytestmark = pytest.mark.jit_off

times = st.floats(0.01, 1000.0)
batches, kvs = st.integers(1, 9), st.sampled_from([0, 10, 500])
decode_points = st.dictionaries(st.tuples(batches, kvs), times, min_size=1, max_size=6).map(
    lambda found: tuple(Point(b, b, kv, ms) for (b, kv), ms in found.items())
)
verify_points = st.dictionaries(st.tuples(batches, kvs, st.integers(0, 30)), times, min_size=1, max_size=12).map(
    lambda found: tuple(Point(b + more, b, kv, ms) for (b, kv, more), ms in found.items())
)
captures = st.sets(st.integers(1, 40), max_size=4).map(lambda found: tuple(sorted(found)))
models = st.builds(CostModel, decode=decode_points, verify=verify_points, captured=captures)


@given(models, st.integers(1, 12), st.integers(0, 700), st.integers(0, 60))
def test_step_time_is_nested_interpolation(model, batch, kv_tokens, more):
    expected = step_ms(model, batch + more, batch, kv_tokens)
    assert model.step_ms(batch + more, batch, kv_tokens) == pytest.approx(expected, rel=1e-9)
    assert model.decode_ms(batch, kv_tokens) == pytest.approx(step_ms(model, batch, batch, kv_tokens), rel=1e-9)


@given(models, st.integers(1, 12), st.integers(0, 700), st.integers(1, 4))
def test_a_table_holds_the_single_times(model, batch, kv_tokens, stride):
    out = np.zeros(20)
    model.with_exposed(50.0).fill(out, batch, kv_tokens, stride=stride)
    single = [model.step_ms(batch + i * stride, batch, kv_tokens) + 0.05 * batch for i in range(20)]
    assert out.tolist() == pytest.approx(single, rel=1e-12)
    model.with_exposed(50.0).fill(out, batch, kv_tokens, stride=stride, exposed=False)
    assert out[0] == pytest.approx(model.decode_ms(batch, kv_tokens), rel=1e-12)


@given(decode_points, verify_points)
def test_measured_points_come_back(decode, verify):
    model = CostModel(decode=decode, verify=verify)
    for point in decode:
        assert model.decode_ms(point.batch, point.kv_tokens) == point.ms
    for point in verify:
        if point.n_tokens > point.batch:
            assert model.step_ms(point.n_tokens, point.batch, point.kv_tokens) == point.ms


@given(st.floats(1, 50), st.floats(0, 1), st.floats(0, 1e-3), st.integers(1, 300), st.integers(0, 10**7))
def test_a_fit_is_reproduced_everywhere(base, per_token, per_kv, batch, kv_tokens):
    model = CostModel.from_linear(base, per_token, per_kv)
    for n in (batch, batch + 1, 12 * batch):
        assert model.step_ms(n, batch, kv_tokens) == pytest.approx(base + per_token * n + per_kv * kv_tokens)
    assert model.needs_kv == (per_kv > 0)


def test_an_uncaptured_size_costs_what_the_next_captured_one_costs():
    model = CostModel.from_points(
        [{"n_tokens": n, "batch": 1, "ms": float(n)} for n in (1, 8, 16)], captured=(1, 8, 16)
    )
    assert [model.step_ms(n, 1) for n in (2, 8, 9, 16)] == [8.0, 8.0, 16.0, 16.0]
    assert model.step_ms(20, 1) == 20.0  # beyond the captured sizes nothing is padded


def test_a_padded_decode_step_costs_what_the_larger_batch_costs():
    points = [{"n_tokens": b, "batch": b, "ms": 10.0 + b} for b in (1, 4, 8)] + [{"n_tokens": 64, "batch": 8, "ms": 50}]
    assert CostModel.from_points(points, captured=(4, 8)).decode_ms(5) == 18.0
    assert CostModel.from_points(points).decode_ms(5) == 15.0


def test_lines_beyond_the_last_point_never_fall():
    points = [{"n_tokens": n, "batch": 1, "ms": ms} for n, ms in ((1, 9.0), (4, 8.0), (8, 7.0))]
    assert CostModel.from_points(points).step_ms(1000, 1) == 7.0


def test_decode_and_verify_curves_differ():
    points = [
        {"phase": "decode", "n_tokens": 1, "batch": 1, "ms": 5},
        {"phase": "verify", "n_tokens": 1, "batch": 1, "ms": 9},
        {"phase": "verify", "n_tokens": 3, "batch": 1, "ms": 11},
    ]
    model = CostModel.from_points(points)
    assert (model.decode_ms(1), model.step_ms(2, 1)) == (5.0, 10.0)


@given(model=models, n=st.integers(1, 64))
def test_the_caveat_names_the_batches_whose_time_knows_no_width(model, n):
    told = re.findall(r"\d+", model.caveat.partition(":")[0])
    batches = {point.batch for point in model.verify}
    for batch in batches:
        points = [point for point in model.verify if point.batch == batch]
        one = all(a.kv_tokens != b.kv_tokens for i, a in enumerate(points) for b in points[:i])
        assert (str(batch) in told) == one
        if one and not model.captured:
            assert model.step_ms(batch + n, batch, points[0].kv_tokens) == points[0].ms
    assert len(told) <= len(batches)


def test_breakeven_is_verify_and_exposed_time_over_decode_time():
    assert round(CostModel.from_two(82, 30).breakeven_accept_length(), 2) == 2.46
    model = CostModel.from_linear(10.0, 0.5).with_exposed(100.0)
    assert model.breakeven_accept_length(batch=4, width=3) == pytest.approx((10 + 0.5 * 16 + 0.4) / 12)


@given(models)
def test_what_is_described_can_be_read_back(model):
    content = json.loads(json.dumps(model.describe()))
    assert parse(content) == model


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_is_labelled_as_what_it_is(name):
    model = profile(name)
    assert model.name == name
    assert model.kind in KINDS and not model.kind.startswith("measured")  # this project measured none of them
    assert "not measured" in model.note


def test_profiles_say_what_kind_of_machine_speculation_suits():
    dense, sparse = profile("dense-8b-h100"), profile("sparse-30b-a3b-h100")
    assert dense.step_ms(12, 1, 1000) == pytest.approx(7.1 + 0.021 * 12 + 3.9e-5 * 1000)
    assert dense.breakeven_accept_length(1, 3, 1000) < 1.05 < 1.3 < sparse.breakeven_accept_length(1, 3, 1000)
    assert dense.breakeven_accept_length(128, 3, 128_000) > 1.5


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"points": [{"n_tokens": 1, "batch": 1}]}, r"points\[0\]\.ms: missing"),
        (
            {"points": [{"n_tokens": 1, "batch": 2, "ms": 1}]},
            r"points\[0\]\.n_tokens: got 1, must be an integer from 2 to",
        ),
        ({"points": [{"n_tokens": 1, "batch": 1, "ms": 0}]}, r"points\[0\]\.ms: got 0, must be a number above 0"),
        ({"points": [{"n_tokens": 1, "batch": 1, "ms": "x"}]}, r"points\[0\]\.ms: got 'x', must be a number"),
        ({"points": [{"n_tokens": True, "batch": 1, "ms": 1}]}, r"points\[0\]\.n_tokens: got True"),
        ({"points": [{"n_tokens": 1, "batch": 1, "ms": 1, "gpu": 1}]}, r"points\[0\]\.gpu: unknown field"),
        ({"points": [{"n_tokens": 1, "batch": 1, "ms": 1, "phase": "warm"}]}, r"points\[0\]\.phase: got 'warm'"),
        ({"points": [{"n_tokens": 2, "batch": 1, "ms": 1, "phase": "decode"}]}, r"got 2 in a decode step of batch 1"),
        ({"points": [{"n_tokens": 1, "batch": 1, "ms": 1}]}, "verify: no points"),
        ({"points": [{"n_tokens": 2, "batch": 1, "ms": 1}]}, "decode: no points"),
        ({"points": [{"n_tokens": 1, "batch": 1, "ms": 1}] * 2}, "decode: two points of batch 1, 0 KV tokens and 1"),
        ({"points": 3}, "points: must be a list"),
        ({"base_ms": 1}, "per_token_ms: missing"),
        ({"base_ms": 1, "per_token_ms": -1}, "per_token_ms: got -1"),
        ({"base_ms": float("nan"), "per_token_ms": 1}, "base_ms: got nan"),
        ({"baseline_tps": 82}, "verify_ms: missing"),
        ({"baseline_tps": 82, "verify_ms": 30, "base_ms": 1}, "give either points"),
        ({"speed": 3}, "give either points"),
        ({"baseline_tps": 82, "verify_ms": 30, "kind": "guessed"}, "kind: got 'guessed', allowed measured-gpu"),
        ({"baseline_tps": 82, "verify_ms": 30, "captured": [4, 2]}, r"captured: got \[4, 2\], must rise"),
        ({"baseline_tps": 82, "verify_ms": 30, "captured": ["4"]}, r"captured\[0\]: got '4'"),
        ({"baseline_tps": 82, "verify_ms": 30, "captured": 4}, "captured: got 4, must be a list"),
        ({"baseline_tps": 82, "verify_ms": 30, "exposed_us": -1}, "exposed_us: got -1"),
        ({"baseline_tps": 82, "verify_ms": 30, "name": 1}, "name: got 1, must be text"),
    ],
)
def test_wrong_content_is_named(content, message):
    with pytest.raises(ConfigError, match=message):
        parse(content)


def test_a_csv_of_points(tmp_path):
    file = tmp_path / "server.csv"
    file.write_text("batch,n_tokens,kv_tokens,ms,phase\n1,1,0,10.0,decode\n1,4,,12.5,\n")
    model = load(file)
    assert model.name == "server" and model.kind == "read"
    assert (model.decode_ms(1), model.step_ms(4, 1)) == (10.0, 12.5)


def test_a_json_of_points_with_labels(tmp_path):
    file = tmp_path / "server.json"
    points = [{"n_tokens": 1, "batch": 1, "ms": 10}, {"n_tokens": 4, "batch": 1, "ms": 12}]
    file.write_text(json.dumps({"name": "a", "kind": "measured-gpu", "note": "b", "captured": [4], "points": points}))
    model = load(file)
    assert (model.name, model.kind, model.note, model.step_ms(2, 1)) == ("a", "measured-gpu", "b", 12.0)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.csv", "batch,n_tokens,ms\n1,1,10\n1,x,10\n", "a.csv: row 3, field n_tokens: got 'x', must be an integer"),
        ("a.csv", "batch,n_tokens,ms\n1,1,10\n1,2,-1\n", "a.csv: row 3, field ms: got -1.0, must be a number above 0"),
        ("a.csv", "batch,n_tokens,ms\n1,1,\n", "a.csv: row 2, field ms: missing"),
        ("a.csv", "batch,n_tokens,ms\n1,1,2,3\n", "a.csv: row 2: has more fields"),
        ("a.csv", "batch,ms\n1,1\n", "a.csv: row 1: no column 'n_tokens'"),
        ("a.csv", "batch,n_tokens,ms,gpu\n", "a.csv: row 1: unknown column 'gpu'"),
        ("a.csv", "batch,n_tokens,batch,ms\n", "a.csv: row 1: column 'batch' stands there twice"),
        ("a.csv", "", "a.csv: row 1: no column 'batch'"),
        ("a.csv", "batch,n_tokens,ms\n1,1,10\n", "a.csv: verify: no points"),
        ("a.json", "{", "a.json: is not JSON"),
        ("a.json", "[" * 200_000, "a.json: is not JSON"),
        ("a.json", "[]", "a.json: must hold an object, got list"),
        ("a.json", '{"points": [{"batch": 1, "n_tokens": 1}]}', r"a.json: points\[0\]\.ms: missing"),
        ("a.txt", "", "a.txt: got a file named '.txt', allowed .json or .csv"),
    ],
)
def test_wrong_files_are_named_with_row_and_field(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=message):
        load(tmp_path / name)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.csv: cannot be read: No such file.*; .* ngramspec calibrate"):
        load(tmp_path / "none.csv")
    for wrong in (None, 5, "\ud800.csv", "a\0.csv"):
        with pytest.raises(ConfigError, match=r"path: got .*, allowed the path of a file"):
            load(wrong)
