"""Requests served in modelled time: the same events as the loop written as its definition, and what follows from it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngramspec.drafting.cost import CostModel
from ngramspec.errors import ConfigError, TraceError
from ngramspec.replay import Labels, Options, Serving, metrics, simulate
from ngramspec.replay.serving.latency import if_charged, of_one, summary
from ngramspec.replay.serving.retiming import retimed
from ngramspec.replay.serving.timeline import (
    COMPUTED,
    DECODING,
    DURATION,
    FORWARD,
    INGESTED,
    LEARNED,
    PREFILLING,
    START,
)
from tests.naive_replay import NaiveLookup, make_trace, rows
from tests.naive_serving import naive_serve

pytestmark = pytest.mark.jit_off

#: Every token and every KV token costs something; steps take milliseconds.
LINEAR = CostModel.from_linear(5.0, 0.5, 0.01, name="line")

#: A step takes a millisecond, whatever is in it.
CONSTANT = CostModel.from_points([{"n_tokens": n, "batch": 1, "ms": 1.0} for n in (1, 2)])

timed_rows = st.tuples(rows, st.integers(0, 40)).map(lambda pair: pair[0] | {"arrival": 1e9 + pair[1] / 1000})
timed_traces = st.lists(timed_rows, min_size=1, max_size=7).map(make_trace)

arriving = st.one_of(
    st.just({}),
    st.builds(lambda speed: {"arrivals": "trace", "speed": speed}, st.sampled_from([1.0, 0.5, 3.0])),
    st.builds(
        lambda rate, seed: {"arrivals": "poisson", "rate": rate, "seed": seed},
        st.sampled_from([20.0, 300.0]),
        st.integers(0, 3),
    ),
)
charging = st.sampled_from(
    [
        {},
        {"draft_us": 40.0},
        {"draft_us": 12.34, "accept_us": 700.0, "ingest_us": 300.0},
        {"accept_us": 9000.0, "ingest_us": 0.5},
    ]
)
servings = st.builds(
    lambda arrives, charges, **others: Serving(**arrives, **charges, **others),
    arriving,
    charging,
    overlap=st.booleans(),
    prefill_chunk=st.integers(1, 9),
    prefix_cache=st.booleans(),
)
shapes = st.sampled_from([("ideal", "tree"), ("ideal", "chain"), ("vllm", "chain"), ("sglang", "tree")])
options = st.builds(
    lambda shape, **others: Options(shape=shape[0], topology=shape[1], cost=LINEAR, **others),
    shapes,
    max_draft=st.integers(0, 6),
    min_prob=st.sampled_from([0.0, 0.3]),
    concurrency=st.integers(1, 4),
    share=st.sampled_from(["outputs", "all", "none"]),
    eos_ids=st.sampled_from([None, (), (1,)]),
    max_tokens=st.sampled_from([None, 1, 4]),
    serving=servings,
)


def assert_same(line, naive):
    assert line.steps.tolist() == naive["steps"]
    for what in ("sent", "first", "ended"):
        assert getattr(line, what).tolist() == naive[what]
    assert (line.idle, line.end) == (naive["idle"], naive["end"])
    assert line.row_ms == pytest.approx(naive["row_ms"])


@given(timed_traces, options)
def test_events_and_counts_equal_the_naive_loop(trace, options):
    counts = simulate(trace, NaiveLookup(), options)
    naive = naive_serve(trace, NaiveLookup(), options)
    assert_same(counts.served.drafting, naive)
    assert_same(counts.served.plain, naive_serve(trace, None, options))
    names = ("steps", "emitted", "accepted", "drafted", "with_draft", "unjudged")
    assert counts.per_row[:, :6].tolist() == [[row[name] for name in names] for row in naive["rows"]]
    assert counts.per_reason.tolist() == [naive["reason"][reason] for reason in range(7)]
    assert counts.batch_steps == sum(step[DECODING] > 0 for step in naive["steps"])
    assert counts.prompt_tokens == len(trace.prompt.tokens) == sum(step[INGESTED] for step in naive["steps"])
    assert counts.prefill_tokens + counts.per_row[:, 1].sum() == sum(step[LEARNED] for step in naive["steps"])


@given(timed_traces, options)
def test_time_adds_up_and_no_step_is_too_large(trace, options):
    served = simulate(trace, NaiveLookup(), options).served
    for line in served:
        steps = line.steps
        assert steps[:, DURATION].sum() + line.idle == line.end
        in_order = options.serving.arrivals == "closed"
        assert line.request_ms(options.serving).tolist() == (
            line.row_ms.tolist() if in_order else ((line.ended - line.sent) / 1e6).tolist()
        )
        assert line.row_ms.sum() == pytest.approx(steps[:, DURATION].sum() / 1e6)
        assert (steps[:, DECODING] + steps[:, PREFILLING]).max() <= options.concurrency
        assert (steps[1:, START] >= steps[:-1, START] + steps[:-1, DURATION]).all()
        widest = steps[:, DECODING] * (1 + options.max_draft)
        assert (steps[:, COMPUTED] - widest).max() <= options.serving.prefill_chunk
        assert (line.ended >= line.first).all() and (line.ended > line.sent).all()


@given(timed_traces, options)
def test_same_inputs_same_times_and_nothing_left_running(trace, options):
    first, second = NaiveLookup(), NaiveLookup()
    a, b = simulate(trace, first, options), simulate(trace, second, options)
    assert np.array_equal(a.per_row, b.per_row) and np.array_equal(a.per_row_ms, b.per_row_ms)
    assert np.array_equal(a.served.drafting.steps, b.served.drafting.steps)
    assert first.running == {} and first.calls == second.calls and first.calls["begin"] == len(trace)


@given(timed_traces, options)
def test_a_later_turn_is_sent_when_the_earlier_one_has_ended(trace, options):
    for line in simulate(trace, NaiveLookup(), options).served:
        for row in range(len(trace)):
            for other in range(len(trace)):
                if trace.session[row] is not None and trace.session[row] == trace.session[other] and row != other:
                    assert line.sent[row] >= line.ended[other] or line.sent[other] >= line.ended[row]


class Watching(NaiveLookup):
    """Notes, at each draft, what every text holds."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def draft_batch(self, slots, out, **settings):
        self.seen.append(sum(len(text) - start for text, start in self.outputs if len(text) > start))
        super().draft_batch(slots, out, **settings)


