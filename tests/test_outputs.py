"""What commands write: refused before the work where it cannot be, and devices, pipes and inputs stay what they are."""

import gzip
import os
import stat
import subprocess
import sys
import threading

import pytest

from ngramspec import FrozenCorpus
from ngramspec.cli import demo as demo_command
from ngramspec.cli import main
from ngramspec.replay import read, write
from ngramspec.replay.results import write_json
from tests.naive_replay import make_trace
from tests.sources import ROOT

#: Every option that names a file to write, with inputs that are not there: the output is looked at first.
OUTPUTS = {
    "replay --json": "replay none.jsonl --json OUT",
    "replay --report": "replay none.jsonl --report OUT",
    "demo --json": "demo --json OUT",
    "demo --report": "demo --report OUT",
    "breakeven --json": "breakeven --cost none.csv --json OUT",
    "calibrate -o": "calibrate --url http://127.0.0.1:9 -o OUT.json",
    "tune -o": "tune none.jsonl --profile dense-8b-h100 -o OUT",
    "tune --json": "tune none.jsonl --profile dense-8b-h100 --json OUT",
    "native prior": "native prior OUT",
    "corpus build -o": "corpus build FILE --from ids --vocab-size 9 -o OUT",
    "corpus info --json": "corpus info none.ngs --json OUT",
    "snapshot inspect --json": "snapshot inspect none.ngs --json OUT",
    "trace inspect --json": "trace inspect none.jsonl --json OUT",
    "trace convert": "trace convert none.jsonl OUT.npz",
    "trace import -o": "trace import none.log -o OUT.npz",
    "trace split -o A": "trace split none.jsonl -o OUT.npz other.npz",
    "trace split -o B": "trace split none.jsonl -o other.npz OUT.npz",
    "trace scrub -o": "trace scrub none.jsonl -o OUT.npz",
}


@pytest.fixture
def trace(tmp_path):
    write(make_trace([{"prompt": [1, 2, 3, i], "output": [1, 2, 3, i, 9]} for i in range(4)]), tmp_path / "t.jsonl")
    return tmp_path / "t.jsonl"


def linked(tmp_path, device, name="linked"):
    """A link to a device: were it replaced, this machine would keep its own."""
    (tmp_path / name).symlink_to(device)
    return tmp_path / name


def is_device(path):
    return path.is_symlink() and stat.S_ISCHR(os.stat(path).st_mode)


