"""Graphs of narrower steps with a runner that only remembers: what holds while they are built, and what is left."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from ngramspec import ConfigError
from ngramspec.engines.sglang.config import EngineConfig
from ngramspec.engines.sglang.server import Server
from ngramspec.engines.sglang.states import State, States
from tests.engine_requests import make
from tests.test_engine_settings import SERVER


class Engine:
    """A model runner and the settings that its parts read when they are built."""

    def __init__(self):
        self.width = 12
        self.runner = SimpleNamespace(attn_backend="attention of 12", decode_cuda_graph_runner="graphs of 12")

    @contextmanager
    def settings(self, width):
        before, self.width = self.width, width
        try:
            yield
        finally:
            self.width = before

    def make(self, width):
        self.runner.attn_backend = "half-built"  # as capturing does, for its own time
        return State(f"attention of {self.width}", f"graphs of {self.width}")

    def fail(self, width):
        self.runner.attn_backend = "half-built"
        raise MemoryError("out of memory")

    @property
    def active(self):
        return self.runner.attn_backend, self.runner.decode_cuda_graph_runner


FULL, ONE = ("attention of 12", "graphs of 12"), ("attention of 1", "graphs of 1")


def built():
    engine = Engine()
    states = States(engine.runner, 12)
    assert states.build(1, engine.settings, engine.make)
    return engine, states


def test_settings_say_the_width_while_its_graphs_are_built_and_are_restored():
    engine, states = built()
    assert states.widths == (1, 12) and engine.width == 12 and engine.active == FULL
    with states.using(1):
        assert engine.active == ONE
    assert engine.active == FULL


def test_a_failed_build_leaves_the_servers_width_alone(caplog):
    engine = Engine()
    states = States(engine.runner, 12)
    assert not states.build(1, engine.settings, engine.fail)
    assert states.widths == (12,) and engine.width == 12 and engine.active == FULL
    assert "no graphs for 1 row(s) a request, every step verifies 12: out of memory" in caplog.text
    with states.using(12):
        assert engine.active == FULL


def test_a_pair_that_another_rank_lacks_is_dropped():
    _, states = built()
    states.drop(1)
    assert states.widths == (12,)


def test_steps_switch_and_a_failing_step_switches_back():
    engine, states = built()
    for width, active in ((12, FULL), (1, ONE), (1, ONE), (12, FULL)):
        with states.using(width):
            assert engine.active == active
        assert engine.active == FULL
    with pytest.raises(ZeroDivisionError), states.using(1):
        raise ZeroDivisionError
    assert engine.active == FULL


def test_without_graphs_of_its_own_no_step_is_narrower():
    drafts = make(widths=(1, 6))
    drafts.fix_width()
    assert drafts.pace is None


@pytest.mark.parametrize("backend", ["fa3", "triton"])
def test_with_graphs_of_its_own_any_backend_takes_one_row(backend):
    config = EngineConfig(width="measured", capture=True)
    assert Server(**SERVER | {"backends": (backend, backend)}).widths(config) == (1, 12)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"capture": True, "width": "measured", "widths": [4]}, "capture: takes no widths"),
        ({"capture": 1, "width": "measured"}, "capture: got 1, allowed true and false"),
    ],
)
def test_wrong_settings_name_what_is_allowed(settings, words):
    with pytest.raises(ConfigError, match=words):
        EngineConfig.from_dict(settings)
