"""A plan over a batch of drafts is the best of all combinations of prefixes, plain decoding included."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngramspec.draft import ONE_Q30, DraftBatch, Reason
from ngramspec.drafting.budget import Budget
from ngramspec.drafting.cost import CostModel
from ngramspec.drafting.cost_points import Point
from ngramspec.drafting.profiles import profile
from ngramspec.errors import ConfigError
from tests.naive_plan import best_rate, best_uniform_rate, emitted

pytestmark = pytest.mark.jit_off

paths = st.one_of(st.integers(0, ONE_Q30), st.sampled_from([0, ONE_Q30 // 2, ONE_Q30]))
drafted = st.lists(paths, max_size=4).map(lambda row: sorted(row, reverse=True))
batches = st.lists(drafted, min_size=1, max_size=4)
steps = st.lists(st.floats(0.5, 20.0), min_size=1, max_size=18)


def filled(rows, width=None):
    """A DraftBatch whose rows hold these path probabilities, chains of distinct tokens."""
    out = DraftBatch.allocate(len(rows), max([len(row) for row in rows], default=0) if width is None else width)
    for i, row in enumerate(rows):
        out.n_draft[i], out.reason[i] = len(row), Reason.DRAFTED if row else Reason.NO_MATCH
        out.path_q30[i, : len(row)] = row
        out.tokens[i, : len(row)], out.parents[i, : len(row)] = range(len(row)), range(-1, len(row) - 1)
    return out


def by_tokens(times, batch):
    """A model whose step takes `times[m]` with m drafted tokens over the batch, whatever the shape of that."""
    verify = tuple(Point(batch + m, batch, 0, ms) for m, ms in enumerate(times))
    return CostModel(decode=(Point(batch, batch, 0, times[0]),), verify=verify)


def kept(out):
    return out.n_draft.tolist()


def ms(times, m):
    """Time of m drafted tokens: constant beyond the last of the curve below, which ends flat."""
    return times[min(m, len(times) - 1)]


@given(batches, steps, st.integers(0, 4))
def test_a_cost_plan_is_the_best_of_all_prefixes(rows, times, most):
    times = [*times, times[-1]]  # the curve ends flat: nothing to extrapolate
    out = filled(rows)
    plan = Budget(mode="cost", cost=by_tokens(times, len(rows)), max_draft=most).apply(out, len(rows))
    table = [ms(times, m) for m in range(17)]
    n = sum(kept(out))
    assert emitted(rows, kept(out)) / table[n] == pytest.approx(best_rate(rows, table, most), rel=1e-12)
    assert plan.n_tokens == len(rows) + n and plan.width == max(kept(out)) <= most
    assert plan.expected_emitted == pytest.approx(emitted(rows, kept(out)), rel=1e-12)
    assert plan.expected_ms == pytest.approx(table[n], rel=1e-12)


@given(batches, steps, st.sets(st.integers(0, 6), max_size=3), st.floats(0, 500))
def test_a_uniform_width_is_the_fastest_one(rows, times, widths, exposed):
    out, batch = filled(rows, width=6), len(rows)
    curve = [(w, ms(times, w)) for w in range(8)]
    verify = tuple(Point(batch * (1 + w), batch, 0, time) for w, time in curve)
    model = CostModel(decode=(Point(batch, batch, 0, times[0]),), verify=verify, exposed_us=exposed)
    budget = Budget(mode="cost", cost=model, uniform_width=True, widths=tuple(sorted(widths)))
    plan = budget.apply(out, batch)
    allowed = {0, *widths} if widths else range(7)
    assert plan.width in allowed and plan.n_tokens == batch * (1 + plan.width)
    assert kept(out) == [min(len(row), plan.width) for row in rows]  # filled: padding is paid for
    table = [time + exposed * batch / 1000 for _, time in curve]
    rate = emitted(rows, kept(out)) / table[plan.width]
    assert rate == pytest.approx(best_uniform_rate(rows, table, allowed), rel=1e-12)
    assert plan.expected_ms == pytest.approx(table[plan.width])


@given(batches, st.floats(0, 1), st.integers(0, 4))
def test_a_threshold_keeps_what_reaches_it(rows, min_prob, most):
    out = filled(rows)
    plan = Budget(mode="threshold", min_prob=min_prob, max_draft=most).apply(out, len(rows))
    least = round(min_prob * ONE_Q30)
    assert kept(out) == [sum(path >= least for path in row[:most]) for row in rows]
    assert plan == (max(kept(out)), len(rows) + sum(kept(out)), pytest.approx(emitted(rows, kept(out))), None)


@given(batches, st.integers(0, 6))
def test_fixed_keeps_so_many_of_each_row(rows, most):
    out = filled(rows)
    plan = Budget(max_draft=most).apply(out, len(rows))
    assert kept(out) == [min(len(row), most) for row in rows]
    assert plan.n_tokens == len(rows) + sum(kept(out))
    padded = Budget(max_draft=most, uniform_width=True).apply(filled(rows), len(rows))
    assert (padded.width, padded.n_tokens) == (most, len(rows) * (1 + most))


@given(batches, steps)
def test_only_lengths_and_reasons_change_and_rows_beyond_stay(rows, times):
    out, before = filled([*rows, [ONE_Q30]], width=4), filled([*rows, [ONE_Q30]], width=4)
    budget = Budget(mode="cost", cost=by_tokens([*times, times[-1]], len(rows)))
    budget.apply(out, len(rows))
    for name in ("tokens", "parents", "path_q30", "sources", "match_length"):
        assert np.array_equal(getattr(out, name), getattr(before, name))
    assert kept(out)[-1] == 1 and out.reason[-1] == Reason.DRAFTED
    for row, n, reason in zip(rows, kept(out), out.reason.tolist()):
        assert reason == (Reason.NO_MATCH if not row else Reason.BUDGET if n == 0 else Reason.DRAFTED)
    again = filled([*rows, [ONE_Q30]], width=4)
    budget.apply(again, len(rows))  # scratch of an earlier call leaves no trace
    assert kept(again) == kept(out)


def test_a_greedy_choice_would_stop_too_early():
    # The first token does not pay, four do: the step is padded to eight tokens either way.
    model = by_tokens([10.0, 14.0, 14.0, 14.0, 14.0], 1)
    out = filled([[int(0.35 * ONE_Q30)] * 4])
    assert Budget(mode="cost", cost=model).apply(out, 1).width == 4
    assert Budget(mode="cost", cost=by_tokens([10.0, 14.0, 18.0, 22.0, 26.0], 1)).apply(out, 1).width == 0


def test_equal_tokens_go_by_depth_and_then_by_row():
    half = ONE_Q30 // 2
    model = by_tokens([1.0, 1.0, 1.0, 1.0, 9.0, 9.0, 9.0], 3)
    out = filled([[half, half], [half, half], [half, half]])
    Budget(mode="cost", cost=model).apply(out, 3)
    assert kept(out) == [1, 1, 1]
    out = filled([[half, half], [half, half], [half]])
    Budget(mode="cost", cost=by_tokens([1.0] * 5 + [9.0], 3)).apply(out, 3)
    assert kept(out) == [2, 1, 1]


def test_a_threshold_with_a_uniform_width_fills_what_is_paid_for():
    rows = [[ONE_Q30, ONE_Q30 // 2, ONE_Q30 // 8], [ONE_Q30 // 4, ONE_Q30 // 8], []]
    out = filled(rows)
    plan = Budget(mode="threshold", min_prob=0.5, uniform_width=True).apply(out, 3)
    assert (plan.width, plan.n_tokens, kept(out)) == (2, 9, [2, 2, 0])
    out = filled(rows)
    assert Budget(mode="threshold", min_prob=0.5, uniform_width=True, widths=(3,)).apply(out, 3).width == 3
    out = filled(rows)
    assert Budget(mode="threshold", min_prob=0.5, uniform_width=True, widths=(1,)).apply(out, 3).width == 1
    out = filled([[ONE_Q30 // 4]])
    plan = Budget(mode="threshold", min_prob=0.5, uniform_width=True, widths=(3,)).apply(out, 1)
    assert (plan.width, kept(out), out.reason[0]) == (0, [0], Reason.BUDGET)


def test_a_larger_batch_keeps_fewer_tokens_on_a_dense_model():
    row = [int(ONE_Q30 * 0.7**depth) for depth in range(1, 12)]
    budget = Budget(mode="cost", cost=profile("dense-8b-h100"))
    lengths = []
    for batch in (1, 32, 128):
        out = filled([row] * batch)
        plan = budget.apply(out, batch, kv_tokens=1000 * batch)
        assert plan.n_tokens == batch + sum(kept(out))
        lengths.append((plan.n_tokens - batch) / batch)
    assert lengths[0] == 11 > lengths[1] > lengths[2]


def test_an_empty_batch_has_an_empty_plan():
    out = filled([])
    assert Budget(max_draft=2).apply(out, 0) == (0, 0, 0.0, None)
    assert Budget(mode="cost", cost=CostModel.from_two(82, 30)).apply(out, 0) == (0, 0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mode": "greedy"}, "mode: got 'greedy', allowed fixed, threshold, cost"),
        ({}, "max_draft: missing"),
        ({"mode": "threshold"}, "min_prob: missing"),
        ({"mode": "cost"}, "cost: missing"),
        ({"max_draft": -1}, "max_draft: got -1"),
        ({"max_draft": 2.5}, "max_draft: got 2.5"),
        ({"max_draft": 2, "min_prob": 0.5}, "min_prob: has no effect in mode 'fixed'"),
        ({"mode": "threshold", "min_prob": 1.5}, "min_prob: got 1.5"),
        ({"mode": "threshold", "min_prob": 0.5, "widths": (1,)}, "widths: has no effect without uniform_width"),
        ({"max_draft": 2, "uniform_width": True, "widths": (1,)}, "widths: has no effect in mode 'fixed'"),
        ({"mode": "threshold", "min_prob": 0.5, "uniform_width": True, "widths": (3, 1)}, "must rise"),
        (
            {"mode": "threshold", "min_prob": 0.5, "uniform_width": True, "widths": (3,), "max_draft": 2},
            r"widths\[0\]: got 3, allowed integers from 0 to 2",
        ),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        Budget(**settings)


def test_wrong_calls_are_refused():
    with pytest.raises(ConfigError, match="n_rows: got 2, allowed integers from 0 to 1"):
        Budget(max_draft=2).apply(filled([[1]]), 2)
    with pytest.raises(ConfigError, match="kv_tokens: missing, step times of cost model 'dense-8b-h100'"):
        Budget(mode="cost", cost=profile("dense-8b-h100")).apply(filled([[1]]), 1)
