"""The command line: what it prints and writes, and that wrong input ends in one clear line."""

import json
import shlex
import subprocess
import sys

import numpy as np
import pytest

from ngramspec import __version__
from ngramspec.cli import demo as demo_command
from ngramspec.cli import main
from ngramspec.cli.app import command
from ngramspec.replay import drafters, read, write
from tests.naive_replay import NaiveLookup, make_trace

#: What a run says at least.
KEYS = {
    *("drafter", "trace", "config", "requests", "steps", "emitted_tokens", "drafted_tokens", "verified_tokens"),
    *("accepted_tokens", "accept_length", "accept_length_per_request_mean", "accept_rate", "draft_coverage"),
    *("draft_us_per_step", "accept_us_per_token", "ingest_us_per_prompt_token", "total_us_per_emitted_token"),
    *("cache_bytes", "cached_tokens", "by_category"),
}

#: Options of `ngramspec replay` that other programs rely on.
OPTIONS = [
    *("drafter", "topology", "max-draft", "min-prob", "concurrency", "share", "eos", "limit", "seed", "json"),
    *("capacity", "calibration", "report", "frontier"),
]

COMMANDS = ["replay", "demo", "breakeven", "calibrate", "trace", "trace inspect", "trace convert"]


@pytest.fixture(autouse=True)
def naive(monkeypatch):
    monkeypatch.setitem(drafters.DRAFTERS, "naive", lambda facts: NaiveLookup())


@pytest.fixture
def trace(tmp_path):
    rows = [{"prompt": [1, 2, 3, i], "output": [1, 2, 3, i, 9], "category": "copy"} for i in range(4)]
    write(make_trace(rows), tmp_path / "t.jsonl")
    return tmp_path / "t.jsonl"


def test_replay_prints_a_table_and_writes_every_number(trace, tmp_path, capsys):
    out = tmp_path / "result.json"
    status = main([
        "replay", str(trace), str(trace), "--drafter", "naive", "--topology", "chain", "--max-draft", "2",
        "--min-prob", "0.1", "--concurrency", "2", "--share", "none", "--eos", "9,8", "--limit", "3", "--seed", "5",
        "--capacity", "5000", "--calibration", "--json", str(out),
    ])  # fmt: skip
    printed = capsys.readouterr()
    assert status == 0 and "accept" in printed.out and "naive" in printed.out
    document = json.loads(out.read_text())
    assert document["schema"] == "ngramspec.replay/1" and len(document["runs"]) == 2
    run = document["runs"][0]
    assert KEYS - set(run) == set()
    assert run["requests"] == 3 and run["by_category"]["copy"]["requests"] == 3 and run["calibration"]["nodes"] > 0
    config = {
        "topology": "chain", "max_draft": 2, "min_prob": 0.1, "concurrency": 2, "share": "none", "eos_ids": [8, 9],
        "seed": 5, "capacity_tokens": 5000, "vocab_size": 256, "calibration": True, "warm_up": [], "limit": 3,
    }  # fmt: skip
    assert {name: run["config"][name] for name in config} == config
    assert "2 requests at a time" in printed.out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["replay", "none.jsonl"], "none.jsonl: cannot be read: No such file"),
        (["replay", "{trace}", "--drafter", "magic"], "--drafter: got 'magic', allowed ngramspec"),
        (["replay", "{trace}", "--drafter", "naive,naive"], "name each drafter once"),
        (["replay", "{trace}", "--eos", "1,x"], "--eos: got '1,x', allowed token ids"),
        (["replay", "{trace}", "--eos", "-1"], "--eos: got '-1', allowed token ids"),
        (["replay", "{trace}", "--topology", "bush"], "topology: got 'bush', allowed 'chain' or 'tree'"),
        (["replay", "{trace}", "--share", "some"], "share: got 'some', allowed"),
        (["replay", "{trace}", "--min-prob", "2"], "min_prob: got 2.0, allowed"),
        (["replay", "{trace}", "--max-draft", "x"], "--max-draft"),
        (["replay", "{trace}", "--concurrency", "0"], "concurrency: got 0, allowed"),
        (["replay", "{trace}", "--limit", "0"], "--limit"),
        (["replay", "{trace}", "--upper-bound"], "no effect without --warm-up"),
        (["replay", "{trace}", "--drafter", "naive", "--warm-up", "{trace}"], "4 of 4 requests"),
        (["replay", "{trace}", "--drafter", "naive", "--json", "no/such/folder.json"], "cannot be written"),
        (["replay"], "Missing argument 'TRACE...'; see ngramspec replay --help"),
        (["replay", "{trace}", "--nonsense"], "; see ngramspec replay --help"),
        (["nonsense"], "No such command 'nonsense'; see ngramspec --help"),
        (["trace", "import", "x"], "'-o'; see ngramspec trace import --help"),
        (["trace", "inspect", "none.npz"], "none.npz: cannot be read"),
        (["trace", "convert", "{trace}", "x.csv"], "allowed .jsonl"),
        (["trace", "convert", "{trace}", "{trace}"], "is a file that is read"),
    ],
)
def test_wrong_input_is_one_line_and_status_2(trace, capsys, arguments, message):
    assert main([argument.replace("{trace}", str(trace)) for argument in arguments]) == 2
    printed = capsys.readouterr()
    last = printed.err.strip().splitlines()[-1]
    assert last.startswith("error: ") and message in last
    assert "Traceback" not in printed.err and printed.err.count("error: ") == 1


