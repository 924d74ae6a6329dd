"""Traces: what is read, what is refused and how it is said, and that every format gives the same back."""

import gzip
import io
import json
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngramspec.errors import TraceError
from ngramspec.replay import Labels, Ragged, Trace, inspect, read, write
from ngramspec.replay.inspection import remarks
from tests.naive_replay import make_trace, traces

FULL = {
    "id": "r1",
    "session": "s",
    "turn": 3,
    "timestamp": 12.5,
    "category": "chat",
    "finish_reason": "length",
    "eos_ids": [7, 9],
    "sampling": {"temperature": 0.5},
    "spec": {"accept_lengths": [2, 1]},
    "retokenised": "both",
    "prompt": "text is dropped",
    "prompt_ids": [1, -1, 2],
    "output_ids": [0, 2147483646],
}
#: A zip archive with one empty file that asks for a version of the format that is not there yet.
LATER_ZIP = (
    b"PK\x03\x04PK\x01\x02"
    + bytes([20, 0, 200, 0])
    + bytes(38)
    + b"PK\x05\x06"
    + bytes([0, 0, 0, 0, 1, 0, 1, 0, 46, 0, 0, 0])
    + bytes(6)
)
SUFFIXES = [".jsonl", ".jsonl.gz", ".npz", ".parquet"]


def lines(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def plain(trace):
    """Everything a trace holds, but its name, as plain values."""
    ragged = {
        name: [getattr(trace, name)[i].tolist() for i in range(len(trace))] for name in ("prompt", "output", "eos")
    }
    labels = ("session", "finish_reason", "category", "sampling", "spec", "retokenised")
    return ragged | {name: getattr(trace, name).tolist() for name in labels} | {
        "ids": trace.ids, "turn": trace.turn.tolist(), "arrival": np.nan_to_num(trace.arrival, nan=-1).tolist()
    }  # fmt: skip


def test_every_field_is_read(tmp_path):
    trace = read(lines(tmp_path / "t.jsonl", FULL, "", {"prompt_ids": [], "output_ids": [4]}))
    assert plain(trace) == {
        "prompt": [[1, -1, 2], []],
        "output": [[0, 2147483646], [4]],
        "eos": [[7, 9], []],
        "session": ["s", None],
        "finish_reason": ["length", None],
        "category": ["chat", None],
        "sampling": ['{"temperature":0.5}', None],
        "spec": ['{"accept_lengths":[2,1]}', None],
        "retokenised": ["both", None],
        "ids": ("r1", "1"),
        "turn": [3, -1],
        "arrival": [12.5, -1],
    }
    assert trace.name == "t.jsonl" and trace.eos_ids == (7, 9)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_formats_give_the_same_back(tmp_path, suffix):
    trace = read(lines(tmp_path / "t.jsonl", FULL, {"prompt_ids": [], "output_ids": []}, {**FULL, "session": 5}))
    write(trace, tmp_path / f"copy{suffix}")
    copy = read(tmp_path / f"copy{suffix}")
    assert plain(copy) == plain(trace)
    assert copy.prompt.tokens.dtype == np.int32 and copy.prompt.offsets.dtype == np.int64
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"copy{suffix}", "t.jsonl"]


@given(traces, st.sampled_from(SUFFIXES))
def test_any_trace_comes_back(tmp_path_factory, trace, suffix):
    path = tmp_path_factory.mktemp("t") / f"t{suffix}"
    write(trace, path)
    assert plain(read(path)) == plain(trace)


def test_gzip_carries_no_time(tmp_path):
    write(make_trace([{"prompt": [1], "output": [2]}]), tmp_path / "t.jsonl.gz")
    assert (tmp_path / "t.jsonl.gz").read_bytes()[4:8] == bytes(4)


