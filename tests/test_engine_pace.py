"""Rows a request by measured step times: what is chosen, what is tried, and when speculation pauses."""

import json
import time

import numpy as np
import pytest

from ngramspec import ConfigError, EngineContractError
from ngramspec.draft import ONE_Q30, DraftBatch
from ngramspec.drafting.cost import CostModel
from ngramspec.engines.sglang.config import EngineConfig
from ngramspec.engines.sglang.pace import FIRST_PAUSE, MAX_PAUSE, RETRY_EVERY, SAMPLES, WINDOW, Frozen, Pace, chosen
from ngramspec.engines.sglang.server import Server, start_line
from tests.engine_requests import N_ROWS, FakeRequest, follow, make, rows_of
from tests.test_engine_settings import SERVER

WIDTHS = (1, 2, 4, 8)


class Machine:
    """A server whose step times are known; requests accept what `accepts` says, whatever was promised."""

    def __init__(self, ms, accepts=lambda drafted: drafted, promised=0.9, widths=WIDTHS, **settings):
        self.now, self.emitted, self.steps = 0.0, 0, 0
        self.pace = Pace(widths, lambda: self.now, **settings)
        self.ms, self.accepts, self.promised = ms, accepts, promised

    def step(self, n=1):
        out = DraftBatch.allocate(n, WIDTHS[-1] - 1)
        out.n_draft[:] = out.width
        out.path_q30[:] = (ONE_Q30 * self.promised ** np.arange(1, out.width + 1)).astype(np.int32)
        self.pace.begin(n, self.emitted)
        width = self.pace.choose(out, n)
        self.steps += 1
        self.now += self.ms(n, width) / 1000
        self.emitted += n + n * self.accepts(width - 1)
        return width

    def run(self, n_steps, n=1):
        return [self.step(n) for _ in range(n_steps)]

    def settled(self, n=1):
        self.run(100, n)
        return max(set(found := self.run(50, n)), key=found.count)


@pytest.mark.parametrize(
    ("ms", "width"),
    [
        (lambda n, width: 10.0, 8),  # rows cost nothing
        (lambda n, width: 10.0 * width, 1),  # each costs as much as a step
        (lambda n, width: 10.0 + (30.0 if width > 4 else 0.0), 4),  # a step in the curve
    ],
)
def test_the_width_is_the_one_that_emits_most_a_second(ms, width):
    assert Machine(ms, accepts=lambda drafted: 0.8 * drafted).settled() == width


def test_larger_batches_have_times_of_their_own():
    machine = Machine(lambda n, width: 10.0 if n == 1 else 10.0 * width, accepts=lambda drafted: 0.8 * drafted)
    assert machine.settled(1) == 8
    assert machine.settled(4) == 1
    assert machine.settled(1) == 8


def test_every_width_is_measured_first_and_now_and_then_again():
    machine = Machine(lambda n, width: 10.0)
    assert {width: found.count(width) >= SAMPLES for found in [machine.run(60)] for width in WIDTHS} == dict.fromkeys(
        WIDTHS, True
    )
    later = machine.run(5 * RETRY_EVERY)
    assert 3 <= len([width for width in later if width != 8]) <= 8


def test_times_that_change_change_the_choice():
    machine = Machine(lambda n, width: 10.0 * width, accepts=lambda drafted: 0.8 * drafted)
    assert machine.settled() == 1
    machine.ms = lambda n, width: 10.0
    machine.run(6 * RETRY_EVERY)
    assert machine.settled() == 8


def test_time_between_steps_that_something_else_took_is_not_theirs():
    machine = Machine(lambda n, width: 10.0)
    for _ in range(200):
        machine.step()
        machine.now += 5.0
        machine.pace.interrupt()
    assert np.isnan(machine.pace.ms).all()


def test_one_slow_step_counts_as_a_few():
    machine = Machine(lambda n, width: 10.0)
    machine.settled()
    machine.ms = lambda n, width: 10_000.0
    machine.step()
    machine.ms = lambda n, width: 10.0
    machine.step()
    assert np.nanmax(machine.pace.ms) < 20


def test_speculation_that_does_not_pay_pauses_is_retried_and_pauses_longer(caplog):
    # Promised to accept nearly all, accepts nothing: without the guard the widest would always be chosen.
    machine = Machine(lambda n, width: 10.0 + width, accepts=lambda drafted: 0, promised=0.99)
    found = machine.run(4000)
    assert machine.pace.pauses >= 2
    longest = max(len(run) for run in "".join("." if w == 1 else "#" for w in found).split("#"))
    assert longest >= 2 * FIRST_PAUSE - 1
    assert found.count(1) > 0.6 * len(found)
    said = [record for record in caplog.records if "plain decoding would have" in record.getMessage()]
    assert 1 <= len(said) <= 1 + machine.now // 60