def test_bad_rows_stop_or_are_left_out(trace, capsys):
    with trace.open("a") as file:
        file.write('{"prompt_ids": [1], "output_ids": ["x"]}\n')
    assert main(["replay", str(trace), "--drafter", "naive"]) == 2
    assert 'row 5, field output_ids[0]: got "x"' in capsys.readouterr().err
    assert main(["replay", str(trace), "--drafter", "naive", "--skip-bad"]) == 0
    assert "1 bad rows were left out" in capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_ends_with_an_example(command, capsys):
    assert main([*command.split(), "--help"]) == 0
    assert f"Example: ngramspec {command}" in capsys.readouterr().out.strip().splitlines()[-1]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_fills_the_width_of_the_terminal(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    assert main([*command.split(), "--help"]) == 0
    told = [line.strip() for line in capsys.readouterr().out.partition("╭")[0].splitlines() if line.strip()]
    assert len(told) > 1 and all(line.endswith(".") for line in told[1:]), told


def everything(commands=None, path=()):
    """Path and command of every command there is."""
    for name, item in (commands or command()).commands.items():
        yield (*path, name), item
        if hasattr(item, "commands"):
            yield from everything(item, (*path, name))


@pytest.mark.parametrize(("path", "item"), [pytest.param(*found, id=" ".join(found[0])) for found in everything()])
def test_every_command_ends_with_an_example_that_it_takes(path, item):
    words = shlex.split(item.epilog.removeprefix("Example: "))
    assert tuple(words[: 1 + len(path)]) == ("ngramspec", *path)
    place = command()
    for word in words[1:]:
        if not hasattr(place, "commands"):
            break
        place = place.commands[word]
    named = words.index(place.name) + 1
    place.make_context(place.name, words[named:])  # raises where an option or an argument is not its own


def test_options_of_replay_are_in_its_help(capsys):
    main(["replay", "--help"])
    printed = capsys.readouterr().out
    assert [option for option in OPTIONS if f"--{option}" not in printed] == []


def test_no_arguments_show_the_help(capsys):
    assert main([]) == 2
    assert "replay" in capsys.readouterr().out


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ngramspec {__version__}\n"


def test_inspect_describes_and_judges(trace, tmp_path, capsys):
    assert main(["trace", "inspect", str(trace), "--json", str(tmp_path / "facts.json")]) == 0
    printed = capsys.readouterr().out
    assert "ok: suits replay" in printed and "--eos 9 may be meant" in printed and "copy 4" in printed
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert facts["schema"] == "ngramspec.trace-facts/1" and facts["facts"]["output_tokens"] == 20


def test_convert_writes_the_same_trace(trace, tmp_path, capsys):
    assert main(["trace", "convert", str(trace), str(tmp_path / "t.npz")]) == 0
    assert capsys.readouterr().out.strip().endswith("t.npz: 4 requests")
    assert np.array_equal(read(tmp_path / "t.npz").output.tokens, read(trace).output.tokens)


def test_an_interrupted_write_leaves_the_old_file(trace, tmp_path, monkeypatch):
    out = tmp_path / "result.json"
    out.write_text("old")
    monkeypatch.setattr("ngramspec.replay.results.json.dumps", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt))
    assert main(["replay", str(trace), "--drafter", "naive", "--json", str(out)]) == 130
    assert out.read_text() == "old" and sorted(p.name for p in tmp_path.iterdir()) == ["result.json", "t.jsonl"]


def test_demo_replays_the_sample_and_advises(trace, monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(demo_command, "sample", lambda: read(trace))
    monkeypatch.setattr(demo_command, "DRAFTERS", ["naive"])
    assert main(["demo", "--json", str(tmp_path / "demo.json")]) == 0
    printed = capsys.readouterr().out
    assert "naive emits 4.00 tokens a verify step" in printed and "75 % fewer steps" in printed
    assert len(json.loads((tmp_path / "demo.json").read_text())["runs"]) == 1


def made_run(length, interval, categories=()):
    return {
        "drafter": "d", "accept_length": length, "accept_length_interval_95": interval, "verified_tokens": 120,
        "steps": 10, "draft_us_per_step": 3.0,
        "by_category": {name: {"accept_length": value} for name, value in categories},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([made_run(1.0, [1.0, 1.0])], "do not enable"),
        ([made_run(1.05, [1.0, 1.1])], "do not enable"),
        ([made_run(None, None)], "says nothing"),
        (
            [made_run(2.0, None), made_run(2.5, [2.0, 3.0])],
            "emits 2.50 tokens a verify step (95 % interval 2.00 to 3.00)",
        ),
        ([made_run(2.0, None, [("a", 1.5), ("b", 3.0)])], "Most is gained on b (3.00), least on a (1.50)"),
    ],
)
def test_advice_follows_from_the_numbers(runs, message):
    assert message in demo_command.advice(runs)


def test_python_dash_m_runs_the_same_command():
    done = subprocess.run([sys.executable, "-m", "ngramspec", "--version"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"ngramspec {__version__}\n")
