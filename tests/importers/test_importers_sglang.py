"""Importers: SGLang's request log and dumps."""

import json
import os
import pickle

import pytest

from ngramspec.errors import TraceError
from ngramspec.replay.importers import load
from tests.importing import rows
from tests.made_files import (
    TEXT,
    lines,
    sglang_classes,
    sglang_lines,
    sglang_pair,
    with_fields,
    write_dump,
)

# SGLang's request log


def test_sglang_log_keeps_ids_session_time_settings_and_counters(tmp_path):
    pairs = [
        sglang_pair(obj={"session_id": "s"}),
        sglang_pair("r2", output=(7,), meta={"finish_reason": {"type": "length"}}),
    ]
    found = load([lines(tmp_path / "server.log", *sglang_lines(*pairs))])
    assert found.formats == ("sglang-log",) and found.reasons == {}
    first, second = rows(found.trace)
    assert first == {
        "id": "r1",
        "session": "s",
        "timestamp": 1767323046.0,  # the end, half a second of latency taken off
        "finish_reason": "stop",
        "eos_ids": [6],
        "sampling": {"temperature": 0.5, "max_new_tokens": 9, "stop": ["\n"]},
        "spec": {"spec_accept_length": 1.5, "spec_verify_ct": 2, "spec_correct_drafts_histogram": [1, 1]},
        "prompt_ids": [1, 2, 3],
        "output_ids": [4, 5, 6],
    }
    assert (second["finish_reason"], "eos_ids" in second, second["output_ids"]) == ("length", False, [7])


def test_sglang_log_among_other_lines_of_a_server(tmp_path):
    path = lines(
        tmp_path / "server.log",
        "INFO:     Started server process [1]",
        *("[2026-01-02 03:04:06] " + json.dumps(line) for line in sglang_lines(sglang_pair())),
        '[2026-01-02 03:04:06] Decode batch, #running-req: 1, {"not": "ours"}',
    )
    found = load([path])
    assert found.formats == ("sglang-log",) and len(found.trace) == 1 and found.reasons == {}


def test_sglang_log_to_which_a_collector_added_fields(tmp_path):
    path = lines(tmp_path / "server.log", *({"level": "INFO"} | line for line in sglang_lines(sglang_pair())))
    found = load([path])
    assert found.formats == ("sglang-log",) and [row["output_ids"] for row in rows(found.trace)] == [[4, 5, 6]]


def test_a_log_without_a_whole_request_says_so(tmp_path):
    came = lines(tmp_path / "server.log", *(line for line in sglang_lines(sglang_pair()) if "out" not in line))
    with pytest.raises(
        TraceError, match=r"no rows; got no whole request in sglang-log: SGLang's log with --log-requests .*; check"
    ):
        load([came])
    with pytest.raises(TraceError, match=r"no rows; got no whole request in sglang-log"):
        load([lines(tmp_path / "chat.jsonl", {"messages": []})], format="sglang-log")


def test_sglang_prompts_that_came_as_text_are_tokenised_and_marked(tmp_path, folder, tokens):
    path = lines(
        tmp_path / "a.log", *sglang_lines(sglang_pair(obj={"input_ids": None, "text": TEXT}), sglang_pair("r2"))
    )
    trace = load([path], tokenizer=folder).trace
    bos = tokens("<s>")
    assert trace.prompt[0].tolist() == bos + tokens(TEXT) and len(trace.prompt[0]) > 8
    assert trace.retokenised.tolist() == ["prompt", None] and trace.n_retokenised == 1
    without = load([path])
    assert len(without.trace) == 1
    assert list(without.reasons) == [
        "field obj.text: holds text, not token ids: name a local tokenizer.json with --tokenizer"
    ]


@pytest.mark.parametrize("field", ["input_ids", "text", "output_ids"])
def test_a_log_of_level_2_is_refused_whole(tmp_path, field):
    gap = [1] * 1024 + ["..."] + [2] * 1024
    changes = {
        "input_ids": {"obj": {"input_ids": gap}},
        "text": {"obj": {"input_ids": None, "text": "a" * 1024 + "..." + "b" * 1024}},
        "output_ids": {"output_ids": gap},
    }[field]
    path = lines(tmp_path / "a.log", *sglang_lines(sglang_pair(), sglang_pair("r2", **changes)))
    with pytest.raises(TraceError, match=rf"a.log, row 4: field \w+.{field} is cut .* level 2.*--log-requests-level 3"):
        load([path])