@given(timed_traces, options.filter(lambda o: o.share == "outputs"))
def test_a_draft_knows_what_had_been_emitted_when_its_step_began(trace, options):
    cache = Watching()
    steps = simulate(trace, cache, options).served.drafting.steps
    before = np.cumsum(steps[:, LEARNED]) - steps[:, LEARNED]
    assert cache.seen == before[steps[:, DECODING] > 0].tolist()


@given(timed_traces, options)
def test_without_drafts_it_is_the_same_as_without_speculation(trace, options):
    options = Options(cost=LINEAR, serving=options.serving.charging(), concurrency=options.concurrency, max_draft=0)
    served = simulate(trace, NaiveLookup(), options).served
    assert np.array_equal(served.drafting.steps, served.plain.steps)
    assert np.array_equal(served.drafting.ended, served.plain.ended)


def assert_same_times(a, b):
    assert a.steps.tolist() == b.steps.tolist() and (a.idle, a.end) == (b.idle, b.end)
    for what in ("sent", "first", "ended"):
        assert np.array_equal(getattr(a, what), getattr(b, what))


@given(timed_traces, options, charging)
def test_times_charged_afterwards_are_those_charged_at_once(trace, options, charges):
    # Without arrivals nothing depends on the clock, so that the same steps are taken.
    settings = {"overlap": options.serving.overlap, "prefill_chunk": options.serving.prefill_chunk}
    common = {"cost": LINEAR, "concurrency": options.concurrency}
    free = simulate(trace, NaiveLookup(), Options(**common, serving=Serving(**settings)))
    dear = Serving(**settings, **charges)
    charged = simulate(trace, NaiveLookup(), Options(**common, serving=dear))
    assert_same_times(retimed(free.served.drafting, trace, dear), charged.served.drafting)
    found = if_charged(free.served, free.per_row[:, 1], trace, dear)
    assert found["modelled_speedup"] == pytest.approx(metrics.speedup(charged.per_row_ms))
    assert found["speculating"] == summary(charged.served, charged.per_row[:, 1], dear)["speculating"]


