"""Every published figure names its kind, and the check finds one that does not."""

import ast
import json
import re

import pytest

from ngramspec.cli import main
from ngramspec.drafting.profiles import PROFILES, profile
from ngramspec.replay import write
from tests.figures import figure, unnamed_in_json, unnamed_in_markdown
from tests.naive_replay import make_trace
from tests.sources import ROOT

PAGES = [p for p in ROOT.rglob("*.md") if not any(part.startswith(".") for part in p.relative_to(ROOT).parts)]
RESULTS = sorted((ROOT / "benchmarks" / "results").glob("*.json"))
MODULES = [p for p in sorted((ROOT / "benchmarks").glob("*.py")) if '"--json"' in p.read_text()]


def name(path):
    return str(path.relative_to(ROOT))


def test_there_is_something_to_check():
    assert ROOT / "README.md" in PAGES and RESULTS and MODULES


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_figures_in_prose_and_tables_name_their_kind(path):
    unnamed = unnamed_in_markdown(path.read_text())
    assert unnamed == [], "say measured-gpu, measured-cpu, modelled or (read) in the paragraph, or above the table"


@pytest.mark.parametrize("path", RESULTS, ids=name)
def test_recorded_results_name_their_kind(path):
    assert unnamed_in_json(json.loads(path.read_text())) == []


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_benchmarks_write_a_kind(path):
    keys = {
        key.value
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Dict)
        for key in node.keys
        if isinstance(key, ast.Constant)
    }
    assert "kind" in keys


@pytest.mark.parametrize("chosen", PROFILES)
def test_step_times_that_come_with_the_package_are_read_or_modelled(chosen):
    model = profile(chosen)
    assert model.kind in ("read", "modelled"), "none was measured by this project"
    assert "not measured" in model.note


@pytest.mark.parametrize(
    "asked",
    [
        ["breakeven", "--baseline-tps", "82", "--verify-ms", "30"],
        ["breakeven", "--profile", "dense-8b-h100", "--batch", "4", "--width", "3"],
        ["replay", "t.jsonl", "--drafter", "none"],
        ["replay", "t.jsonl", "--drafter", "none", "--profile", "dense-8b-h100"],
    ],
    ids=lambda asked: " ".join(asked),
)
def test_what_commands_print_names_its_kind(asked, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(make_trace([{"prompt": [1, 2], "output": [1, 2, 3]}, {"prompt": [3], "output": [4, 5]}]), "t.jsonl")
    assert main(asked) == 0
    printed = capsys.readouterr().out
    first = printed.split("\n")[0]
    assert ("measured-cpu" if asked[0] == "replay" else "modelled") in first
    assert "--profile" not in asked or re.search("step times:? dense-8b-h100[:,] read", printed)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It gains 19 % on code.", "19 %"),
        ("It gains 19 % on code (measured-cpu).", None),
        ("A draft takes 12.5 µs, which we read.", "12.5 µs"),
        ("A draft takes 12.5 µs (read, vendor's manual).", None),
        ("It is 2.4 × as fast.", "2.4 ×"),
        ("Accept length is 3.1; an accept length of 3 was seen.", "accept length of 3"),
        ("Replay: 100,000 tokens a second.", "100,000 tokens a second"),
        ("With a 95 % interval, since version 0.5.23, 16 × 16 cells, 3.11 or newer, `12 ms` in code.", None),
        ("```\ntakes 12 ms\n```\n", None),
        ("- one thing\n- another: 3 ms\n- a third, measured-cpu", "3 ms"),
        ("| a | b |\n|---|---|\n| x | 2.50 |\n", "2.50"),
        ("| a | b |\n|---|---|\n| x | **0.014, 0.011** |\n", "**0.014, 0.011**"),
        ("Kind: modelled.\n\n| a | b |\n|---|---|\n| x | 2.50 |\n", None),
        ("Kind: modelled.\n\nMore.\n\n| a | b |\n|---|---|\n| x | 2.50 |\n", "2.50"),
        ("| a | b |\n|---|---|\n| requests | 284 |\n| version | 0.3.36 |\n| low | 1.0 means none |\n", None),
    ],
)
def test_a_figure_in_markdown_without_a_kind_is_found(text, found):
    unnamed = unnamed_in_markdown(text)
    assert len(unnamed) == (found is not None)
    assert found is None or unnamed[0].startswith(repr(found))


def test_a_table_is_no_figure_for_its_counts():
    assert figure(["| a |", "|---|", "| 12 |"]) is None


@pytest.mark.parametrize(
    ("document", "wrong"),
    [
        ({"kind": "modelled", "a": [{"b": 1}]}, []),
        ({"a": {"kind": "read", "b": 1}, "c": "text", "d": True, "machine": {"cores": 2}}, []),
        ({"a": {"kind": "read", "b": 1}, "c": 2.5}, ["$.c"]),
        ({"machine": {"kind": "measured-cpu"}, "a": [1]}, ["$.a[0]"]),
        ({"kind": "guessed", "a": 1}, ["$.kind: 'guessed'"]),
        ({"kind": "measured-cpu", "speedup": 1.2, "accept_length": 2.0}, ["$.speedup: measured-cpu"]),
        ({"kind": "measured-cpu", "x": {"kind": "modelled", "modelled_speedup": 1.2}}, []),
    ],
)
def test_a_number_in_json_without_a_kind_is_found(document, wrong):
    assert unnamed_in_json(document) == wrong
