"""Tuning: what it recommends on traffic whose best settings are known, and that the answer does not depend on how."""

import json
import math
import os
import sys
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from ngramspec.caches.sessions import SessionCache
from ngramspec.cli import main
from ngramspec.cli import tune as tune_command
from ngramspec.cli.tune import answer, notes
from ngramspec.drafting.cost import CostModel
from ngramspec.drafting.profiles import profile
from ngramspec.engines.sglang.config import SHARES, TOPOLOGIES, from_environment
from ngramspec.errors import ConfigError
from ngramspec.replay import Options, run, tune, write
from ngramspec.replay.tune import Search, Tuned
from ngramspec.replay.tune.engines import ENGINES, PLUGIN_SHARES
from ngramspec.replay.tune.objective import HELD_OUT, TUNING, Job, Score, Task, evaluate
from ngramspec.replay.tune.space import Setting, Space
from tests.naive_replay import make_trace

DENSE = profile("dense-8b-h100")

#: Settings of our drafter that are searched where a test is about something else.
FEW = {
    "orders": [(1, 2, 4, 8)], "max_match": [32], "max_hops": [8], "counted_per_token": [0.5], "topology": ["chain"],
    "capacity_tokens": [20_000], "share": ["outputs"],
}  # fmt: skip


def rows(make, n, seed=0):
    random = np.random.default_rng(seed)
    return make_trace([make(random, i) | {"session": f"s{i}"} for i in range(n)])


@pytest.fixture(scope="module")
def prose():
    """No token follows another twice, but for chance."""
    return rows(lambda random, i: {"prompt": [1, 2], "output": random.integers(3, 30_000, 40).tolist()}, 80)


@pytest.fixture(scope="module")
def copies():
    """Outputs that repeat their prompts."""

    def make(random, i):
        text = random.integers(3, 30_000, 90).tolist()
        return {"prompt": text, "output": text}

    return rows(make, 16)


@pytest.fixture(scope="module")
def edits():
    """A file in the prompt, and the file again with one line in eight changed."""

    def make(random, i):
        file = random.integers(3, 30_000, (16, 12))
        edited = file.copy()
        lines = random.random(len(file)) < 0.125
        edited[lines, 4:8] = random.integers(3, 30_000, (int(lines.sum()), 4))
        return {"prompt": file.reshape(-1).tolist(), "output": edited.reshape(-1).tolist()}

    return rows(make, 24)


@pytest.fixture(scope="module")
def mixed():
    """Pieces of a small book, in an order that chance decides."""
    book = np.random.default_rng(7).integers(3, 20, (6, 7))

    def make(random, i):
        text = book[random.integers(0, 6, 12)].reshape(-1)
        noise = random.random(len(text)) < 0.1
        return {
            "prompt": text[:20].tolist(),
            "output": np.where(noise, random.integers(3, 60, len(text)), text).tolist(),
        }

    return rows(make, 14)


@pytest.mark.parametrize(("topology", "shape"), [("chain", "vllm"), ("tree", "ideal")])
def test_prose_without_repetition_is_not_worth_drafting_for_in_large_batches(prose, topology, shape):
    asked = FEW | {"topology": [topology], "max_draft": [3, 11], "verify": ["all", "0.2"]}
    found = tune(prose, DENSE, batches=[32, 64], settings=asked, shape=shape)
    assert found.verdict == "do not enable"
    assert all(row.held_out.speedup < 1.01 for row in found.batches) and found.batches[0].filled
    assert answer(found) == [
        "Do not enable speculation at batch 32, 64: the best settings found come to at most "
        f"{max(row.held_out.interval_95[1] for row in found.batches):.3f} times the speed without it."
    ]


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_engines_of_fixed_width_lose_on_prose(prose, engine):
    width = {"sglang": "num_draft_tokens", "vllm": "num_speculative_tokens"}[engine]
    found = tune(prose, DENSE, engine=engine, batches=[32], settings={width: [4, 12]}, trials=4)
    assert found.verdict == "do not enable"
    assert found.batches[0].held_out.speedup <= 1


def test_copies_get_a_long_draft(copies):
    widths = [3, 7, 15, 31]
    found = tune(copies, DENSE, batches=[1, 4], settings=FEW | {"max_draft": widths, "verify": ["all"]})
    assert found.settings["max_draft"] == 31 and found.verdict == "enable"
    assert next(s for s in found.sensitivity if s.name == "max_draft").at_end
    assert all(row.held_out.speedup > 5 and row.held_out.interval_95[0] > 1 for row in found.batches)
    vllm = tune(copies, DENSE, engine="vllm", batches=[1], trials=8)
    assert vllm.settings["num_speculative_tokens"] >= 24
    (flag, value) = vllm.advice["flags"]
    assert flag == "--speculative-config"
    assert json.loads(value) == {"method": "ngram", **vllm.settings}