@pytest.mark.parametrize("wrong", ["folder", "long", "nowhere", "below a file"])
@pytest.mark.parametrize("case", OUTPUTS)
def test_an_output_that_cannot_be_is_refused_before_anything_is_read(case, wrong, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(demo_command, "sample", lambda: pytest.fail("the work began"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("1 2 3")
    names = {"folder": "made", "long": "x" * 300, "nowhere": "no/such/file", "below a file": "file/x"}
    why = {"folder": "Is a directory", "long": "File name too long", "nowhere": "No such file or directory"}
    asked = OUTPUTS[case].replace("FILE", "file").replace("OUT", names[wrong])
    output = next(part for part in asked.split() if part.startswith(names[wrong]))
    if wrong == "folder":
        (tmp_path / output).mkdir()
    assert main(asked.split()) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {output}: cannot be written: {why.get(wrong, 'Not a directory')}; choose another")
    assert said.count("\n") == 1
    assert {path.name for path in tmp_path.iterdir()} <= {"file", output}


WRITERS = {
    "json": ("j", "trace inspect TRACE --json OUT"),
    "report": ("r.html", "replay TRACE --report OUT"),
    "prior": ("p.bin", "native prior OUT"),
    "corpus": ("c.ngs", "corpus build TRACE --vocab-size 90 -o OUT"),
    "jsonl": ("t.jsonl", "trace convert TRACE OUT"),
    "jsonl.gz": ("t.jsonl.gz", "trace convert TRACE OUT"),
    "npz": ("t.npz", "trace convert TRACE OUT"),
    "parquet": ("t.parquet", "trace convert TRACE OUT"),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_device_takes_what_is_written_and_stays_a_device(writer, trace, tmp_path, capsys):
    name, asked = WRITERS[writer]
    (tmp_path / "made").mkdir()
    null, full = linked(tmp_path / "made", "/dev/null", "0" + name), linked(tmp_path / "made", "/dev/full", name)
    assert main(asked.replace("TRACE", str(trace)).replace("OUT", str(null)).split()) == 0
    capsys.readouterr()
    assert main(asked.replace("TRACE", str(trace)).replace("OUT", str(full)).split()) == 2
    said = capsys.readouterr().err
    assert f"{full}: cannot be written: No space left on device" in said and said.count("\n") == 1
    assert is_device(null) and is_device(full) and len(list((tmp_path / "made").iterdir())) == 2


@pytest.mark.parametrize("writer", ["corpus", "jsonl.gz", "npz", "parquet"])
def test_a_pipe_takes_the_same_bytes_as_a_file(writer, trace, tmp_path):
    name, asked = WRITERS[writer]
    (tmp_path / "file").mkdir()
    file, pipe, got = tmp_path / "file" / name, tmp_path / f"pipe{name}", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()), daemon=True)
    reader.start()
    for out in (file, pipe):
        assert main(asked.replace("TRACE", str(trace)).replace("OUT", str(out)).split()) == 0
    reader.join(timeout=60)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    file.write_bytes(got[0])
    if writer == "corpus":
        assert next(iter(FrozenCorpus.load(file).documents())).tolist() == [1, 2, 3, 0, 9]
    else:
        assert read(file).output.tokens.tolist() == read(trace).output.tokens.tolist()


@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_standard_output_has_the_table_and_the_numbers_one_after_the_other(kind, tmp_path):
    asked = ["breakeven", "--baseline-tps", "82", "--verify-ms", "30", "--json", "/dev/stdout"]
    with (tmp_path / "out").open("wb") as out:
        to = out if kind == "file" else subprocess.PIPE
        done = subprocess.run([sys.executable, "-m", "ngramspec", *asked], stdout=to, stderr=subprocess.PIPE, cwd=ROOT)
    text = ((tmp_path / "out").read_bytes() if kind == "file" else done.stdout).decode()
    assert (done.returncode, done.stderr) == (0, b"")
    assert text.startswith("Speculation pays") and text.endswith("}\n") and '"schema": "ngramspec.breakeven/1"' in text


def test_a_link_to_a_file_stays_one_and_the_file_is_written(tmp_path):
    link = linked(tmp_path, tmp_path / "target")
    write_json({"a": 1}, link)
    assert link.is_symlink() and (tmp_path / "target").read_text() == '{\n "a": 1\n}\n'


def test_the_longest_name_that_a_file_may_have_can_be_written(tmp_path):
    write_json({}, tmp_path / ("é" * 127))
    assert [path.name for path in tmp_path.iterdir()] == ["é" * 127]


def test_others_may_read_results_as_the_users_mask_says(tmp_path):
    before = os.umask(0o027)
    try:
        write_json({}, tmp_path / "j")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "j").stat().st_mode) == 0o640


@pytest.mark.parametrize(
    "asked",
    [
        "trace inspect TRACE --json TRACE",
        "trace convert TRACE TRACE",
        "trace convert TRACE LINK",
        "trace import TRACE -o LINK",
        "trace scrub TRACE -o sub/../TRACE",
        "trace split TRACE -o TRACE a.npz",
        "trace split TRACE -o a.npz TRACE",
        "corpus build TRACE --vocab-size 90 -o TRACE",
        "replay TRACE --json TRACE",
        "replay TRACE --warm-up TRACE --upper-bound --report TRACE",
        "tune TRACE --profile dense-8b-h100 --json TRACE",
        "tune other.jsonl --cost cost.csv -o cost.csv",
        "breakeven --cost cost.csv --json cost.csv",
    ],
)
def test_what_is_read_is_never_written_over(asked, trace, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "cost.csv").write_text("batch,n_tokens,ms\n1,1,10\n")
    linked(tmp_path, "t.jsonl", "link.jsonl")
    before = trace.read_bytes()
    assert main(asked.replace("TRACE", "t.jsonl").replace("LINK", "link.jsonl").split()) == 2
    assert "is a file that is read; choose another name" in capsys.readouterr().err
    assert trace.read_bytes() == before and (tmp_path / "link.jsonl").is_symlink()


@pytest.mark.parametrize(
    "asked",
    [
        "replay t.jsonl --json out --report ./out",
        "demo --json out --report out",
        "tune t.jsonl --profile dense-8b-h100 --json out -o out",
        "trace split t.jsonl -o a.npz sub/../a.npz",
    ],
)
def test_two_results_do_not_go_to_one_file(asked, trace, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    assert main(asked.split()) == 2
    assert "is asked for twice; choose another name for one of them" in capsys.readouterr().err


def test_a_name_that_is_no_text_can_be_said(trace, tmp_path):
    file = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.jsonl.gz")
    asked = [sys.executable, "-m", "ngramspec", "trace", "convert", str(trace), file]
    strict = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(asked, capture_output=True, cwd=ROOT, env=strict)
    assert (done.returncode, done.stderr) == (0, b"") and b"\\udcff.jsonl.gz: 4 requests" in done.stdout
    with gzip.open(file) as written:
        assert written.read().count(b"\n") == 4