def test_logs_without_tokens_or_in_text_are_refused_whole(tmp_path):
    obj, out = sglang_pair()
    obj = {name: value for name, value in obj.items() if name not in ("input_ids", "text")}
    path = lines(tmp_path / "a.log", *sglang_lines((obj, {"meta_info": out["meta_info"]})))
    with pytest.raises(TraceError, match="level 0 or 1, which holds no tokens: log again with --log-requests-level 3"):
        load([path])
    path = lines(tmp_path / "b.log", "[2026-01-02 03:04:06] Finish: obj=GenerateReqInput(rid='1'), out={}")
    with pytest.raises(TraceError, match=r"text format: log again with .*--log-requests-format json"):
        load([path])


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (sglang_pair(output=()), "field out.output_ids: no output tokens"),
        (sglang_pair(output_ids=[4]), "field out.output_ids: holds another number of tokens than meta_info.completion"),
        (sglang_pair("HEALTH_CHECK_1"), "a health check of the server"),
        (sglang_pair(meta={"finish_reason": None}), "not finished"),
        (sglang_pair(obj={"input_ids": None}), "field obj: no prompt"),
        (sglang_pair(obj={"input_ids": [[1], [2]]}), "field obj.input_ids[]: allowed"),
        (sglang_pair(output_ids=[4, -1]), "field out.output_ids[]: allowed an integer >= 0"),
        (sglang_pair(obj={"rid": 5}), "field obj.rid: allowed a string"),
        ((sglang_pair()[0], {"output_ids": [1], "meta_info": 3}), "field out.meta_info: allowed an object"),
    ],
)
def test_bad_requests_of_a_log_are_left_out_and_counted(tmp_path, pair, reason):
    path = lines(tmp_path / "a.log", *sglang_lines(pair, sglang_pair(), pair))
    found = load([path])
    assert (len(found.trace), found.trace.n_skipped, list(found.reasons.values())) == (1, 2, [2])
    assert next(iter(found.reasons)).startswith(reason)
    assert found.trace.skipped[0].startswith(f"{path}, row 2")


def test_a_cut_line_is_left_out(tmp_path):
    text = "".join(json.dumps(line) + "\n" for line in sglang_lines(sglang_pair(), sglang_pair("r2")))
    (tmp_path / "a.log").write_text(text[:-30])
    found = load([tmp_path / "a.log"])
    assert len(found.trace) == 1 and "not whole JSON, the line is cut off" in next(iter(found.reasons))


# SGLang's dumps


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_dumps_need_leave_and_give_what_the_log_gives(tmp_path, alone, protocol):
    pairs = [sglang_pair(obj={"session_id": "s"}), sglang_pair("r2", output=(7,))]
    path = write_dump(tmp_path / "d.pkl", pairs, alone=alone, protocol=protocol)
    with pytest.raises(TraceError, match=r"a pickle.*--allow-pickle"):
        load([path])
    found = load([path], allow_pickle=True)
    logged = load([lines(tmp_path / "a.log", *sglang_lines(*pairs))])
    for row, same in zip(rows(found.trace), rows(logged.trace)):
        assert row.pop("timestamp") in (100.0, 101.0) and same.pop("timestamp") and row == same
    assert found.formats == ("sglang-dump",)


def test_unfinished_and_embedding_requests_of_a_crash_dump_are_left_out(tmp_path):
    unfinished = (sglang_pair()[0], {"text": "ab", "output_ids": [4]})
    found = load([write_dump(tmp_path / "d.pkl", [sglang_pair(), unfinished])], allow_pickle=True)
    assert len(found.trace) == 1 and "not finished" in next(iter(found.reasons))
    with pytest.raises(TraceError, match=r"no rows: all 1 are bad, the first: .*row 1: an embedding request"):
        load([write_dump(tmp_path / "e.pkl", [sglang_pair()], kind="EmbeddingReqInput")], allow_pickle=True)