def test_content_decides_not_the_suffix(tmp_path):
    path = tmp_path / "trace.txt"
    path.write_bytes(gzip.compress(b'\xef\xbb\xbf{"prompt_ids": [1], "output_ids": [2]}\r\n'))
    assert plain(read(path))["output"] == [[2]]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({**FULL, "output_ids": [1, -5]}, r"row 2, field output_ids\[1\]: got -5, allowed .* from 0"),
        ({**FULL, "output_ids": [1, 2**31 - 1]}, r"field output_ids\[1\]: got 2147483647, allowed .* 2147483646"),
        ({**FULL, "output_ids": [10**30]}, r"field output_ids\[0\]: got 1"),
        ({**FULL, "prompt_ids": [1.5]}, r"field prompt_ids\[0\]: got 1.5, allowed"),
        ({**FULL, "prompt_ids": [True]}, r"field prompt_ids\[0\]: got true, allowed"),
        ({**FULL, "prompt_ids": "words"}, r'field prompt_ids: got "words", allowed a list of integers'),
        ({**FULL, "output_ids": None}, r"field output_ids: got null, allowed a list"),
        ({**FULL, "turn": -1}, r"field turn: got -1, allowed an integer from 0"),
        ({**FULL, "timestamp": "noon"}, r'field timestamp: got "noon", allowed a number of seconds'),
        ({**FULL, "session": [1]}, r"field session: got \[1\], allowed a string"),
        ({**FULL, "finish_reason": {"type": "stop"}}, r'field finish_reason: got \{"type":"stop"\}'),
        ({**FULL, "retokenised": True}, r"field retokenised: got true, allowed one of prompt, output, both"),
        ({**FULL, "eos_ids": [-2]}, r"field eos_ids\[0\]: got -2"),
        ({"prompt_ids": [1]}, r"row 2: field output_ids is missing"),
        ({"prompt": "a", "output": "b"}, r"row 2: field prompt_ids is missing.*ngramspec trace import .*--tokenizer"),
        ({"prompt": "a", "timestamp": "noon"}, r'timestamp: got "noon", .*; ngramspec trace import makes'),
        ([1, 2], r"row 2: got \[1,2\], allowed one object"),
        ('{"prompt_ids": [1, 2', r"row 2: not JSON .*got '\{\"prompt_ids\": \[1, 2', each line"),
        ("nonsense", r"row 2: not JSON"),
        ('{"prompt_ids": [1], "output_ids": [2], "timestamp": 1e400}', r"row 2: not JSON .*out of range"),
        ('{"sampling": ' + "[" * 100_000, r"row 2: not JSON"),
        ("[" * 200_000, r"row 2: not JSON"),
    ],
)
def test_a_bad_row_is_named_with_file_row_and_field(tmp_path, row, message):
    path = lines(tmp_path / "t.jsonl", FULL, row, FULL)
    with pytest.raises(TraceError, match=message) as caught:
        read(path)
    assert str(caught.value).startswith(str(path))
    trace = read(path, skip_bad=True)
    assert (len(trace), trace.n_skipped, len(trace.skipped)) == (2, 1, 1)
    assert trace.skipped[0] == str(caught.value)


@pytest.mark.parametrize("content", [json.dumps({"messages": []}), "words of a log", json.dumps({"timestamp": "noon"})])
def test_a_file_of_another_program_is_told_how_to_become_a_trace(tmp_path, content):
    with pytest.raises(TraceError, match=r"row 1.*; ngramspec trace import makes a trace of other programs' logs"):
        read(lines(tmp_path / "server.log", content))
    with pytest.raises(TraceError, match=r"row 2: not JSON .*one object$"):  # of a trace, one row is bad
        read(lines(tmp_path / "t.jsonl", FULL, "words"))


def test_bytes_that_are_not_text(tmp_path):
    (tmp_path / "t.jsonl").write_bytes(b"\x00\xff\xfe\n")
    with pytest.raises(TraceError, match="row 1: not JSON"):
        read(tmp_path / "t.jsonl")


