"""Importers: what each format becomes, what is left out and why, and that nothing in a file can do harm."""

import csv
import gzip
import json
import random

import numpy as np
import pytest

from ngramspec.errors import ConfigError, NgramSpecError, TraceError
from ngramspec.replay import importers, read, write
from ngramspec.replay.importers import IMPORTERS, Importer, load
from ngramspec.replay.rows import Row
from tests.importing import batch_input, batch_output, rendered, rows
from tests.made_files import (
    chat_response,
    lines,
    make_tokenizer,
    say,
    sglang_lines,
    sglang_pair,
    write_dump,
)

# Columns


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet"])
def test_prompt_and_response_columns(tmp_path, folder, tokens, suffix):
    table = [
        {
            "id": "1",
            "prompt": 'the "cat",\nsat',
            "response": "on\tthe mat",
            "session_id": "s",
            "turn": "0",
            "timestamp": "12.5",
        },
        {"id": "2", "prompt": "the dog", "response": "", "session_id": "", "turn": "", "timestamp": ""},
    ]
    path = tmp_path / f"t.{suffix}"
    if suffix in ("csv", "tsv"):
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, table[0], dialect="excel" if suffix == "csv" else "excel-tab")
            writer.writeheader()
            writer.writerows(table)
    elif suffix == "jsonl":
        lines(path, *table)
    else:
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table), path)
    found = load([path], tokenizer=folder)
    assert found.formats == ("columns",)
    assert rows(found.trace) == [
        {
            "id": "1",
            "session": "s",
            "turn": 0,
            "timestamp": 12.5,
            "eos_ids": tokens("</s>"),
            "retokenised": "both",
            "prompt_ids": tokens('<s>the "cat",\nsat'),
            "output_ids": tokens("on\tthe mat</s>"),
        }
    ]
    assert found.reasons == {"field response: allowed text that is not empty": 1}


def test_a_column_of_messages_goes_through_the_template(tmp_path, folder, tokens):
    path = lines(tmp_path / "t.jsonl", {"prompt": say("the cat"), "completion": "sat", "finish_reason": "length"})
    row = rows(load([path], tokenizer=folder).trace)[0]
    assert row["prompt_ids"] == tokens(rendered(*say("the cat"))) and row["output_ids"] == tokens("sat")


def test_a_ragged_table(tmp_path, folder):
    (tmp_path / "t.csv").write_text("prompt,response\na,b\na\na,b,c\n")
    found = load([tmp_path / "t.csv"], tokenizer=folder)
    assert len(found.trace) == 1 and found.reasons == {"a row must have as many cells as the header": 2}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("turn", "x"),
        ("turn", -1),
        ("timestamp", "noon"),
        ("timestamp", -5),
        ("timestamp", 1e15),
        ("id", [1]),
        ("session", True),
    ],
)
def test_bad_cells_are_named(tmp_path, folder, field, value):
    good = {"prompt": "a", "response": "b"}
    found = load([lines(tmp_path / "t.jsonl", good, {**good, field: value})], tokenizer=folder)
    assert next(iter(found.reasons)).startswith(f"field {field}: allowed")
    assert f"t.jsonl, row 2, field {field}: got" in found.trace.skipped[0]


# Own traces, mixtures, refusals


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz", ".npz", ".parquet"])
def test_own_traces_pass_through(tmp_path, suffix):
    first = lines(
        tmp_path / "t.jsonl",
        {"prompt_ids": [1, -1], "output_ids": [2], "id": "x", "session": "s", "turn": 3, "retokenised": "both"},
    )
    write(read(first), tmp_path / f"copy{suffix}")
    found = load([tmp_path / f"copy{suffix}"])
    assert found.formats == ("ngramspec",) and rows(found.trace) == rows(read(first))


def test_bad_rows_of_own_traces(tmp_path):
    path = lines(
        tmp_path / "t.jsonl",
        {"prompt_ids": [1], "output_ids": [2]},
        {"prompt_ids": [1]},
        {"prompt_ids": [1], "output_ids": [-2]},
        "oops",
    )
    found = load([path])
    assert len(found.trace) == 1
    assert list(found.reasons) == [
        "field output_ids: is missing",
        "field output_ids[]: allowed an integer >= 0",
        "not whole JSON, the line is cut off (JSON is malformed)",
    ]
    assert "row 3, field output_ids[0]: got -2, allowed an integer >= 0" in found.trace.skipped[1]


def test_files_of_several_formats_become_one_trace(tmp_path, folder):
    paths = [
        lines(tmp_path / "a.log", *sglang_lines(sglang_pair())),
        lines(tmp_path / "r.jsonl", chat_response()),
        lines(tmp_path / "c.jsonl", {"messages": say("the cat", "sat")}),
    ]
    done = []
    found = load(paths, tokenizer=folder, on_progress=done.append)
    assert found.formats == ("sglang-log", "openai", "chat") and len(found.trace) == 3
    assert found.trace.n_retokenised == 1 and found.trace.name == "a.log+r.jsonl+c.jsonl"
    assert done == sorted(done) and done[-1] == sum(path.stat().st_size for path in paths)