@given(timed_traces, options, charging)
def test_requests_one_at_a_time_are_retimed_exactly_whenever_they_come(trace, options, charges):
    # By themselves requests see the same whatever the clock says, unless a longer wait changes which comes first.
    trace = trace.select(np.argsort(trace.arrival, kind="stable"))
    trace = replace(trace, session=Labels.of([None] * len(trace)))
    serving = options.serving.charging()
    free = simulate(trace, NaiveLookup(), Options(cost=LINEAR, serving=serving)).served
    dear = replace(serving, **charges)
    charged = simulate(trace, NaiveLookup(), Options(cost=LINEAR, serving=dear)).served
    assert_same_times(retimed(free.drafting, trace, dear), charged.drafting)


def served(rows, serving=None, cost=CONSTANT, **settings):
    serving = serving or Serving(arrivals="trace")
    return simulate(make_trace(rows), NaiveLookup(), Options(cost=cost, serving=serving, **settings)).served


def request(at, prompt=(1, 2), output=(3, 4, 5), **others):
    return {"prompt": list(prompt), "output": list(output), "arrival": at, **others}


def test_an_idle_server_jumps_to_the_next_arrival():
    line = served([request(10.0), request(11.0)]).plain
    assert line.sent.tolist() == [0, 1_000_000_000]
    assert line.first.tolist() == [1_000_000, 1_001_000_000]
    assert line.ended.tolist() == [3_000_000, 1_003_000_000]
    assert line.idle == 997_000_000 and line.end == 1_003_000_000


def test_recorded_time_can_pass_faster():
    assert served([request(0.0), request(8.0)], Serving(arrivals="trace", speed=4.0)).plain.sent[1] == 2_000_000_000


def test_requests_sent_at_once_are_let_in_by_row():
    line = served([request(5.0), request(0.0), request(0.0), request(0.0)]).plain
    assert line.first[1:].tolist() == [1_000_000, 4_000_000, 7_000_000]


def test_a_request_that_comes_while_a_step_runs_joins_the_next():
    line = served([request(0.0), request(0.0005)], concurrency=2).plain
    assert line.steps[:, [START, DECODING, PREFILLING]].tolist() == [
        [0, 0, 1], [1_000_000, 1, 1], [2_000_000, 2, 0], [3_000_000, 1, 0],
    ]  # fmt: skip


def test_the_first_token_waits_for_room():
    numbers = of_one(served([request(0.0), request(0.0)]).plain, np.array([3, 3]))
    assert numbers["ttft_ms"] == pytest.approx({"mean": 2.5, "p50": 2.5, "p99": 3.97})
    assert numbers["tpot_ms"]["mean"] == pytest.approx(1.0)
    assert numbers["tokens_per_second"] == pytest.approx(1000.0) and numbers["busy_share"] == 1.0
    assert numbers["requests_mean"] == pytest.approx(1.0) and numbers["requests_most"] == 1


def test_a_prompt_takes_part_in_as_many_steps_as_it_has_chunks():
    rows = [request(0.0, output=range(9)), request(0.0, prompt=range(7), output=[1])]
    line = served(rows, Serving(arrivals="trace", prefill_chunk=3), concurrency=2).plain
    # The first request's two tokens leave one token of room in the first step.
    assert line.steps[:4, [DECODING, PREFILLING, COMPUTED]].tolist() == [[0, 2, 3], [1, 1, 4], [1, 1, 4], [1, 0, 1]]
    assert line.first.tolist() == [1_000_000, 3_000_000]


def test_sglang_prefills_in_steps_of_their_own():
    rows = [request(0.0), request(0.001, prompt=range(4), output=[1, 2])]
    serving = Serving(arrivals="trace", prefill_chunk=2)
    line = served(rows, serving, concurrency=2, shape="sglang").plain
    assert line.steps[:, [DECODING, PREFILLING]].tolist() == [[0, 1], [0, 1], [0, 1], [2, 0], [1, 0]]


