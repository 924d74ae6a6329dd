"""The benchmarks against rivals: they serve what they say, count what was right, and publish what they found."""

import json
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import drafters, expected, frontier, page, plots, run, serve, svg, targets, workloads
from benchmarks.rivals.base import Variant, accepted, chain
from ngramspec.replay.sample import sample
from tests.naive_replay import make_trace
from tests.sources import ROOT


class Parrot:
    """Drafts what the record holds, all of it or up to a fault."""

    def __init__(self, outputs, right):
        self.outputs, self.right, self.texts, self.calls = outputs, right, {}, []

    def hold(self, request, prompt):
        self.texts[request] = []

    def append(self, requests, emitted):
        for request, tokens in zip(requests, emitted):
            self.texts[request] += tokens

    def ingest(self, request, prompt):
        self.calls.append(("ingest", request))

    def propose(self, requests):
        self.calls.append(("propose", tuple(requests)))
        return list(requests)

    def learn(self, requests, emitted):
        self.calls.append(("learn", tuple(map(tuple, emitted))))

    def finish(self, request):
        self.calls.append(("finish", request, self.texts.pop(request)))

    def read(self, proposed):
        found = []
        for request in proposed:
            rest = self.outputs[int(request)][len(self.texts[request]) :]
            found.append(chain([*rest[: self.right], -5]))
        return found


@pytest.fixture
def small():
    rows = [{"prompt": list(range(1, 20)), "output": list(range(30 + i, 38 + i))} for i in range(3)]
    return workloads.batches("small", make_trace([*rows, {"prompt": [1], "output": [2, 3]}]), (1, 2, 8))


def test_a_workload_leaves_out_what_is_short_and_batches_that_it_cannot_fill(small):
    assert [(w.name, w.batch, len(w.requests)) for w in small] == [("small, batch 1", 1, 3), ("small, batch 2", 2, 3)]
    assert small[0].digest != small[1].digest
    assert all(one.prompt.dtype == np.int32 and one.prompt.flags.writeable for one in small[0].requests)


def test_all_drafters_are_shown_the_same_texts_whatever_they_draft(small):
    outputs = [one.output for one in small[1].requests]
    good, bad = Parrot(outputs, 8), Parrot(outputs, 0)
    costs = [serve.serve(one, small[1]) for one in (good, bad)]
    assert good.calls == bad.calls
    assert ("finish", "0", outputs[0]) in good.calls
    assert costs[0].n_steps == costs[1].n_steps == 8  # two of three requests, of 8 tokens: one from prefill, two a step
    assert (costs[0].n_accepted, costs[1].n_accepted) == (2 * (7 + 5 + 3 + 1), 0)
    told = costs[0].describe()
    assert told["step_us"] == pytest.approx(told["draft_us"] + told["learn_us"])
    assert told["whole_us"] > told["step_us"]


def test_ours_serve_a_workload_behind_the_calls_of_rivals(small):
    costs = serve.serve(drafters.build("rolling-hash"), small[0])
    assert costs.n_prompt == 57 and costs.n_steps == 12 and 0 < costs.n_accepted <= costs.n_drafted


def test_accepted_follows_the_record_through_a_tree():
    assert accepted(([5, 6, 7, 8], [-1, -1, 1, 2]), [6, 7, 9]) == 2
    assert accepted(([5, 6], [-1, 0]), []) == 0


def test_a_context_is_filled_up_from_the_front():
    workload = workloads.context(1024, 2)
    assert [len(one.prompt) for one in workload.requests] == [1024, 1024]
    assert not np.array_equal(workload.requests[0].prompt[:100], workload.requests[0].prompt[100:200])


def test_a_wrong_count_ends_the_program_and_names_what_differs(tmp_path, capsys):
    file = tmp_path / "expected.json"
    first = expected.Expectations(file)
    first.count("w", "d1", "ngramspec", 7)
    first.close(record=True)
    same = expected.Expectations(file)
    same.count("w", "d1", "ngramspec", 7)
    same.close(record=False)
    assert capsys.readouterr().out == ""
    wrong = expected.Expectations(file)
    wrong.count("w", "d1", "ngramspec", 8)
    wrong.count("w", "d1", "other", 1)
    with pytest.raises(SystemExit, match="w, ngramspec: 8 accepted tokens, expected 7"):
        wrong.close(record=False)
    assert "no expectation for w, other" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="7 accepted tokens, then 9"):
        same.count("w", "d1", "ngramspec", 9)


def test_every_recorded_cost_is_checked_against_an_expectation():
    for name in ("cost", "contexts", "cached"):
        recorded = json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())
        assert recorded["unchecked"] == [], name


def test_what_is_published_is_of_the_present_drafts():
    workload = next(w for w in workloads.batches("sample", sample("test"), (32,)))
    recorded = json.loads(expected.FILE.read_text())[workload.digest]["accepted"]
    for name in ("ngramspec", "rolling-hash", "suffix-trie"):
        found = serve.serve(drafters.build(name), workload).n_accepted
        assert found == recorded[name], f"{name} drafts otherwise now: record the benchmarks anew (--record)"


def test_a_rival_that_is_not_installed_is_missing_with_its_reason(monkeypatch):
    monkeypatch.setitem(sys.modules, "arctic_inference", None)
    monkeypatch.delitem(sys.modules, "benchmarks.rivals.arctic", raising=False)
    found, missing = drafters.present(["rolling-hash", "Arctic, depth 24"])
    assert list(found) == ["rolling-hash"]
    assert missing["Arctic, depth 24"].startswith("ModuleNotFoundError: ") and "arctic_inference" in str(missing)