def test_code_edits_get_a_long_chain(edits):
    asked = {name: values for name, values in FEW.items() if name != "topology"}
    asked |= {"max_draft": [3, 7, 15, 31, 63], "verify": ["all", "0.3"]}
    found = tune(edits, DENSE, shape="vllm", batches=[1, 8], settings=asked, trials=100)
    assert found.verdict == "enable"
    assert found.advice["config"]["step"]["topology"] == "chain" and found.settings["max_draft"] >= 31
    assert all(row.held_out.speedup > 4 and row.held_out.interval_95[0] > 3 for row in found.batches)


def test_drafting_that_nothing_hides_is_told_where_it_would_eat_the_gain(mixed):
    found = tune(mixed, DENSE, engine="vllm", batches=[1], settings={"num_speculative_tokens": [4]}, trials=0)
    (row,) = found.batches
    for exposed, told in ((1.005, True), (1.2, False)):
        score = replace(row.held_out, exposed_speedup=exposed)
        said = [
            line for line in notes(replace(found, batches=(replace(row, held_out=score),))) if "batch 1: only" in line
        ]
        assert len(said) == told and (not told or "the speed-up is 1.005" in said[0])


def test_memory_is_there_before_drafting_is_timed(mixed, monkeypatch):
    # Pages that come up while a short trace is replayed are most of its time, and no draft's.
    touched = []
    monkeypatch.setattr(SessionCache, "touch", lambda cache: touched.append(cache.nbytes))
    task = Task("ngramspec", "ideal", DENSE, (mixed, mixed), None, 0)
    values = {setting.name: setting.default for setting in ENGINES["ngramspec"].settings}
    assert evaluate(task, Job(values, 1, TUNING)).accept_length > 1 and touched == []
    assert evaluate(task, Job(values, 1, HELD_OUT)).drafting_us > 0 and len(touched) == 1


def test_the_answer_does_not_depend_on_workers(mixed):
    asked = {"num_speculative_tokens": [1, 2, 4, 8], "prompt_lookup_min": [1, 2, 3], "prompt_lookup_max": [1, 4]}
    one, two = (tune(mixed, DENSE, engine="vllm", batches=[1, 4], settings=asked, trials=10, n_workers=n)
                for n in (1, 2))  # fmt: skip
    assert one.batches == two.batches and one.settings == two.settings
    assert one.sensitivity == two.sensitivity and one.n_points == two.n_points and not one.whole_grid


def test_the_recommended_point_is_within_2_percent_of_the_best_of_the_grid(mixed):
    asked = FEW | {"max_draft": [1, 2, 3, 5, 7, 11, 15], "verify": ["all", "0.1", "0.3", "0.6", "cost"]}
    asked |= {"topology": ["chain", "tree"], "max_hops": [4, 8]}
    searched = tune(mixed, DENSE, batches=[4], settings=asked, trials=8)
    left_out = {name: [value] for name, value in searched.left_out.items()}
    grid = tune(mixed, DENSE, batches=[4], settings=asked | left_out, trials=140)
    assert grid.whole_grid and searched.n_points < grid.n_points / 2
    reached, best = (t.batches[0].tuning.speedup for t in (searched, grid))
    assert best > 1.2 and reached >= 0.98 * best


def test_a_speed_up_is_that_of_a_replay(mixed):
    found = tune(mixed, DENSE, engine="vllm", batches=[4], settings={"num_speculative_tokens": [2, 4]}, trials=2)
    names = {"min_n": found.settings["prompt_lookup_min"], "max_n": found.settings["prompt_lookup_max"]}
    options = Options(
        max_draft=found.settings["num_speculative_tokens"], topology="chain", shape="vllm", concurrency=4, cost=DENSE
    )
    again = run(found.task.parts[1], "vllm-ngram", options, drafter_options=names)
    score = found.batches[0].held_out
    assert math.isclose(score.speedup, again["modelled_speedup"]) and score.accept_length == again["accept_length"]
    assert list(score.interval_95) == again["modelled_speedup_interval_95"]
    ids = [set(part.ids) for part in found.task.parts]
    assert not ids[0] & ids[1] and ids[0] | ids[1] == set(mixed.ids)