@pytest.mark.parametrize(
    "record",
    [
        {"timestamp": 0, "input_length": 5, "output_length": 2, "hash_ids": [1]},
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,4808,10",
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log",
    ],
)
def test_traces_of_arrivals_are_refused_with_the_reason(tmp_path, record):
    with pytest.raises(TraceError, match="row 1: lengths and arrivals without tokens"):
        load([lines(tmp_path / "t", record)])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no record of any known format; allowed ngramspec:.*; text alone is no trace, ngramspec corpus build"),
        (b"just words\n", "no record of any known format"),
        (b'{"a": 1, "b": 2}\n', "got records of a, b; allowed .*; --format names one"),
        (b"[1, 2]", "no record of any known format"),
        (b"5\n", "no record of any known format"),
        (b'[{"messages": [', "not whole JSON .*; is the file cut off"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\x1f\x8b\x08\x00", "cut off or damaged|cannot be read"),
        (b"PK\x03\x04 nothing", "not a trace written by ngramspec"),
        (b"PAR1 nothing", "no record of any known format"),
        (b"\x00\xff\xfe\n", "no record of any known format"),
        (b'{"messages": ' + b"[" * 100_000, "no record of any known format"),
        (b"[{" + b'"a": [' * 100_000, "not whole JSON"),
    ],
)
def test_files_of_no_known_format(tmp_path, content, message):
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(TraceError, match=message) as caught:
        load([tmp_path / "t"])
    assert str(caught.value).startswith(str(tmp_path / "t"))


def test_missing_files(tmp_path):
    with pytest.raises(TraceError, match=r"none: cannot be read: No such file or directory; check the path"):
        load([tmp_path / "none"])
    with pytest.raises(TraceError, match="cannot be read: Is a directory"):
        load([tmp_path])
    with pytest.raises(TraceError, match=r"concat|at least one|no rows"):
        load([])


def test_options_must_be_right_and_have_an_effect(tmp_path, folder):
    path = lines(tmp_path / "r.jsonl", chat_response())
    talk = lines(tmp_path / "c.csv", "prompt,response\na,b")
    (tmp_path / "bad.jinja").write_text("{% if %}")
    (tmp_path / "bad.json").write_text("{}")
    for options, message in [
        ({"format": "magic"}, "--format: got 'magic', allowed ngramspec"),
        ({"tokenizer": folder}, "--tokenizer: has no effect"),
        ({"allow_pickle": True}, "--allow-pickle: has no effect"),
        ({"chat_template": tmp_path / "bad.jinja"}, "--chat-template: has no effect without --tokenizer"),
        ({"tokenizer": tmp_path}, r"--tokenizer: .*tokenizer.json does not exist"),
        ({"tokenizer": tmp_path / "bad.json"}, "--tokenizer: .*bad.json is not a tokenizer.json"),
        ({"tokenizer": folder, "chat_template": tmp_path / "none"}, "--chat-template: .*none does not exist"),
        ({"tokenizer": folder, "chat_template": tmp_path / "bad.jinja"}, "bad.jinja cannot be read as Jinja"),
    ]:
        with pytest.raises(ConfigError, match=message):
            load([path], **options)
    with pytest.raises(ConfigError, match="--chat-template: has no effect on these files"):
        load([talk], tokenizer=folder, chat_template=folder / "tokenizer_config.json")


def test_a_conversation_needs_a_template(tmp_path):
    make_tokenizer(tmp_path / "t", None)
    with pytest.raises(
        TraceError, match=r"no chat template beside .*chat_template.jinja .*; name one with --chat-template"
    ):
        load([lines(tmp_path / "c.jsonl", {"messages": say("x", "y")})], tokenizer=tmp_path / "t")


def test_format_overrules_what_the_file_looks_like(tmp_path):
    path = lines(tmp_path / "r.jsonl", {"odd": 1}, {"prompt_ids": [1], "output_ids": [2]})
    with pytest.raises(TraceError, match="got records of odd"):
        load([path])
    found = load([path], format="ngramspec")
    assert len(found.trace) == 1 and list(found.reasons) == ["field prompt_ids: is missing"]


def test_a_new_importer_is_a_class_and_a_line(tmp_path, monkeypatch):
    class Pairs(Importer):
        name, about = "pairs", "two lists"

        def matches(self, source):
            return isinstance(source.first, dict) and "in" in source.fields

        def rows(self, record, context):
            return [Row(prompt_ids=record.value["in"], output_ids=record.value["out"])]

    monkeypatch.setitem(IMPORTERS, "pairs", Pairs)
    found = load([lines(tmp_path / "p.jsonl", {"in": [1], "out": [2]})])
    assert found.formats == ("pairs",) and found.trace.output[0].tolist() == [2]