def test_prompts_reach_the_drafter_piece_by_piece():
    seen = []

    class Spy(NaiveLookup):
        def draft_batch(self, slots, out, **settings):
            seen.append({name: len(request["text"]) for name, request in self.running.items()})
            super().draft_batch(slots, out, **settings)

    rows = [request(0.0, prompt=[1], output=range(5, 20)), request(0.0005, prompt=range(7), output=[1])]
    serving = Serving(arrivals="trace", prefill_chunk=3)
    simulate(make_trace(rows), Spy(), Options(cost=CONSTANT, serving=serving, concurrency=2, max_draft=0))
    assert [step.get("1") for step in seen[:5]] == [None, 3, 6, None, None]


def test_the_earlier_turn_is_in_the_kv_cache():
    rows = [
        request(0.0, prompt=[1, 2, 3], output=[4, 5], session="a", turn=0),
        request(0.0, prompt=[1, 2, 3, 4, 9, 9], output=[1], session="a", turn=1),
        request(9.0, prompt=[1, 2, 3], output=[1], session="a", turn=2),
    ]
    line = served(rows).plain
    assert line.steps[:, COMPUTED].tolist() == [3, 1, 2, 1]
    assert line.sent.tolist() == [0, line.ended[0], 9_000_000_000]
    assert served(rows, Serving(arrivals="trace", prefix_cache=False)).plain.steps[:, COMPUTED].tolist() == [3, 1, 6, 3]


def test_a_server_under_load_answers_later_and_speculation_shortens_the_wait():
    rows = [request(0.0, prompt=[1, 2, 3, 4, 5], output=[1, 2, 3, 4, 5, 1, 2, 3, 4, 5]) for _ in range(30)]
    n_emitted = np.full(30, 9)
    numbers = {}
    for rate in (10.0, 400.0):
        serving = Serving(arrivals="poisson", rate=rate)
        found = served(rows, serving, LINEAR, concurrency=2)
        numbers[rate] = summary(found, n_emitted, serving)
    assert numbers[400.0]["plain"]["ttft_ms"]["p99"] > 5 * numbers[10.0]["plain"]["ttft_ms"]["p99"]
    loaded = numbers[400.0]
    assert loaded["speculating"]["ttft_ms"]["mean"] < loaded["plain"]["ttft_ms"]["mean"]
    assert loaded["speculating"]["tpot_ms"]["mean"] < loaded["plain"]["tpot_ms"]["mean"]
    assert loaded["speculating"]["tokens_per_second"] > 1.5 * loaded["plain"]["tokens_per_second"]
    # At a low rate both emit what is asked for.
    light = numbers[10.0]
    assert light["speculating"]["tokens_per_second"] == pytest.approx(light["plain"]["tokens_per_second"], rel=0.05)


def test_poisson_arrivals_have_the_rate_and_the_seed():
    rows = [request(0.0, prompt=[1], output=[1]) for _ in range(2000)]
    first, again, other = (
        served(rows, Serving(arrivals="poisson", rate=50.0, seed=seed), concurrency=2000).plain for seed in (0, 0, 1)
    )
    assert np.array_equal(first.sent, again.sent) and not np.array_equal(first.sent, other.sent)
    gaps = np.diff(first.sent) / 1e9
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.05) and gaps.std() == pytest.approx(1 / 50, rel=0.1)


def test_hidden_learning_counts_only_as_far_as_it_is_longer():
    charges = {"draft_us": 100.0, "accept_us": 300.0, "ingest_us": 50.0}
    rows = [request(0.0, prompt=[1, 2], output=[3, 4, 5])]
    exposed = served(rows, Serving(**charges), max_draft=0).drafting.steps
    # A millisecond each; one token learned; two prompt tokens in the first step, a request drafted for in the others.
    assert exposed[:, DURATION].tolist() == [1_400_000, 1_400_000, 1_400_000]
    hidden = served(rows, Serving(**charges, overlap=True), max_draft=0).drafting.steps
    assert hidden[:, DURATION].tolist() == [1_000_000, 1_100_000, 1_100_000]
    long = served(rows, Serving(**charges | {"accept_us": 1500.0}, overlap=True), max_draft=0).drafting.steps
    assert long[:, DURATION].tolist() == [1_000_000, 1_600_000, 1_600_000]
    assert (exposed[:, FORWARD] == 1_000_000).all()


