"""The C core, compiled kernels and the same kernels as plain Python: one state, one draft, byte for byte."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from ngramspec import DraftBatch, Drafter, DrafterConfig, FrozenCorpus
from ngramspec.errors import ConfigError
from ngramspec.native import VARIABLE
from ngramspec.replay import DRAFTERS, Facts, Options, simulate
from ngramspec.replay.sample import sample
from tests.kinds import KINDS, SETTINGS, make
from tests.machine import CacheMachine
from tests.native.built import NATIVE, built
from tests.scripted import elsewhere, scripted
from tests.test_cases import CASES, STEPS, Runner
from tests.twins import Twins

pytestmark = pytest.mark.native

native_caches = pytest.mark.parametrize("name", NATIVE)


@pytest.fixture(autouse=True)
def core():
    return built()


@pytest.fixture
def native(monkeypatch):
    monkeypatch.setenv(VARIABLE, "native")


@native_caches
def test_the_environment_chooses_the_engine(name, native):
    assert make(name).engine == "native"


@native_caches
def test_an_argument_outweighs_the_environment(name, native):
    kind = KINDS[name]
    assert kind.attach(kind.config(**SETTINGS), None, "numba").engine == "numba"


def test_unknown_engines_are_refused(monkeypatch):
    monkeypatch.setenv(VARIABLE, "fast")
    with pytest.raises(ConfigError, match="NGRAMSPEC_ENGINE: got 'fast', allowed 'numba', 'native'"):
        make("rolling-hash")


@native_caches
@pytest.mark.parametrize("case", STEPS)
def test_the_core_does_what_every_case_says(name, case, native):
    runner = Runner(name, CASES[case])
    for step in CASES[case]["steps"]:
        runner.take(step)
    assert runner.cache.engine == "native"
    runner.cache.check_integrity()
    runner.cache._core.check()


@native_caches
@pytest.mark.parametrize("seed", range(4))
def test_long_random_runs_end_in_the_same_state(name, seed, monkeypatch):
    compiled = scripted(name, 3_000, seed)
    monkeypatch.setenv(VARIABLE, "native")
    assert scripted(name, 3_000, seed) == compiled


@native_caches
def test_plain_python_ends_in_the_same_state(name, native):
    assert elsewhere(name, NUMBA_DISABLE_JIT="1", **{VARIABLE: "numba"}) == scripted(name)


class TwinMachine(CacheMachine):
    """Random calls on both engines at once, with every promise of the contract."""

    def __init__(self, name, roomy):
        super().__init__(name, roomy)
        kind = KINDS[name]
        self.cache = Twins([self.cache, kind.attach(self.cache.config, None, "native")])


@native_caches
@pytest.mark.parametrize("roomy", [True, False], ids=["roomy", "smallest capacity"])
def test_any_sequence_of_calls_ends_in_the_same_state(name, roomy):
    run_state_machine_as_test(
        lambda: TwinMachine(name, roomy), settings=settings(max_examples=40, stateful_step_count=40)
    )


@native_caches
@pytest.mark.parametrize("options", [Options(), Options(concurrency=8, topology="chain", min_prob=0.1)], ids=["1", "8"])
def test_a_real_trace_ends_in_the_same_state(name, options, monkeypatch):
    trace = sample()
    trace = trace.select(np.arange(len(trace.ids)) < 60)
    facts = Facts.of([trace], eos_ids=None, concurrency=options.concurrency, capacity_tokens=40_000)
    ends = []
    for engine in ("numba", "native"):
        monkeypatch.setenv(VARIABLE, engine)
        cache = DRAFTERS[name](facts)
        counts = simulate(trace, cache, options)
        ends.append((cache.digest(), counted(counts)))
        assert cache.engine == engine
    assert ends[0] == ends[1]


def counted(counts):
    """Everything that a replay counts; times apart."""
    values = {field.name: getattr(counts, field.name) for field in fields(counts)}
    return {
        name: value.tolist()
        for name, value in values.items()
        if isinstance(value, np.ndarray) and value.dtype.kind == "i"
    }


def test_deferred_learning_threads_and_corpora_end_in_the_same_state():
    config = DrafterConfig(**SETTINGS | {"max_requests": 6, "deferred": True, "draft_threads": 2})
    twins = Twins([Drafter(config, engine=engine) for engine in ("numba", "native")])
    rng = np.random.default_rng(1)
    common = {"vocab_size": config.vocab_size, "orders": config.orders, "max_match": config.max_match}
    corpora = [FrozenCorpus.build(f"c{i}", [rng.integers(0, 8, 200)], **common) for i in range(2)]
    slots = np.array([twins.begin(f"r{i}", rng.integers(0, 8, 30).tolist()) for i in range(6)], np.int32)
    for step in range(60):
        if step in (10, 20):
            twins.add_corpus(corpora[step // 20])
        if step in (40, 50):
            twins.remove_corpus(f"c{step // 50}")
        width = 200 if step == 30 else 11
        if step == 33:  # not allowed; threads must not race for it
            twins.draft_batch(slots[[0, 1, 0, 1, 2, 3]], DraftBatch.allocate(6, width), max_draft=width)
        twins.draft_batch(slots, DraftBatch.allocate(6, width), max_draft=width)
        if step % 3:
            twins.settle(slots[:4])
        lengths = rng.integers(0, 5, 6)
        if step == 35:
            lengths[2] = 500  # more than one settling takes
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        twins.accept_batch(slots, rng.integers(0, 8, int(offsets[-1])).astype(np.int32), offsets)
    twins.truncate("r2", 33)
    for i in range(6):
        twins.finish(f"r{i}")


@native_caches
def test_engines_take_turns_on_one_state(name):
    kind = KINDS[name]
    one = make(name)
    one.begin("a", [1, 2, 3, 1, 2])
    other = kind.attach(one.config, one.arena.buffer, "native")
    for step in range(20):
        slot = np.zeros(1, np.int32)
        cache = other if step % 2 else one
        cache.accept_batch(slot, np.array([step % 5, 1], np.int32), np.array([0, 2], np.int32))
    twin = make(name)
    twin.begin("a", [1, 2, 3, 1, 2])
    for step in range(20):
        twin.accept("a", [step % 5, 1])
    assert one.digest() == twin.digest() == other.digest()


@native_caches
def test_the_core_finds_nothing_wrong_with_states_of_either_engine(name):
    cache = make(name, capacity_tokens=640, max_requests=4, max_sessions=2)
    core = KINDS[name].attach(cache.config, cache.arena.buffer, "native")._core
    rng = np.random.default_rng(0)
    for step in range(300):
        request_id = f"r{step % 4}"
        if request_id in cache._rows:
            cache.draft(request_id, max_draft=5)
            cache.accept(request_id, rng.integers(0, 8, 5).tolist())
            if step % 3 == 0:
                cache.truncate(request_id, int(rng.integers(0, 20)) % 5)
            if step % 7 == 0:
                cache.finish(request_id)
        else:
            cache.begin(request_id, rng.integers(0, 8, 40).tolist(), share=("all", "outputs", "none")[step % 3])
        core.check()


@native_caches
def test_arrays_may_be_passed_again_with_other_content_with_gaps_or_read_only(name):
    """The core asks only once where an array lies; what is in it counts at every call."""
    kind, twin = KINDS[name], make(name)
    cache = kind.attach(twin.config, None, "native")
    for each in (cache, twin):
        for i in range(3):
            each.begin(f"r{i}", [i, 1, 2, 3, i, 1, 2])
    wide, slots, most = np.zeros(4, np.int32), np.zeros(2, np.int32), np.zeros(2, np.int32)
    for pair in ((0, 1), (2, 0), (1, 2), (2, 1)):
        wide[::2], slots[:], most[:] = pair, pair, (3, pair[0])
        for passed in (slots, wide[::2]):
            outs = [DraftBatch.allocate(2, 4) for _ in range(2)]
            tokens, offsets = np.array([*pair, 3], np.int32), np.array([0, 2, 3], np.int32)
            tokens.flags.writeable = offsets.flags.writeable = pair[0] == 2
            for each, out in zip((cache, twin), outs, strict=True):
                each.draft_batch(passed, out, max_draft=most)
                each.accept_batch(passed, tokens, offsets)
            assert [outs[0].row(i).tokens.tolist() for i in (0, 1)] == [outs[1].row(i).tokens.tolist() for i in (0, 1)]
            assert cache.digest() == twin.digest()
