"""The named numbers, computed by hand on small replays."""

import json

import numpy as np
import pytest

from ngramspec.draft import ONE_Q30
from ngramspec.errors import ConfigError, TraceError
from ngramspec.replay import Facts, Options, drafters, metrics, run, simulate
from tests.naive_replay import NaiveLookup, make_trace


@pytest.fixture
def naive(monkeypatch):
    """The naive drafter, known by the name `naive`."""
    monkeypatch.setitem(drafters.DRAFTERS, "naive", lambda facts: NaiveLookup())
    return "naive"


#: Prompt 1 2 3, output 1 2 3 1 9: after prefill emits 1, the chain 2 3 1 is right and 9 the bonus: one step, four
#: tokens. Prompt 5, output 6 7: nothing to draft, one step, one token.
TWO = [
    {"prompt": [1, 2, 3], "output": [1, 2, 3, 1, 9], "session": "a", "category": "copy"},
    {"prompt": [5], "output": [6, 7], "category": "new"},
]


def test_pooled_ratios_and_means(naive):
    result = run(make_trace(TWO), naive, Options(max_draft=3, topology="chain"))
    expected = {
        "requests": 2,
        "steps": 2,
        "emitted_tokens": 5,
        "drafted_tokens": 3,
        "accepted_tokens": 3,
        "verified_tokens": 5,
        "unjudged_tokens": 0,
        "accept_length": 2.5,
        "accept_length_per_request_mean": 2.5,
        "accept_rate": 1.0,
        "draft_coverage": 0.5,
        "prompt_tokens": 4,
        "prefill_tokens": 2,
        "output_tokens": 7,
        "unused_tokens": 0,
        "empty_drafts": {"no_match": 1},
        "by_source": {"own": {"drafted_tokens": 3, "accepted_tokens": 3, "accept_rate": 1.0}},
    }
    assert {name: result[name] for name in expected} == expected
    assert [row["rate"] for row in result["by_depth"]] == [1.0, 1.0, 1.0]
    assert result["by_category"]["copy"]["accept_length"] == 4.0
    assert result["by_category"]["new"]["accept_length"] == 1.0


def test_pooled_is_not_the_mean_over_requests():
    per_row = np.array([[1, 4, 3, 3, 1, 0, 4], [3, 3, 0, 0, 0, 0, 3], [0, 0, 0, 0, 0, 0, 0]])
    total = metrics.totals(per_row)
    assert total["accept_length"] == 7 / 4
    assert total["accept_length_per_request_mean"] == (4 + 1) / 2
    assert total["requests"] == 3


def test_padding_is_verified_too(naive):
    settings = {"max_draft": 3, "topology": "chain"}
    padded = run(make_trace(TWO), naive, Options(**settings, verify_width=12))
    uniform = run(make_trace(TWO), naive, Options(**settings, shape="sglang"))
    assert (padded["verified_tokens"], uniform["verified_tokens"]) == (2 * 12, 2 * 4)


def test_drafts_past_the_end_are_neither_accepted_nor_rejected(naive):
    # The draft 2 3 1 reaches past the output 1 2: only 2 is judged, and no bonus is credited.
    result = run(make_trace([{"prompt": [1, 2, 3], "output": [1, 2]}]), naive, Options(max_draft=3, topology="chain"))
    assert (result["emitted_tokens"], result["accepted_tokens"], result["drafted_tokens"]) == (1, 1, 3)
    assert result["unjudged_tokens"] == 2
    assert result["by_depth"] == [{"depth": 1, "steps": 1, "accepted": 1, "rate": 1.0}]
    assert result["by_source"]["own"] == {"drafted_tokens": 1, "accepted_tokens": 1, "accept_rate": 1.0}


def test_tokens_behind_an_eos_are_not_replayed(naive):
    result = run(make_trace([{"prompt": [5], "output": [6, 7, 8, 8]}]), naive, Options(eos_ids=(7,)))
    assert (result["emitted_tokens"], result["unused_tokens"]) == (1, 2)


def test_a_trace_without_steps_has_no_ratios(naive):
    result = run(make_trace([{"prompt": [1], "output": [2]}, {"prompt": [], "output": []}]), naive, Options())
    assert result["steps"] == 0
    assert result["accept_length"] is None and result["accept_rate"] is None and result["draft_us_per_step"] is None
    json.dumps(result, allow_nan=False)


def test_times_are_per_step_and_token(naive):
    counts = simulate(make_trace(TWO), NaiveLookup(), Options(max_draft=3, topology="chain"))
    times = metrics.timings(counts)
    assert times["draft_us_per_step"] == counts.draft_ns / 1000 / 2 > 0
    assert times["accept_us_per_token"] == counts.accept_ns / 1000 / 7 > 0
    assert times["ingest_us_per_prompt_token"] == counts.ingest_ns / 1000 / 4 > 0
    total = counts.draft_ns + counts.accept_ns + counts.ingest_ns
    assert times["total_us_per_emitted_token"] == total / 1000 / 5