def test_what_an_idle_time_follows_is_learned_in_it():
    rows = [request(at, prompt=[1], output=[2]) for at in (0.0, 0.001, 9.0)]
    serving = Serving(arrivals="trace", accept_us=5000.0, overlap=True)
    for line in (
        served(rows, serving).drafting,
        retimed(served(rows, Serving(arrivals="trace")).drafting, make_trace(rows), serving),
    ):
        assert line.steps[:, DURATION].tolist() == [1_000_000, 5_000_000, 1_000_000]


def test_exposed_time_of_the_cost_model_is_charged_to_drafting_alone():
    both = served([request(0.0)], Serving(), CONSTANT.with_exposed(250.0))
    assert both.drafting.steps[:, DURATION].tolist() == [1_000_000, 1_250_000, 1_250_000]
    assert both.plain.steps[:, DURATION].tolist() == [1_000_000] * 3


def test_requests_without_time_stamps_are_refused_by_name():
    with pytest.raises(TraceError, match="1 of 2 requests have no time stamp, the first is '1'; take arrivals"):
        served([request(0.0), {"prompt": [1], "output": [1]}])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"arrivals": "burst"}, "arrivals: got 'burst', allowed closed, trace, poisson"),
        ({"arrivals": "poisson"}, "rate: missing, arrivals 'poisson' needs it"),
        ({"rate": 3.0}, "rate: has no effect without 'poisson'"),
        ({"arrivals": "poisson", "rate": 0.0}, "rate: got 0.0, must be a number above 0"),
        ({"speed": 2.0}, "speed: has no effect with arrivals 'closed'"),
        ({"arrivals": "trace", "speed": -1.0}, "speed: got -1.0"),
        ({"seed": -1}, "seed: got -1"),
        ({"prefill_chunk": 0}, "prefill_chunk: got 0, allowed 1 to"),
        ({"prefill_chunk": "8"}, "prefill_chunk: got '8', must be an integer"),
        ({"prefill_chunk": True}, "prefill_chunk: got True"),
        ({"seed": 1.5}, "seed: got 1.5, must be an integer of at least 0"),
        ({"overlap": "no"}, "overlap: got 'no', allowed true and false"),
        ({"prefix_cache": 1}, "prefix_cache: got 1, allowed true and false"),
        ({"draft_us": -1.0}, "draft_us: got -1.0"),
        ({"ingest_us": float("nan")}, "ingest_us: got nan"),
        ({"accept_us": 1e13}, "accept_us: got 10000000000000.0, must be a number from 0 to 1e.12"),
        ({"draft_us": 10**400}, "draft_us: got 1000"),
    ],
)
def test_wrong_settings_are_refused_by_name(settings, message):
    with pytest.raises(ConfigError, match=message):
        Serving(**settings)


@pytest.mark.parametrize(
    ("stamps", "settings", "error", "message"),
    [
        ([0.0, 1e18], {"arrivals": "trace"}, TraceError, "sent after 1e.18 s, allowed are 1e.08 s: time stamps are"),
        ([0.0, 1.0], {"arrivals": "trace", "speed": 1e-12}, TraceError, "or take a larger speed"),
        (None, {"arrivals": "poisson", "rate": 1e-10}, ConfigError, "rate: got 1e-10, the last request .* larger one"),
        (None, {"ingest_us": 1e12}, ConfigError, "serving: the modelled clock passes"),
    ],
)
def test_a_clock_that_would_overflow_is_refused(stamps, settings, error, message):
    requests = [{"prompt": list(range(8)) * 2_000, "output": [1, 2, 3]} for _ in range(2)]
    trace = make_trace([r if stamps is None else r | {"arrival": at} for r, at in zip(requests, stamps or (0, 0))])
    with pytest.raises(error, match=message):
        simulate(trace, NaiveLookup(), Options(cost=LINEAR, serving=Serving(**settings)))


def test_a_clock_needs_step_times_and_drafting_is_charged_once():
    with pytest.raises(ConfigError, match="serving: needs step times"):
        Options(serving=Serving())
    with pytest.raises(ConfigError, match="exposed_us=5, so that drafting would count twice"):
        Options(serving=Serving(draft_us=3.0), cost=LINEAR.with_exposed(5.0))
    assert Options(serving=Serving(), cost=LINEAR).describe()["serving"]["arrivals"] == "closed"
    assert "serving" not in Options().describe()