def test_a_cut_gzip_is_an_error_and_its_whole_rows_can_be_kept(tmp_path):
    rows = [
        {"prompt_ids": np.random.default_rng(i).integers(0, 9**9, 2000).tolist(), "output_ids": [i]} for i in range(9)
    ]
    packed = gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode())
    (tmp_path / "t.jsonl.gz").write_bytes(packed[: len(packed) * 2 // 3])
    with pytest.raises(TraceError, match=r"after row \d+: compressed data is cut off"):
        read(tmp_path / "t.jsonl.gz")
    trace = read(tmp_path / "t.jsonl.gz", skip_bad=True)
    assert 0 < len(trace) < 9 and trace.n_skipped == 1
    assert [trace.output[i].tolist() for i in range(len(trace))] == [[i] for i in range(len(trace))]


def test_damaged_gzip(tmp_path):
    packed = bytearray(gzip.compress(json.dumps(FULL).encode() * 9))
    packed[20:30] = bytes(10)
    (tmp_path / "t.gz").write_bytes(packed)
    with pytest.raises(TraceError):
        read(tmp_path / "t.gz")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.jsonl", b"", "no rows"),
        ("blank.jsonl", b"\n \n", "no rows"),
        ("t.npz", b"PK\x03\x04 nothing", "not a trace written by ngramspec"),
        ("later.npz", LATER_ZIP, "not a trace written by ngramspec"),
        ("t.parquet", b"PAR1 nothing", "not readable as Parquet"),
        ("t.zst", b"\x28\xb5\x2f\xfd", "zstd.*decompress"),
    ],
)
def test_files_that_are_no_traces(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TraceError, match=message):
        read(tmp_path / name)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(TraceError, match=r"none.jsonl: cannot be read: No such file or directory; check the path"):
        read(tmp_path / "none.jsonl")
    with pytest.raises(TraceError, match="cannot be read: Is a directory"):
        read(tmp_path)
    with pytest.raises(TraceError, match="cannot be written"):
        write(make_trace([{"prompt": [], "output": [1]}]), tmp_path / "no" / "t.npz")
    with pytest.raises(TraceError, match=r"allowed .jsonl, .jsonl.gz, .npz, .parquet"):
        write(make_trace([{"prompt": [], "output": [1]}]), tmp_path / "t.csv")


def test_all_rows_bad_says_the_first_reason(tmp_path):
    with pytest.raises(TraceError, match=r"all 2 are bad, the first: .*row 1: not JSON"):
        read(lines(tmp_path / "t.jsonl", "x", "y"), skip_bad=True)


def test_an_npz_is_never_unpickled(tmp_path):
    np.savez(tmp_path / "t.npz", meta=np.array([{"version": 1}], dtype=object))
    with pytest.raises(TraceError, match="not a trace written by ngramspec"):
        read(tmp_path / "t.npz")


def test_an_npz_that_asks_for_more_memory_than_there_is(tmp_path):
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"shape": (2**50,), "fortran_order": False, "descr": "|u1"})
    with zipfile.ZipFile(tmp_path / "t.npz", "w") as archive:
        archive.writestr("meta.npy", header.getvalue())
    with pytest.raises(TraceError, match="not a trace written by ngramspec"):
        read(tmp_path / "t.npz")