def test_a_cut_gzip_keeps_the_rows_before(tmp_path):
    record = [
        {**chat_response(), "prompt_token_ids": np.random.default_rng(i).integers(0, 9**9, 3000).tolist()}
        for i in range(9)
    ]
    packed = gzip.compress("".join(json.dumps(line) + "\n" for line in record).encode())
    (tmp_path / "r.gz").write_bytes(packed[: len(packed) * 2 // 3])
    found = load([tmp_path / "r.gz"])
    assert 0 < len(found.trace) < 9 and next(iter(found.reasons)).startswith("compressed data is cut off")


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """A good file of every format."""
    at = tmp_path_factory.mktemp("samples")
    lines(at / "own", {"prompt_ids": [1], "output_ids": [2]}, {"prompt_ids": [1], "output_ids": [2]})
    lines(at / "log", *sglang_lines(sglang_pair(), sglang_pair("r2")), prefix="[2026-01-02 03:04:06] ")
    write_dump(at / "dump", [sglang_pair(), sglang_pair("r2")])
    lines(at / "openai", chat_response(), {"request": {"messages": say("a")}, "response": chat_response()})
    lines(at / "batch", batch_input("a", messages=say("x")), batch_output("a", chat_response()))
    lines(at / "chat", {"messages": say("a", "b"), "timestamp": 5}, {"messages": say("a", "b", "c", "d")})
    (at / "sharegpt").write_text(
        json.dumps([{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}] * 2)
    )
    (at / "columns").write_text("prompt,response,timestamp\na,b,1\nc,d,2\n")
    (at / "packed").write_bytes(gzip.compress((at / "chat").read_bytes()))
    write(read(at / "own"), at / "own.parquet")
    write(read(at / "own"), at / "own.npz")
    return sorted(at.iterdir())


def attempt(path, folder):
    """Import a file whatever it takes; only errors of ours may come out."""
    for options in ({"tokenizer": folder}, {"allow_pickle": True}, {}):
        try:
            return load([path], **options)
        except NgramSpecError:
            continue
    return None


def test_samples_are_good(samples, folder):
    assert {name for path in samples for name in attempt(path, folder).formats} | {"arrivals"} == set(IMPORTERS)


@pytest.mark.parametrize("seed", range(12))
def test_damage_never_ends_in_a_traceback(samples, folder, tmp_path, seed):
    draw = random.Random(seed)
    for sample in samples:
        content = bytearray(sample.read_bytes())
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(max(1, len(content) - 20))
            if draw.random() < 0.3:
                del content[at : at + draw.randint(1, 20)]
            else:
                content[at] = draw.choice([draw.randrange(256), ord(draw.choice('0-9{}[]",: \n.-e'))])
        if draw.random() < 0.3:
            content = content[: draw.randrange(len(content))]
        (tmp_path / sample.name).write_bytes(content)
        attempt(tmp_path / sample.name, folder)


JUNK = (
    None,
    True,
    -1,
    2**40,
    2**60,
    1.5,
    float("1e400"),
    "",
    "x",
    "...",
    [],
    [None],
    [[1]],
    {},
    {"role": 5},
    {"content": []},
)


def replaced(value, draw):
    """`value` with one thing in it replaced by something else."""
    if isinstance(value, dict) and value and draw.random() < 0.9:
        key = draw.choice(list(value))
        return {**value, key: replaced(value[key], draw)}
    if isinstance(value, list) and value and draw.random() < 0.9:
        at = draw.randrange(len(value))
        return [*value[:at], replaced(value[at], draw), *value[at + 1 :]]
    return draw.choice(JUNK)


@pytest.mark.parametrize("seed", range(12))
def test_wrong_values_never_end_in_a_traceback(samples, folder, tmp_path, seed):
    draw = random.Random(seed)
    for sample in samples:
        if sample.name in ("own", "openai", "batch", "chat", "log"):
            content = [json.loads(line[line.index("{") :]) for line in sample.read_text().splitlines()]
            for _ in range(8):
                lines(tmp_path / "t", *(json.dumps(replaced(record, draw)) for record in content))
                attempt(tmp_path / "t", folder)
    pairs = [sglang_pair()]
    for _ in range(8):
        obj, out = (replaced(part, draw) for part in pairs[0])
        if isinstance(obj, dict):
            attempt(write_dump(tmp_path / "d", [(obj, out)]), folder)


def test_the_public_names():
    assert importers.load is load and set(importers.__all__) <= set(dir(importers))