def test_speculation_that_pays_goes_on():
    machine = Machine(lambda n, width: 10.0 + width, accepts=lambda drafted: 0.5 * drafted)
    machine.run(10 * WINDOW)
    assert machine.pace.pauses == 0


def test_a_fixed_width_is_left_for_plain_steps_that_measure_alone():
    machine = Machine(lambda n, width: 10.0, widths=(1, 8), fixed=True)
    machine.run(20)
    found = machine.run(4 * RETRY_EVERY)
    assert set(found) == {1, 8} and found.count(1) == 4 and machine.pace.pauses == 0


def test_a_fixed_width_that_does_not_pay_pauses_and_is_tried_again(caplog):
    machine = Machine(lambda n, width: 10.0 * width, accepts=lambda drafted: 0.5 * drafted, widths=(1, 8), fixed=True)
    found = machine.run(2000)
    assert machine.pace.pauses >= 2 and found.count(1) > 0.6 * len(found) and 8 in found[-1000:]
    assert "plain decoding for" in caplog.text
    machine.ms = lambda n, width: 10.0
    machine.run(2 * MAX_PAUSE)
    assert machine.settled() == 8


def test_where_no_step_may_be_plain_the_log_advises_by_the_cost_model(caplog):
    cost = CostModel.from_linear(base_ms=5.0, per_token_ms=5.0)
    machine = Machine(lambda n, width: 10.0 * width, accepts=lambda drafted: 0, widths=(8,), fixed=True, cost=cost)
    assert set(machine.run(3 * WINDOW)) == {8} and machine.pace.pauses == 0 and not machine.pace.paused
    assert "speculation emitted 0.12 of what plain decoding would have" in caplog.text
    assert "this server cannot pause cheaply" in caplog.text
    caplog.clear()
    machine = Machine(lambda n, width: 10.0, widths=(8,), fixed=True, cost=cost)
    machine.run(3 * WINDOW)
    assert caplog.text == ""