def test_sensitivity_tells_what_each_value_gives(mixed):
    widths = [1, 3, 6]
    found = tune(mixed, DENSE, engine="vllm", batches=[2], settings={"num_speculative_tokens": widths}, trials=0)
    entry = next(s for s in found.sensitivity if s.name == "num_speculative_tokens")
    assert set(entry.alone) == set(widths) == set(entry.best)
    assert math.isclose(entry.alone[entry.chosen], found.batches[0].tuning.speedup)
    assert all(entry.best[w] >= entry.alone[w] for w in widths) and 0 < entry.loss < 1


def test_a_setting_without_effect_is_left_out_or_refused(mixed):
    asked = FEW | {"max_draft": [4], "verify": ["all"]}
    del asked["capacity_tokens"]
    found = tune(mixed, DENSE, batches=[1], settings=asked, trials=0)
    assert found.left_out == {"capacity_tokens": 4_000_000} and found.n_points == 1
    with pytest.raises(ConfigError, match=r"capacity_tokens changes no draft on made; leave it out"):
        tune(mixed, DENSE, batches=[1], settings=asked | {"capacity_tokens": [100_000, 200_000]}, trials=0)


def test_a_study_in_a_database_is_joined(mixed, tmp_path):
    asked = {"num_speculative_tokens": [1, 2, 4, 8, 12], "prompt_lookup_min": [1, 2, 3], "prompt_lookup_max": [1, 4]}
    settings = {"engine": "vllm", "batches": [2], "settings": asked, "storage": f"sqlite:///{tmp_path / 'tune.db'}"}
    first = tune(mixed, DENSE, trials=4, **settings)
    replayed = []
    second = tune(mixed, DENSE, trials=4, on_progress=lambda what, done, total: replayed.append(what), **settings)
    assert second.n_points >= first.n_points
    # All that the first one tried around its best is known to the second.
    assert replayed.count("around the best") < first.n_points
    assert second.batches[0].tuning.speedup >= first.batches[0].tuning.speedup * 0.999


def test_a_ray_cluster_gives_the_same_answer(mixed):
    pytest.importorskip("ray", reason="needs ngramspec[ray]")
    asked = {"engine": "vllm", "batches": [2], "settings": {"num_speculative_tokens": [1, 4]}, "trials": 2}
    here, there = tune(mixed, DENSE, **asked), tune(mixed, DENSE, ray=True, **asked)
    assert here.batches == there.batches and here.sensitivity == there.sensitivity


def test_ray_missing_is_said(mixed, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match=r"--ray needs the package ray: pip install 'ngramspec\[ray\]'"):
        tune(mixed, DENSE, ray=True)


def test_the_search_takes_every_good_step_and_keeps_defaults_that_cost_nothing():
    """On a made-up landscape: `a` is worth 10 % a step, `b` nothing."""
    space = Space((Setting("a", (0, 1, 2, 3), 0), Setting("b", (0, 1, 2), 1)), lambda values: values["a"] < 3)

    def replay(jobs):
        for job in jobs:
            speedup = 1 + 0.1 * job.values["a"] + 0.0001 * job.values["b"]
            yield Score(speedup, None, 2.0, 3.0, 1.0, str(sorted(job.values.items())))

    from ngramspec.replay.tune.study import Study, quiet

    with quiet():
        search = Search((1,), replay)
        assert search.without_effect(space) == []
        chosen = search.run(space, Study(space, seed=0, storage=None, name="made-up"), 0)
    assert space.values(chosen) == {"a": 2, "b": 1}


def test_every_default_is_tried_and_every_setting_is_the_drafters_own():
    for engine in ENGINES.values():
        for shape in {"ideal", engine.shape} if engine.any_shape else {engine.shape}:
            space = engine.space(shape)
            values = space.values(space.base())
            assert values == {setting.name: setting.default for setting in engine.settings}
            how = engine.replay(values, shape, DENSE, 8)
            assert how.options.concurrency == 8 and how.options.shape == shape
            advice = engine.advice(values, shape, (1, 64))
            assert set(advice) <= {"config", "flags"} and advice
    flags = ENGINES["sglang"].advice({"num_draft_tokens": 8, "match_type": "PROB"}, "sglang", (64,))["flags"]
    assert flags == ["--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "8",
                     "--speculative-ngram-match-type", "PROB", "--max-running-requests", "64"]  # fmt: skip


