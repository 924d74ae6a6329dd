"""`ngramspec trace import`, `split` and `scrub`: what they print and write, and that their examples work."""

import json
import re
import shlex

import numpy as np
import pytest

from ngramspec.cli import main
from ngramspec.errors import ConfigError, TraceError
from ngramspec.replay import Trace, read, write
from ngramspec.replay.rows import row_dict
from ngramspec.replay.scrubbing import scrub
from ngramspec.replay.splitting import split
from tests.made_files import lines, make_tokenizer, say, sglang_lines, sglang_pair, write_dump
from tests.naive_replay import make_trace

COMMANDS = ("import", "split", "scrub")


@pytest.fixture
def log(tmp_path):
    """A request log with one bad request among three."""
    pairs = [sglang_pair("a", obj={"session_id": "s"}), sglang_pair("b", output_ids=[9]), sglang_pair("c")]
    return lines(tmp_path / "requests.log", *sglang_lines(*pairs))


def rows(trace):
    return [row_dict(trace, row) for row in range(len(trace))]


def test_import_keeps_good_rows_and_says_what_it_left_out(log, tmp_path, capsys):
    assert main(["trace", "import", str(log), "-o", str(tmp_path / "t.jsonl")]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"{tmp_path / 't.jsonl'}: 2 requests from sglang-log, 6 prompt and 6 output tokens"
    assert printed[1] == "1 left out:"
    assert printed[2].startswith("  1 × field out.output_ids: holds another number of tokens")
    assert printed[3].startswith(f"  the first: {log}, row 4, field out.output_ids: ")
    assert [row["id"] for row in rows(read(tmp_path / "t.jsonl"))] == ["a", "c"]


def test_what_was_retokenised_is_said_by_import_inspect_and_replay(tmp_path, capsys):
    make_tokenizer(tmp_path / "tokenizer")
    talk = lines(tmp_path / "c.jsonl", {"messages": say("the cat", "sat on the mat")})
    out = tmp_path / "t.npz"
    assert main(["trace", "import", str(talk), "-o", str(out), "--tokenizer", str(tmp_path / "tokenizer")]) == 0
    assert "note: 1 requests re-tokenised from text" in capsys.readouterr().out
    assert main(["trace", "inspect", str(out), "--json", str(tmp_path / "facts.json")]) == 0
    assert "note: re-tokenised from text (both of 1)" in capsys.readouterr().out
    assert json.loads((tmp_path / "facts.json").read_text())["facts"]["retokenised"] == {"both": 1}
    assert main(["replay", str(out), "--drafter", "none", "--json", str(tmp_path / "run.json")]) == 0
    assert "1 requests re-tokenised from text" in capsys.readouterr().out
    assert json.loads((tmp_path / "run.json").read_text())["runs"][0]["retokenised_rows"] == 1


def test_import_of_a_dump_with_leave(tmp_path, capsys):
    dump = write_dump(tmp_path / "d.pkl", [sglang_pair()])
    assert main(["trace", "import", str(dump), "-o", str(tmp_path / "t.jsonl")]) == 2
    assert "--allow-pickle" in capsys.readouterr().err
    assert main(["trace", "import", str(dump), "--allow-pickle", "-o", str(tmp_path / "t.jsonl")]) == 0
    assert "1 requests from sglang-dump" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["import", "{log}"], "Missing option"),
        (["import", "-o", "x.jsonl"], "Missing argument"),
        (["import", "none", "-o", "x.jsonl"], "none: cannot be read: No such file"),
        (["import", "{log}", "-o", "{log}"], "is a file that is read"),
        (["import", "{log}", "-o", "x.csv"], "got no known suffix, allowed .jsonl"),
        (["import", "{log}", "-o", "no/such/t.jsonl"], "cannot be written"),
        (["import", "{log}", "-o", "x.jsonl", "--format", "magic"], "--format: got 'magic', allowed ngramspec"),
        (["import", "{log}", "-o", "x.jsonl", "--allow-pickle"], "--allow-pickle: has no effect"),
        (["import", "{log}", "-o", "x.jsonl", "--tokenizer", "none"], "--tokenizer: none does not exist"),
        (["import", "{log}", "-o", "x.jsonl", "--format", "chat"], "no rows: all 6 are bad, the first:"),
        (["split", "{trace}", "-o", "a.npz"], "requires 2 arguments"),
        (["split", "{trace}", "-o", "a.npz", "a.npz"], "a.npz: is asked for twice"),
        (["split", "{trace}", "-o", "{trace}", "a.npz"], "is a file that is read"),
        (["split", "{trace}", "-o", "a.npz", "b.npz", "--fraction", "1"], "fraction: got 1.0, allowed between 0 and 1"),
        (["split", "{trace}", "-o", "a.npz", "b.npz", "--by", "luck"], "by: got 'luck', allowed session, time"),
        (["split", "{trace}", "-o", "a.npz", "b.npz", "--by", "time"], "3 of 3 requests have no time of arrival"),
        (["split", "{trace}", "-o", "a.npz", "b.npz", "--by", "time", "--seed", "1"], "--seed: has no effect by time"),
        (["split", "{trace}", "-o", "a.npz", "b.npz", "--seed", "-1"], "Invalid value for '--seed': "),
        (["split", "{one}", "-o", "a.npz", "b.npz"], "one part would be empty"),
        (["scrub", "{trace}", "-o", "{trace}"], "is a file that is read"),
        (["scrub", "none", "-o", "x.npz"], "none: cannot be read"),
    ],
)
def test_wrong_input_is_one_line_and_status_2(log, tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    write(make_trace([{"prompt": [i], "output": [i]} for i in range(3)]), "t.npz")
    write(make_trace([{"prompt": [1], "output": [1]}]), "one.npz")
    before = sorted(path.name for path in tmp_path.iterdir())
    places = {"{log}": str(log), "{trace}": "t.npz", "{one}": "one.npz"}
    assert main(["trace", *(places.get(argument, argument) for argument in arguments)]) == 2
    printed = capsys.readouterr()
    last = printed.err.strip().splitlines()[-1]
    assert last.startswith("error: ") and message in last and "Traceback" not in printed.err
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_help_ends_with_an_example_that_works(log, tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    assert main(["trace", command, "--help"]) == 0
    example = re.fullmatch(r"Example: (ngramspec .*)", capsys.readouterr().out.strip().splitlines()[-1].strip())[1]
    write(make_trace([{"prompt": [1, i], "output": [2, i], "session": str(i)} for i in range(4)]), "log.jsonl.gz")
    if command == "import":
        (tmp_path / "log.jsonl.gz").unlink()
    assert main(shlex.split(example)[1:]) == 0
    written = example.partition(" -o ")[2].split()
    assert written and all(len(read(tmp_path / name)) > 0 for name in written)


def test_an_interrupted_import_leaves_the_old_file(log, tmp_path, monkeypatch):
    out = tmp_path / "t.jsonl"
    out.write_text("old")
    monkeypatch.setattr("ngramspec.replay.rows.row_dict", lambda *a: (_ for _ in ()).throw(KeyboardInterrupt))
    assert main(["trace", "import", str(log), "-o", str(out)]) == 130
    assert out.read_text() == "old" and sorted(p.name for p in tmp_path.iterdir()) == ["requests.log", "t.jsonl"]


# Splitting


def sessions_trace(n=40, seed=0):
    draw = np.random.default_rng(seed)
    names = [None if draw.random() < 0.2 else f"s{draw.integers(12)}" for _ in range(n)]
    return make_trace([{"prompt": [i], "output": [i], "session": name} for i, name in enumerate(names)])


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("seed", range(5))
def test_split_by_session_tears_none_apart(fraction, seed):
    trace = sessions_trace(seed=seed)
    first, second = split(trace, fraction, seed=seed)
    assert sorted([*first.ids, *second.ids], key=int) == list(trace.ids)
    assert list(first.ids) == sorted(first.ids, key=int) and list(second.ids) == sorted(second.ids, key=int)
    assert set(first.session.names).isdisjoint(second.session.names)
    largest = max(np.bincount(trace.session.codes[trace.session.codes >= 0]))
    assert abs(len(first) - fraction * len(trace)) <= largest
    again, _ = split(trace, fraction, seed=seed)
    assert again.ids == first.ids


def test_split_by_session_depends_on_the_seed():
    parts = {split(sessions_trace(), seed=seed)[0].ids for seed in range(8)}
    assert len(parts) > 4


def test_split_by_time_puts_the_earliest_first(tmp_path, capsys):
    times = [5, 1, 4, 2, 3]
    path = lines(tmp_path / "t.jsonl", *({"prompt_ids": [t], "output_ids": [t], "timestamp": t} for t in times))
    command = ["trace", "split", str(path), "--by", "time", "--fraction", "0.4"]
    assert main([*command, "-o", str(tmp_path / "a.npz"), str(tmp_path / "b.npz")]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith("a.npz: 2 requests")
    assert read(tmp_path / "a.npz").arrival.tolist() == [1, 2]
    assert read(tmp_path / "b.npz").arrival.tolist() == [5, 4, 3]


def test_split_says_what_is_wrong():
    with pytest.raises(ConfigError, match="fraction: got 0"):
        split(sessions_trace(), 0)
    with pytest.raises(ConfigError, match="fraction: got 'half'"):
        split(sessions_trace(), "half")
    with pytest.raises(ConfigError, match="seed: got -1, must be an integer of at least 0"):
        split(sessions_trace(), seed=-1)
    with pytest.raises(TraceError, match="one part would be empty"):
        split(make_trace([{"prompt": [1], "output": [1], "session": "s"}] * 3))


# Scrubbing

SECRET = {
    "id": "alice-1",
    "session": "alice",
    "turn": 2,
    "timestamp": 5.5,
    "category": "chat",
    "finish_reason": "stop",
    "prompt": "secret words",
    "output": "secret words",
    "sampling": {
        "temperature": 0.5,
        "stop": ["secret"],
        "json_schema": "secret",
        "seeds": [1, 2],
        "deep": {"n": 1, "s": "secret"},
    },
    "spec": "secret",
    "retokenised": "both",
    "prompt_ids": [1, 2],
    "output_ids": [3, 4],
}


def test_scrub_drops_text_and_keeps_ids(tmp_path, capsys):
    path = lines(
        tmp_path / "t.jsonl",
        SECRET,
        {**SECRET, "id": "alice-2"},
        {**SECRET, "session": "bob"},
        {"prompt_ids": [], "output_ids": [9]},
    )
    out = tmp_path / "scrubbed.jsonl"
    assert main(["trace", "scrub", str(path), "-o", str(out)]) == 0
    assert "token ids are not anonymous" in capsys.readouterr().out
    assert "alice" not in out.read_text() and "secret" not in out.read_text()
    first, second, third, last = rows(read(out))
    kept = ("turn", "timestamp", "category", "finish_reason", "retokenised", "prompt_ids", "output_ids")
    assert {name: first[name] for name in kept} == {name: SECRET[name] for name in kept}
    assert first["sampling"] == {"temperature": 0.5, "seeds": [1, 2], "deep": {"n": 1}} and "spec" not in first
    assert first["session"] == second["session"] != third["session"] and "session" not in last
    assert first["id"] != second["id"] and first["id"] == third["id"]


def test_names_are_salted():
    trace = make_trace([{"prompt": [1], "output": [1], "session": "alice"}])
    drawn = {scrub(trace).session.names[0] for _ in range(3)}
    assert len(drawn) == 3
    assert scrub(trace, "\udcff").session.names != scrub(trace, "\udcfe").session.names
    with pytest.raises(ConfigError, match="salt: got 5, allowed text or None"):
        scrub(trace, 5)
    assert scrub(trace, "x").session.names == scrub(trace, "x").session.names != scrub(trace, "y").session.names


def test_scrub_forgets_what_was_said_of_bad_rows(tmp_path):
    trace = read(lines(tmp_path / "t.jsonl", SECRET, "secret"), skip_bad=True)
    assert "secret" in trace.skipped[0]
    assert (scrub(trace).skipped, scrub(trace).n_skipped) == ((), 1) and isinstance(scrub(trace), Trace)
