"""The fast replay counts what the loop written as its definition counts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngramspec.errors import ConfigError
from ngramspec.replay import Options, simulate
from ngramspec.replay.schedule import Schedule
from tests.naive_replay import NaiveLookup, make_trace, naive_replay, traces

pytestmark = pytest.mark.jit_off

options = st.builds(
    Options,
    max_draft=st.integers(0, 6),
    topology=st.sampled_from(["tree", "chain"]),
    min_prob=st.sampled_from([0.0, 0.3]),
    concurrency=st.integers(1, 4),
    share=st.sampled_from(["outputs", "all", "none"]),
    eos_ids=st.sampled_from([None, (), (1,)]),
    max_tokens=st.sampled_from([None, 1, 4]),
    calibration=st.just(True),
)


@given(traces, options)
def test_counts_equal_the_naive_loop(trace, options):
    counts = simulate(trace, NaiveLookup(), options)
    naive = naive_replay(trace, NaiveLookup(), options)
    names = ("steps", "emitted", "accepted", "drafted", "with_draft", "unjudged", "verified")
    assert counts.per_row.tolist() == [[row[name] for name in names] for row in naive["rows"]]
    assert counts.per_depth.tolist()[1:] == [
        [naive["depth"][depth, what] for what in ("steps", "accepted")] for depth in range(1, options.max_draft + 1)
    ]
    assert counts.per_source.tolist() == [
        [naive["source"][source, what] for what in ("drafted", "accepted")] for source in range(5)
    ]
    assert counts.per_reason.tolist() == [naive["reason"][reason] for reason in range(7)]
    for b in range(10):
        inside = [hit for predicted, hit in naive["nodes"] if min(int(predicted * 10), 9) == b]
        assert counts.bins[b, [0, 2]].tolist() == [len(inside), sum(inside)]


@given(traces, options)
def test_same_inputs_same_counts_and_nothing_left_running(trace, options):
    first, second = NaiveLookup(), NaiveLookup()
    a, b = simulate(trace, first, options), simulate(trace, second, options)
    for name in ("per_row", "per_depth", "per_source", "per_reason", "bins"):
        assert np.array_equal(getattr(a, name), getattr(b, name))
    assert first.running == {} and first.calls == second.calls and first.calls["begin"] == len(trace)


@given(traces, st.integers(1, 4))
def test_every_recorded_token_is_emitted_once(trace, concurrency):
    cache = NaiveLookup()
    counts = simulate(trace, cache, Options(concurrency=concurrency, eos_ids=()))
    outputs = [text[start:] for text, start in cache.outputs]
    assert sorted(outputs) == sorted(trace.output[row].tolist() for row in range(len(trace)))
    assert counts.prefill_tokens + counts.per_row[:, 1].sum() == len(trace.output.tokens)
    assert counts.prompt_tokens == len(trace.prompt.tokens)


def starts(rows, concurrency=1):
    """Order in which rows start when each runs for one step, oldest first out."""
    schedule, running, order = Schedule(make_trace(rows)), [], []
    while True:
        while len(running) < concurrency and (row := schedule.start()) >= 0:
            order.append(row)
            running.append(row)
        if not running:
            return order
        schedule.ended(running.pop(0))


def row(session=None, turn=-1):
    return {"prompt": [1], "output": [1, 2], "session": session, "turn": turn}


@pytest.mark.parametrize(
    ("rows", "order"),
    [
        ([row(), row(), row()], [0, 1, 2]),
        ([row("a", 1), row("b", 0), row("a", 0)], [1, 2, 0]),
        ([row(None, 3), row(None, 0)], [0, 1]),  # no session: the turn says nothing
        ([row("a"), row("a", 0), row("a", 5)], [0, 1, 2]),  # a turn is missing: file order
        ([row("a", 2), row("a", 2), row("a", 1)], [2, 0, 1]),
    ],
)
def test_rows_start_in_file_order_and_turns_in_theirs(rows, order):
    assert starts(rows) == order


def test_a_later_turn_waits_while_others_go_first():
    rows = [row("a", 0), row("a", 1), row("b", 0), row()]
    assert starts(rows, concurrency=2) == [0, 2, 1, 3]


def test_a_request_learns_only_what_others_had_emitted_by_then():
    rows = [{"prompt": [7], "output": [1, 2, 3, 4]}, {"prompt": [8], "output": [1, 2, 3, 4]}]
    one_by_one = simulate(make_trace(rows), NaiveLookup(), Options(concurrency=1))
    together = simulate(make_trace(rows), NaiveLookup(), Options(concurrency=2))
    assert one_by_one.per_row[1].tolist()[:3] == [1, 3, 3]  # drafts 2 3 4 from the first request
    assert together.per_row[:, 0].tolist() == [3, 3]  # both write at the same time: nothing to copy


def test_the_recorded_length_is_told_only_when_a_limit_ended_the_output():
    seen = []

    class Spy(NaiveLookup):
        def draft_batch(self, slots, out, *, remaining, **settings):
            seen.append(remaining.tolist())
            super().draft_batch(slots, out, remaining=remaining, **settings)

    rows = [{"prompt": [1], "output": [5, 6, 7], "finish": finish} for finish in ("length", "stop", None)]
    simulate(make_trace(rows), Spy(), Options(share="none"))
    assert seen == [[2], [1], [-1], [-1], [-1], [-1]]


def test_progress_counts_ended_requests():
    seen = []
    simulate(make_trace([row(), row(), row()]), NaiveLookup(), Options(), seen.append)
    assert seen == [1, 2, 3]


@pytest.mark.parametrize(
    "wrong",
    [
        {"topology": "bush"},
        {"max_draft": -1},
        {"concurrency": 0},
        {"min_prob": 1.5},
        {"min_prob": float("nan")},
        {"share": "some"},
        {"max_tokens": 0},
        {"max_draft": 11, "verify_width": 11},
    ],
)
def test_wrong_options_are_refused_by_name(wrong):
    with pytest.raises(ConfigError, match=list(wrong)[-1]):
        Options(**wrong)