def test_times_from_a_file_are_believed_until_measured_ones_differ():
    cost = CostModel.from_linear(base_ms=0.1, per_token_ms=10.0)
    machine = Machine(lambda n, width: 10.0 * width, accepts=lambda drafted: 0.8 * drafted, cost=cost)
    assert set(machine.run(RETRY_EVERY // 2)) == {1}  # nothing had to be tried first
    machine.ms = lambda n, width: 10.0
    machine.run(8 * RETRY_EVERY)
    assert machine.settled() == 8


@pytest.mark.parametrize("per_token_ms", [0.01, 2.0, 100.0])
def test_frozen_times_choose_what_emits_most_a_second_and_no_clock_is_read(per_token_ms, monkeypatch):
    monkeypatch.setattr(time, "perf_counter", lambda: 1 / 0)
    cost = CostModel.from_linear(base_ms=10.0, per_token_ms=per_token_ms)
    pace = Frozen(WIDTHS, cost)
    for n in (1, 3):
        out = DraftBatch.allocate(n, WIDTHS[-1] - 1)
        out.n_draft[:] = out.width
        out.path_q30[:] = (ONE_Q30 * 0.7 ** np.arange(1, out.width + 1)).astype(np.int32)
        pace.begin(n, 0)
        width = pace.choose(out, n)
        pace.interrupt()
        speed = {w: (1 + sum(0.7**k for k in range(1, w))) / cost.step_ms(n * w, n) for w in WIDTHS}
        assert width == max(speed, key=speed.get) and (out.n_draft <= width - 1).all()


def test_frozen_times_that_depend_on_the_cache_are_asked_for_what_it_holds(tmp_path):
    path = tmp_path / "cost.json"
    # With an empty cache rows are free; a full one makes each as dear as a step.
    points = [{"batch": 1, "n_tokens": t, "kv_tokens": kv, "ms": 10.0 * (t if kv else 1)}
              for t in (1, 2, N_ROWS) for kv in (0, 100)]  # fmt: skip
    path.write_text(json.dumps({"points": points}))
    drafts = make(widths=(1, 2, N_ROWS), width="cost", cost=str(path))
    request, seen = FakeRequest("a", [1, 2, 3] * 4), []
    drafts.prefilled([request])
    for _ in range(40):
        request.output_ids += [1, 2, 3]
        seen.append(drafts.rows([request]).n_rows)
        drafts.decoded([request])
    assert drafts.guard.failures == 0 and seen[0] == N_ROWS and seen[-1] < N_ROWS
    assert seen == sorted(seen, reverse=True)


def test_what_chooses_rows_is_what_was_asked_for():
    cost = CostModel.from_linear(base_ms=5.0, per_token_ms=5.0)
    assert chosen("fixed", "off", (), 12, cost) is None and chosen("fixed", "auto", (), 12, None) is None
    assert chosen("fixed", "auto", (), 12, cost).widths == [12]
    assert isinstance(chosen("cost", "auto", (1, 12), 12, cost), Frozen)
    assert chosen("measured", "auto", (1, 6, 12), 12, None).widths == [1, 6, 12]


def test_served_rows_are_as_many_as_were_chosen_and_the_text_is_right(monkeypatch):
    cycle = [*range(10, 30), 5, *range(10, 24)]
    turn = iter([1, 6, 3, 2] * 50)
    monkeypatch.setattr(Pace, "choose", lambda self, out, n: next(turn))
    drafts = make(widths=(1, 2, 3, N_ROWS))
    request = FakeRequest("a", [1, 2, *cycle])
    lengths = follow(drafts, request, cycle)
    assert request.output_ids == cycle and max(lengths) > 3
    assert all(length <= width for length, width in zip(lengths, [1, 6, 3, 2] * 50))
    assert drafts.guard.failures == 0


def test_a_failing_step_verifies_as_little_as_there_is(monkeypatch):
    drafts = make(widths=(1, N_ROWS))
    monkeypatch.setattr(Pace, "choose", lambda self, out, n: 1 / 0)
    request = FakeRequest("a", [1, 2, 3, 1])
    drafts.prefilled([request])
    request.output_ids.append(2)
    assert rows_of(drafts, request) == [[2]] and drafts.guard.failures == 1


def test_widths_of_a_server():
    server = Server(**SERVER)
    assert server.widths(EngineConfig(guard="off")) == ()
    assert server.widths(EngineConfig(width="measured")) == (1, 3, 6, 12)
    assert server.widths(EngineConfig(width="measured", widths=(4, 40))) == (1, 4, 12)
    config = EngineConfig(width="measured")
    assert "1/3/6/12 rows a request and step" in start_line(config, server.drafter(config), server)


@pytest.mark.parametrize(
    ("settings", "change", "widths"),
    [
        ({}, {}, (1, 12)),
        ({}, {"graphs": True}, ()),
        ({"capture": True}, {"graphs": True}, (1, 12)),
        ({"capture": True}, {"hybrid": True}, ()),
        ({"guard": "off"}, {}, ()),
        ({}, {"backends": ("fa3", "fa3")}, ()),
        ({}, {"hybrid": True}, ()),
    ],
)
def test_a_fixed_width_pauses_where_plain_steps_are_right_and_cheap(settings, change, widths):
    server, config = Server(**SERVER | change), EngineConfig(**settings)
    assert server.widths(config) == widths
    line = start_line(config, server.drafter(config), server)
    assert "12 rows a request and step" in line and ("(one where plain" in line) == bool(widths)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"backends": ("fa3", "fa3")}, "attention backend fa3"),
        ({"hybrid": True}, "recurrent state"),
    ],
)
def test_narrower_steps_are_refused_where_nobody_has_read_that_they_are_right(change, words):
    with pytest.raises(EngineContractError, match=words):
        Server(**SERVER | change).widths(EngineConfig(width="measured"))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"width": "narrow"}, "width: got 'narrow', allowed 'fixed', 'measured', 'cost'"),
        ({"width": "cost"}, "cost: missing, width 'cost' needs a file of step times"),
        ({"cost": 5}, "cost: got 5, allowed the path of a file"),
        ({"guard": "on"}, "guard: got 'on', allowed 'auto', 'off'"),
        ({"guard": ["off"]}, r"guard: got \['off'\]"),
        ({"capture": True, "guard": "off"}, "capture: has no effect with width 'fixed' and guard 'off'"),
        ({"capture": True, "width": "cost", "cost": "x", "widths": [4]}, "capture: takes no widths"),
        ({"widths": [4]}, "widths: has no effect with width 'fixed'"),
        ({"width": "measured", "widths": [1]}, r"widths\[0\]: got 1, allowed integers from 2"),
        ({"width": "measured", "widths": 4}, "widths: got 4, allowed a list"),
    ],
)
def test_wrong_settings_name_what_is_allowed(settings, words):
    with pytest.raises(ConfigError, match=words):
        EngineConfig.from_dict(settings)