def test_the_best_of_settings_is_their_upper_hull_and_flat_beyond():
    points = [
        {"drafted_per_step": x, "accept_length": y} for x, y in ((2, 2.0), (3, 1.9), (4, 3.0), (6, 3.2), (5, 3.0))
    ]
    hull = frontier.best(points)
    assert hull == [(0.0, 1.0), (4, 3.0), (6, 3.2)]
    assert [frontier.at(hull, n) for n in (0, 2, 4, 5, 9)] == pytest.approx([1.0, 2.0, 3.0, 3.1, 3.2])


def test_ours_is_judged_against_the_strongest_rival():
    curves = {"ngramspec": [(0.0, 1.0), (30.0, 4.0)], "a": [(0.0, 1.0), (2.0, 2.0)], "b": [(0.0, 1.0), (30.0, 3.0)]}
    found = frontier.judge(curves)
    assert found["2"]["strongest_rival"] == "a" and found["2"]["ratio"] == pytest.approx(1.2 / 2.0)
    assert found["24"]["strongest_rival"] == "b" and found["24"]["ratio"] > 1


@pytest.mark.parametrize("drafter", frontier.DRAFTERS)
def test_every_drafter_of_the_frontier_has_settings_that_replay(drafter):
    trace = make_trace([{"prompt": [1, 2, 3, 1, 2], "output": [3, 1, 2, 3, 1, 2]}] * 2)
    few = frontier.settings(drafter, quick=True)
    assert len(few) <= len(frontier.settings(drafter))
    assert frontier.point(trace, drafter, few[-1])["accept_length"] >= 1


def test_targets_are_met_or_not_by_their_ratio():
    costs = {"ngramspec": {"whole_us": 10.0}, "Arctic, depth 24": {"whole_us": 21.0}, "SGLang": {"whole_us": 99.0}}
    memory = {"ngramspec": {"resident_bytes_per_token": 60}, "Arctic, depth 24": {"resident_bytes_per_token": 130}}
    at = {str(n): {"accept_length": {"ngramspec": 2.0, "a": 1.9}, "strongest_rival": "a", "ratio": 2 / 1.9}
          for n in frontier.NODES}  # fmt: skip
    found = targets.targets(
        {
            "cost": {"batches": {"sample, batch 32": costs}},
            "cached": {"cached": {targets.CACHED: memory}},
            "frontier": {"traces": {"sample": {"at": at}}},
        }
    )
    assert [t.met for t in found] == [True, False, True, True, True, True, True]
    assert targets.targets({}) == [] and targets.targets({"cost": {"batches": {}}}) == []


def test_the_page_and_its_plots_are_what_the_results_make():
    folder = ROOT / "benchmarks"
    results = page.read(folder / "results")
    assert {"cost", "contexts", "cached", "startup", "frontier"} <= set(results)
    assert (folder / "README.md").read_text() == page.page(results), "run python -m benchmarks.page"
    drawn = plots.plots(results)
    assert set(drawn) == set(plots.PLOTS) == {path.stem for path in (folder / "plots").iterdir()}
    for name, drawing in drawn.items():
        assert (folder / "plots" / f"{name}.svg").read_text() == drawing, "run python -m benchmarks.page"


def test_a_page_of_few_results_names_no_plot_that_there_is_not():
    text = page.page({})
    assert text.startswith("# Benchmarks") and "plots/" not in text


def test_a_chart_holds_every_point_within_its_frame():
    lines = [svg.Line("a", [(1, 2.0), (10, 20.0)], True), svg.Line("b <c>", [(1, 0.5), (100, 900.0)])]
    drawn = svg.chart(
        "t", svg.Axis("x", [1, 10, 100], log=True), svg.Axis("y", svg.decades([0.5, 900.0]), log=True), lines
    )
    assert drawn.count("<circle") == 4 and "b &lt;c&gt;" in drawn
    assert svg.decades([0.5, 900.0]) == [0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
    assert [svg.short(v) for v in (0.5, 20, 131_072, 10_000_000)] == ["0.5", "20", "131,072", "10M"]


def test_the_runner_knows_every_benchmark_and_its_short_form():
    names = run.modules()
    assert names[: len(run.FIRST)] == list(run.FIRST)
    assert {"accuracy", "ablation", "parity", "replay", "steps", "tuning"} <= set(names) and "run" not in names
    assert run.arguments("cost", quick=True) == ["--quick"] and run.arguments("cost", quick=False) == []
    assert run.arguments("parity", quick=True) == run.QUICK["parity"]
    assert run.arguments("ablation", quick=True) is None
    assert set(run.QUICK) <= set(names)
    assert "-m benchmarks.run" in (ROOT / "Makefile").read_text()


def test_a_benchmark_that_fails_is_told_of_and_the_others_run_on(tmp_path, monkeypatch, capsys):
    ran = []

    def pretend(command, **_):
        ran.append(command[2])
        return subprocess.CompletedProcess(command, int(command[2] == "benchmarks.steps"))

    monkeypatch.setattr(run.subprocess, "run", pretend)
    monkeypatch.setattr("sys.argv", ["run", "--quick", "--only", "steps", "--only", "replay", "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"failed: steps \(exit 1\)"):
        run.main()
    assert ran == ["benchmarks.steps", "benchmarks.replay", "benchmarks.page"]
    assert "[2 of 2" in capsys.readouterr().out


def test_a_variant_may_be_overridden():
    built = drafters.build("ngramspec", capacity_tokens=20_000)
    assert built.cache.config.capacity_tokens == 20_000
    assert drafters.DRAFTERS["ngramspec"].variant == Variant({}, "tree", 11)