class Calls:
    """Pickles as a call of `function`."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def touch(path):
    return Calls(os.system, f"touch {path}")


def by_name(module, name, *arguments):
    """A pickle that calls `module.name`, which need not exist here."""
    parts = [b"\x8c" + bytes([len(part)]) + part.encode() for part in (module, name, *arguments)]
    return b"".join([b"\x80\x04", *parts[:2], b"\x93(", *parts[2:], b"tR."])


@pytest.mark.parametrize("protocol", range(2, 6))
@pytest.mark.parametrize("place", ["top", "request", "field", "key", "state"])
def test_code_in_a_pickle_does_not_run(tmp_path, place, protocol):
    mark = tmp_path / "ran"
    bomb = touch(mark)
    obj, out = sglang_pair()
    with sglang_classes() as made:
        request = with_fields(made["GenerateReqInput"], obj | ({"text": bomb} if place == "field" else {}))
        content = {"requests": [(request, out, 1.0, 2.0)]}
        if place == "top":
            content = bomb
        elif place == "request":
            content["requests"].append(bomb)
        elif place == "key":
            content = [content, {bomb: 1}]
        elif place == "state":
            request.__dict__["sampling_params"] = {"a": [{"b": bomb}]}
        hostile = pickle.dumps(content, protocol)
    (tmp_path / "d.pkl").write_bytes(hostile)
    with pytest.raises(TraceError, match=r"asks for (posix|nt)\.system, which is not expected"):
        load([tmp_path / "d.pkl"], allow_pickle=True)
    assert not mark.exists()
    # The bomb is a real one: the ordinary reader sets it off.
    with sglang_classes():
        pickle.loads(hostile)
    assert mark.exists()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("builtins", "eval"),
        ("builtins", "getattr"),
        ("builtins", "__import__"),
        ("builtins", "set"),
        ("os", "system"),
        ("subprocess", "Popen"),
        ("operator", "attrgetter"),
        ("functools", "partial"),
        ("copyreg", "_reconstructor"),
        ("numpy", "load"),
        ("ngramspec.replay.importers.pickles", "Inert"),
        ("sglang.srt.managers.io_struct", "GenerateReqInput.__init__.__globals__"),
        ("sglang.srt.managers.io_struct", "pickle.loads"),
        ("sglang.srt.managers.io_struct\nos", "GenerateReqInput"),
        ("sglang.srt.unheard_of", "Thing"),
        ("transformers.models.llama.modeling_llama", "LlamaModel"),
        ("torch", "load"),
        ("torch", "hub"),
        ("torch.storage", "_load_from_bytes"),
    ],
)
def test_names_that_are_not_expected_are_refused_by_name(tmp_path, module, name):
    (tmp_path / "d.pkl").write_bytes(by_name(module, name, f"touch {tmp_path / 'ran'}"))
    with pytest.raises(TraceError) as caught:
        load([tmp_path / "d.pkl"], allow_pickle=True)
    assert f"asks for {module}.{name}" in str(caught.value) and not (tmp_path / "ran").exists()


def test_expected_names_are_inert_even_when_called(tmp_path):
    # Calling the stand-in of a function, and setting its state, makes a record and runs nothing.
    (tmp_path / "d.pkl").write_bytes(by_name("sglang.srt.server_args", "_rebuild_server_args", "a", "b"))
    with pytest.raises(TraceError, match="no list of requests"):
        load([tmp_path / "d.pkl"], allow_pickle=True)


def test_sglang_is_not_imported(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "sglang", None)  # importing it would raise
    assert len(load([write_dump(tmp_path / "d.pkl", [sglang_pair()])], allow_pickle=True).trace) == 1


def test_a_pickle_that_unfolds_without_end_is_not_unfolded(tmp_path):
    bomb = "x"
    for _ in range(60):
        bomb = [bomb, bomb]
    obj, out = sglang_pair(meta={"spec_x": bomb})
    obj["sampling_params"] |= {"big": bomb, "deep": {"a": bomb}}
    trace = load([write_dump(tmp_path / "d.pkl", [(obj, out)])], allow_pickle=True).trace
    assert rows(trace)[0]["sampling"] == sglang_pair()[0]["sampling_params"]


@pytest.mark.parametrize(
    "content", [b"\x80\x04", b"\x80\x04.", b"\x80\x04]q\x00h\x05.", b"\x80\x04K\x01.", b"\x80\x09X"]
)
def test_damaged_pickles(tmp_path, content):
    (tmp_path / "d.pkl").write_bytes(content)
    with pytest.raises(TraceError, match=r"not a whole pickle|no list of requests"):
        load([tmp_path / "d.pkl"], allow_pickle=True)