def test_parquet_columns_are_checked_like_json(tmp_path):
    import pyarrow
    import pyarrow.parquet

    table = pyarrow.table({"prompt_ids": [[1], [2]], "output_ids": [[3], [-4]]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(TraceError, match=r"row 2, field output_ids\[0\]: got -4, allowed"):
        read(tmp_path / "t.parquet")
    assert len(read(tmp_path / "t.parquet", skip_bad=True)) == 1
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a"]}), tmp_path / "u.parquet")
    with pytest.raises(TraceError, match="field prompt_ids is missing"):
        read(tmp_path / "u.parquet")


def test_traces_are_immutable():
    trace = make_trace([{"prompt": [1], "output": [2], "session": "s"}])
    for array in (trace.prompt.tokens, trace.output.offsets, trace.turn, trace.arrival, trace.session.codes):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(AttributeError):
        trace.turn = np.zeros(1, np.int32)


def test_a_trace_does_not_freeze_the_arrays_it_was_given():
    turn = np.array([-1], np.int32)
    nothing = Labels.of([None])
    Trace("t", ("0",), Ragged.of([[1]]), Ragged.of([[2]]), nothing, turn, np.array([np.nan]), nothing, nothing,
          Ragged.of([[]]), nothing, nothing)  # fmt: skip
    turn[0] = 1


@given(traces, st.data())
def test_select_and_concat(trace, data):
    rows = data.draw(st.lists(st.integers(0, len(trace) - 1), max_size=4))
    whole, part = plain(trace), plain(trace.select(rows))
    assert {name: list(values) for name, values in part.items()} == {
        name: [values[row] for row in rows] for name, values in whole.items()
    }
    both = Trace.concat([trace, trace.select(rows)])
    assert plain(both)["output"] == whole["output"] + part["output"]
    assert plain(both)["session"] == whole["session"] + part["session"]


def test_select_takes_a_mask():
    trace = make_trace([{"prompt": [i], "output": [i]} for i in range(3)])
    assert plain(trace.select(np.array([True, False, True])))["output"] == [[0], [2]]


def test_concat_of_nothing():
    with pytest.raises(TraceError, match="at least one"):
        Trace.concat([])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"turn": np.zeros(2, np.int32)}, "turn, arrival: got 2"),
        ({"turn": np.zeros(1)}, "turn: got float64 of 1 dimensions, allowed int32 of one"),
        ({"arrival": np.zeros((1, 1))}, "arrival: got float64 of 2 dimensions, allowed float64 of one"),
        ({"ids": (5,)}, "ids: got 5, allowed text"),
        ({"output": Ragged(np.array([-1], np.int32), np.array([0, 1]))}, "output: got ids from -1"),
        (
            {"output": Ragged(np.array([1], np.int64), np.array([0, 1]))},
            "output.tokens: got int64 of 1 dimensions, allowed int32 of one",
        ),
        ({"prompt": Ragged(np.array([1], np.int32), np.array([0, 2]))}, "prompt.offsets"),
        ({"retokenised": Labels.of(["all"])}, "retokenised: got 'all', allowed prompt, output, both"),
        ({"session": Labels(np.array([1], np.int32), ("a",))}, "session: needs 1 codes"),
        ({"session": Labels(np.array([0.0]), ("a",))}, "session.codes: got float64 of 1 dimensions"),
        ({"output": Ragged(np.array([1], np.int32), np.zeros((2, 1), np.int64))}, "output.offsets: got int64 of 2"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change, message):
    trace = make_trace([{"prompt": [1], "output": [2]}])
    parts = {name: getattr(trace, name) for name in trace.__dataclass_fields__}
    with pytest.raises(TraceError, match=message):
        Trace(**(parts | change))


def test_importing_replay_loads_readers_only_when_used():
    code = (
        "import sys, ngramspec.replay; print([m for m in ('msgspec', 'pyarrow', 'typer', 'rich') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_inspection_measures_repeats_and_turns():
    first = {"prompt": [1, 2, 3, 4, 5], "output": [2, 3, 4, 5, 9], "session": "s", "turn": 0}
    second = {"prompt": [1, 2, 3, 4, 5, 2, 3, 4, 5, 9], "output": [7, 7, 7, 7, 9], "session": "s", "turn": 1}
    third = {"prompt": [0], "output": [2, 3, 4, 5, 9]}
    facts = inspect(make_trace([first, second, third]))
    # Six 4-grams, two a row: the prompt has 2345 of the first; the third row repeats both of the first.
    assert facts["repeats"] == {"in_own_prompt": 1 / 6, "in_earlier_outputs": 2 / 6}
    assert facts["turn_prefix_share"] == 1.0
    assert facts["final_tokens"] == {9: 3}
    assert ("ok", "suits replay") in remarks(facts)
    assert any("--eos 9 may be meant" in text for _, text in remarks(facts))


def test_inspection_of_a_trace_without_decode_steps():
    facts = inspect(make_trace([{"prompt": [], "output": []}, {"prompt": [-1], "output": [3]}]))
    assert facts["repeats"] == {"in_own_prompt": None, "in_earlier_outputs": None}
    assert [kind for kind, _ in remarks(facts)].count("problem") == 1
    assert ("ok", "suits replay") not in remarks(facts)
    assert facts["placeholders"] == 1