def test_interval_covers_the_ratio_and_depends_on_the_seed_alone():
    trace = make_trace([{"prompt": [1], "output": [1, 2]} for _ in range(40)])
    random = np.random.default_rng(1)
    per_row = np.zeros((40, 6), np.int64)
    per_row[:, 0] = random.integers(1, 20, 40)
    per_row[:, 1] = per_row[:, 0] + random.integers(0, 20, 40)
    low, high = metrics.interval(trace, per_row, 7)
    assert 1 < low < per_row[:, 1].sum() / per_row[:, 0].sum() < high
    assert metrics.interval(trace, per_row, 7) == [low, high] != metrics.interval(trace, per_row, 8)


def test_interval_draws_whole_sessions():
    # Rows differ inside each session, sessions do not: nothing varies between draws.
    rows = [{"prompt": [], "output": [1, 2], "session": "ab"[i // 2]} for i in range(4)]
    per_row = np.array([[1, 1, 0, 0, 0, 0], [1, 9, 0, 0, 0, 0]] * 2)
    assert metrics.interval(make_trace(rows), per_row, 0) == [5.0, 5.0]
    assert metrics.interval(make_trace(rows[:2]), per_row[:2], 0) is None


def test_calibration_bins():
    bins = np.zeros((10, 3), np.int64)
    bins[2] = [100, int(100 * 0.25 * ONE_Q30), 25]
    bins[9] = [300, int(300 * 0.95 * ONE_Q30), 240]
    found = metrics.calibration(bins)
    assert found["nodes"] == 400
    assert found["weighted_mean_error"] == pytest.approx(0.75 * 0.15)
    third, last = found["bins"][2], found["bins"][9]
    assert third["within"] and third["error"] == pytest.approx(0) and not last["within"]
    assert last["observed"] == 0.8 and last["predicted"] == pytest.approx(0.95)
    assert last["allowed"] == pytest.approx(0.03 + 2 * (0.95 * 0.05 / 300) ** 0.5)
    assert found["bins"][0] == {"low": 0.0, "high": 0.1, "n": 0}


def test_calibration_is_reported_on_request(naive):
    settings = {"max_draft": 3, "topology": "chain"}
    assert "calibration" not in run(make_trace(TWO), naive, Options(**settings))
    found = run(make_trace(TWO), naive, Options(**settings, calibration=True))["calibration"]
    assert found["nodes"] == 3 and found["bins"][6]["observed"] == 1.0  # every node was given 0.625 and was right


def test_warm_up_is_named_and_must_not_hold_the_trace_itself(naive):
    trace, other = make_trace(TWO), make_trace([{"prompt": [4], "output": [5, 6, 7]}], "other")
    cold, warm = run(trace, naive, Options()), run(trace, naive, Options(), warm_up=[other])
    assert warm["config"]["warm_up"] == ["other"] and cold["config"]["warm_up"] == []
    assert warm["accepted_tokens"] == cold["accepted_tokens"] + 1  # 6 was followed by 7
    with pytest.raises(TraceError, match="2 of 2 requests"):
        run(trace, naive, Options(), warm_up=[trace])
    bound = run(trace, naive, Options(), warm_up=[trace], upper_bound=True)
    assert bound["upper_bound"] and "upper_bound" not in warm


def test_facts_of_traces():
    trace = make_trace([{"prompt": [600], "output": [1], "eos": [3]}, {"prompt": [-4], "output": [], "session": "a"}])
    facts = Facts.of([trace], eos_ids=None, concurrency=4)
    assert (facts.vocab_size, facts.eos_ids, facts.max_requests) == (768, (3,), 4)
    assert Facts.of([trace], eos_ids=(900,), concurrency=1).vocab_size == 1024
    assert (
        Facts.of([make_trace([{"prompt": [2**31 - 2], "output": [1]}])], eos_ids=(), concurrency=1).vocab_size
        == 2**31 - 1
    )
    with pytest.raises(ConfigError, match="ids up to 600 occur"):
        Facts.of([trace], eos_ids=None, concurrency=1, vocab_size=600)


def test_unknown_drafter_names_the_known_ones():
    with pytest.raises(ConfigError, match=r"got 'magic', allowed ngramspec, rolling-hash"):
        drafters.build("magic", Facts(vocab_size=256))


def test_rows_without_a_session_are_drawn_one_by_one():
    rows = [{"prompt": [], "output": [1, 2], "session": session} for session in ("a", None, None)]
    per_row = np.array([[1, 1, 0, 0, 0, 0], [1, 9, 0, 0, 0, 0], [1, 5, 0, 0, 0, 0]])
    assert metrics.interval(make_trace(rows), per_row, 0) == [1.0, 9.0]
    assert metrics.interval(make_trace(rows[:2]), per_row[:2], 0) == [1.0, 9.0]


@pytest.mark.parametrize("name", sorted(set(drafters.DRAFTERS) - {drafters.RECORDED}))  # that one needs its own record
@pytest.mark.parametrize("concurrency", [1, 2])
def test_every_drafter_replays(name, concurrency):
    result = run(make_trace(TWO), name, Options(max_draft=4, concurrency=concurrency), capacity_tokens=10_000)
    assert result["emitted_tokens"] == 5 and 2 <= result["steps"] <= 5
    assert result["accept_length"] == 5 / result["steps"]