def test_the_command_prints_the_answer_and_writes_every_number(mixed, tmp_path, capsys):
    write(mixed, tmp_path / "t.jsonl")
    out = tmp_path / "tuned.json"
    status = main([
        "tune", str(tmp_path / "t.jsonl"), "--profile", "dense-8b-h100", "--batches", "1,4", "--trials", "2",
        "--workers", "1", "--set", "max_draft=2,6", "--set", "verify=all,cost", "--set", "orders=1-2-4-8,2-4",
        "--set", "max_match=16", "--set", "max_hops=8", "--set", "counted_per_token=0.5", "--set", "topology=chain",
        "--set", "share=outputs", "--json", str(out),
    ])  # fmt: skip
    printed = capsys.readouterr().out
    assert status == 0 and "Set: {" in printed and "note: capacity_tokens changes no draft" in printed
    assert "modelled, uncalibrated" in printed and "measured-cpu" in printed
    found = json.loads(out.read_text())
    assert found["schema"] == "ngramspec.tune/1" and found["kind"] == "modelled"
    assert found["settings"]["max_match"] == 16 and found["settings"]["orders"] in ([1, 2, 4, 8], [2, 4])
    assert {row["batch"] for row in found["batches"]} == {1, 4}
    for row in found["batches"]:
        assert row["verdict"] in ("enable", "do not enable", "unsure") and row["held_out"]["interval_95"]
    assert {entry["setting"] for entry in found["sensitivity"]} == {"max_draft", "verify", "orders"}
    assert found["set"]["config"]["drafter"]["max_match"] == 16
    assert CostModel.from_points(found["cost"]["points"]).decode == DENSE.decode


def test_what_to_set_is_a_file_that_the_plugin_takes(mixed, tmp_path, capsys, monkeypatch):
    write(mixed, tmp_path / "t.jsonl")
    config = tmp_path / "ngramspec.json"
    arguments = [
        str(tmp_path / "t.jsonl"), "--profile", "dense-8b-h100", "--batches", "1,64", "--trials", "1", "--workers", "1",
        "--set", "num_draft_tokens=4,8", "--set", "max_bytes=16777216", "--set", "share=everything,nothing",
    ]  # fmt: skip
    assert main(["tune", *arguments, "--engine", "ngramspec-sglang", "-o", str(config)]) == 0
    printed = capsys.readouterr().out
    assert "--speculative-algorithm NGRAM --speculative-num-draft-tokens " in printed
    assert "--max-running-requests 64" in printed and "Set in the file that NGRAMSPEC_CONFIG names: {" in printed
    monkeypatch.setenv("NGRAMSPEC_CONFIG", str(config))
    chosen = from_environment()
    assert chosen.max_bytes == 2**24 and chosen.share in ("everything", "nothing") and chosen.topology in TOPOLOGIES
    assert set(PLUGIN_SHARES) == set(SHARES)


def test_shares_of_the_plugin_are_replayed_as_what_they_mean(mixed):
    found = {}
    for share in PLUGIN_SHARES:
        values = {"num_draft_tokens": 8, "topology": "auto", "max_bytes": 2**24, "share": share}
        how = ENGINES["ngramspec-sglang"].replay(values, "sglang", DENSE, 1)
        found[share] = run(mixed, how.drafter, how.options, drafter_options=how.drafter_options)["accept_length"]
    assert found["tenant"] == found["all users"] > found["nothing"] and found["everything"] != found["tenant"]


@pytest.mark.parametrize(("asked", "n"), [([], 3), (["--workers", "1"], 1)])
def test_the_command_uses_every_core_it_may(mixed, tmp_path, monkeypatch, asked, n):
    seen = []

    def search(*args, n_workers, **settings):
        seen.append(n_workers)
        raise ConfigError("seen")

    monkeypatch.setattr(tune_command, "search", search)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 2, 5}, raising=False)
    write(mixed, tmp_path / "t.jsonl")
    main(["tune", str(tmp_path / "t.jsonl"), "--profile", "dense-8b-h100", *asked])
    assert seen == [n]


def test_product_of_settings_is_the_grid():
    space = Space((Setting("a", (1, 2), 1), Setting("b", (1, 2, 3), 2)), lambda values: values["a"] <= values["b"])
    assert [tuple(space.values(p).values()) for p in space.points()] == [
        (a, b) for a, b in product((1, 2), (1, 2, 3)) if a <= b
    ]
    assert isinstance(Tuned, type)
