"""Importers: what each format becomes, what is left out and why, and that nothing in a file can do harm."""

import csv
import gzip
import json
import os
import pickle
import random

import numpy as np
import pytest

from ngramspec.errors import ConfigError, NgramSpecError, TraceError
from ngramspec.replay import importers, read, write
from ngramspec.replay.importers import IMPORTERS, Importer, load
from ngramspec.replay.rows import Row, row_dict
from tests.made_files import (
    TEXT,
    chat_response,
    lines,
    make_tokenizer,
    say,
    sglang_classes,
    sglang_lines,
    sglang_pair,
    with_fields,
    write_dump,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a tokenizer and a chat template."""
    path = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer(path)
    return path


@pytest.fixture(scope="module")
def tokens(folder, tmp_path_factory):
    """Ids of a text, specials in it recognised, nothing added."""
    tokenizer = make_tokenizer(tmp_path_factory.mktemp("same"))
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def rows(trace):
    return [row_dict(trace, row) for row in range(len(trace))]


def rendered(*messages):
    return "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages) + "<|im_start|>assistant\n"


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


# OpenAI-compatible responses


def test_chat_responses_with_token_ids(tmp_path):
    trace = load([lines(tmp_path / "r.jsonl", chat_response())]).trace
    assert rows(trace) == [
        {
            "id": "c1",
            "timestamp": 1000.0,
            "finish_reason": "stop",
            "eos_ids": [9],
            "prompt_ids": [1, 2],
            "output_ids": [7, 8, 9],
        }
    ]


@pytest.mark.parametrize(
    ("choice", "eos"),
    [
        ({"stop_reason": None}, [9]),  # vLLM: EOS
        ({"stop_reason": 9}, [9]),  # vLLM: a stop token
        ({"stop_reason": "\n"}, None),  # vLLM: a stop string
        ({"stop_reason": None, "finish_reason": "length"}, None),
        ({"matched_stop": 9}, None),  # stop_reason says EOS already, so this case is overridden below
    ],
)
def test_the_end_token_is_known_where_the_server_says_so(tmp_path, choice, eos):
    if "matched_stop" in choice:  # SGLang: no stop_reason at all
        response = chat_response(choice=choice)
        del response["choices"][0]["stop_reason"]
        eos = [9]
    else:
        response = chat_response(choice=choice)
    assert rows(load([lines(tmp_path / "r.jsonl", response)]).trace)[0].get("eos_ids") == eos


def test_text_responses_have_ids_in_the_choices(tmp_path):
    choices = [
        {"index": i, "text": "x", "finish_reason": "length", "token_ids": [5, i], "prompt_token_ids": [1]}
        for i in range(2)
    ]
    path = lines(
        tmp_path / "r.json", json.dumps({"id": "t", "object": "text_completion", "choices": choices}, indent=1)
    )
    assert [(row["id"], row["prompt_ids"], row["output_ids"]) for row in rows(load([path]).trace)] == [
        ("t/0", [1], [5, 0]),
        ("t/1", [1], [5, 1]),
    ]


def test_pairs_of_request_and_response(tmp_path, folder, tokens):
    asked = {"messages": say("the cat"), "temperature": 0.25, "session_id": "inner"}
    plain = chat_response(choice={"token_ids": None}, prompt_token_ids=None)
    path = lines(
        tmp_path / "r.jsonl",
        {"request": asked, "response": plain, "session": "s", "timestamp": "2026-01-02T03:04:05Z"},
        {"request": asked, "response": chat_response(prompt_token_ids=None)},
        {"request": {"prompt": [3, 4]}, "response": chat_response(prompt_token_ids=None)},
        {
            "request": {"prompt": "the cat"},
            "response": chat_response(choice={"message": None, "text": "sat"}, prompt_token_ids=None),
        },
    )
    trace = load([path], tokenizer=folder).trace
    made, prompt_only, ids, text = rows(trace)
    prompt = tokens(rendered(*say("the cat")))
    assert made["prompt_ids"] == prompt and made["output_ids"] == tokens("the log<|im_end|>")
    assert (made["session"], made["timestamp"], made["sampling"]) == ("s", 1767323045.0, {"temperature": 0.25})
    assert made["eos_ids"] == tokens("<|im_end|>")
    assert (prompt_only["prompt_ids"], prompt_only["output_ids"], prompt_only["session"]) == (
        prompt,
        [7, 8, 9],
        "inner",
    )
    assert ids["prompt_ids"] == [3, 4] and text["prompt_ids"] == tokens("<s>the cat")
    assert trace.retokenised.tolist() == ["both", "prompt", None, "prompt"]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (
            chat_response(choice={"token_ids": [7]}),
            "field choices[].token_ids: holds another number of tokens than usage",
        ),
        (chat_response(choice={"token_ids": []}), "field choices[].token_ids: no output tokens"),
        (chat_response(object="chat.completion.chunk"), "field object: a piece of a streamed response"),
        (chat_response(prompt_token_ids=None), "field choices[]: no prompt_token_ids, and the request was not kept"),
        (chat_response(choice={"token_ids": None}), "field choices[]: no token_ids, and no request"),
        (chat_response(choices=[]), "no choices"),
        (chat_response(choices=5), "field choices: allowed a list"),
        (
            {
                "request": {"messages": say("the cat")},
                "response": chat_response(
                    choice={"token_ids": None}, usage={"completion_tokens_details": {"reasoning_tokens": 9}}
                ),
            },
            "field response.choices[]: does not hold the reasoning tokens",
        ),
    ],
)
def test_bad_responses_are_left_out_and_counted(tmp_path, folder, record, reason):
    path = lines(tmp_path / "r.jsonl", chat_response(), record)
    found = load([path])
    assert len(found.trace) == 1 and next(iter(found.reasons)).startswith(reason)


# OpenAI batches


def batch_input(key, **body):
    return {"custom_id": key, "method": "POST", "url": "/v1/chat/completions", "body": {"model": "m", **body}}


def batch_output(key, body=None, status=200):
    response = {"status_code": status, "request_id": "q", "body": body}
    return {"id": f"batch_{key}", "custom_id": key, "response": response if body else None, "error": None}


def test_batches_with_ids_need_no_input(tmp_path):
    trace = load([lines(tmp_path / "out.jsonl", batch_output("a", chat_response()))]).trace
    assert rows(trace)[0]["id"] == "a" and rows(trace)[0]["prompt_ids"] == [1, 2]


@pytest.mark.parametrize("order", [("in", "out"), ("out", "in")])
def test_batches_join_input_and_output_in_either_order(tmp_path, folder, tokens, order):
    plain = chat_response(choice={"token_ids": None}, prompt_token_ids=None)
    lines(
        tmp_path / "in",
        *(batch_input(key, messages=say(f"the {key}"), seed=3) for key in ("cat", "dog", "bird", "log")),
    )
    lines(
        tmp_path / "out",
        batch_output("dog", plain),
        batch_output("cat", plain),
        batch_output("bird", {"error": {"message": "no"}}, status=500),
        {**batch_output("stray"), "error": {"code": "x", "message": "expired"}},
    )
    found = load([tmp_path / name for name in order], tokenizer=folder)
    assert found.formats == ("openai-batch", "openai-batch")
    assert [row["id"] for row in rows(found.trace)] == ["dog", "cat"]
    assert rows(found.trace)[0]["prompt_ids"] == tokens(rendered(*say("the dog")))
    assert rows(found.trace)[0]["sampling"] == {"seed": 3}
    assert found.reasons == {"the request failed": 2, "an input without its output; name the file of outputs too": 1}
    assert any("'expired'" in message for message in found.trace.skipped)


def test_a_batch_input_alone_has_nothing_to_replay(tmp_path):
    with pytest.raises(TraceError, match="an input without its output; name the file of outputs too"):
        load([lines(tmp_path / "in.jsonl", batch_input("a", messages=say("x")))])


def test_a_custom_id_that_comes_twice(tmp_path):
    twice = [batch_input("a", messages=say("x"))] * 2
    found = load(
        [lines(tmp_path / "in.jsonl", *twice), lines(tmp_path / "out.jsonl", batch_output("a", chat_response()))]
    )
    assert len(found.trace) == 1 and "the same custom_id twice" in next(iter(found.reasons))


# Conversations


def test_each_answer_of_a_conversation_is_a_row(tmp_path, folder, tokens):
    talk = [{"role": "system", "content": "the log"}, *say("the cat", "sat", "on the", "mat")]
    trace = load([lines(tmp_path / "c.jsonl", {"id": "t", "messages": talk, "category": "x"})], tokenizer=folder).trace
    first, second = rows(trace)
    end = tokens("<|im_end|>")
    assert first["prompt_ids"] == tokens(rendered(*talk[:2])) and first["output_ids"] == tokens("sat") + end
    assert second["prompt_ids"] == tokens(rendered(*talk[:4])) and second["output_ids"] == tokens("mat") + end
    assert [(r["id"], r["session"], r["turn"], r["category"], r["eos_ids"]) for r in (first, second)] == [
        ("t/0", "t", 0, "x", end),
        ("t/1", "t", 1, "x", end),
    ]
    # What a cache of the session's text relies on: the next prompt goes on where the answer ended.
    whole = first["prompt_ids"] + first["output_ids"]
    assert second["prompt_ids"][: len(whole)] == whole
    assert trace.retokenised.tolist() == ["both", "both"]


@pytest.mark.parametrize("wrapped", ["lines", "array", "gzip", "parquet"])
def test_conversations_come_in_several_wrappings(tmp_path, folder, wrapped):
    talks = [{"id": str(i), "messages": say("the cat", f"sat {i}")} for i in range(3)]
    path = tmp_path / "c"
    if wrapped == "lines":
        lines(path, *talks)
    elif wrapped == "array":
        path.write_text("\ufeff" + json.dumps(talks, indent=2))
    elif wrapped == "gzip":
        path.write_bytes(gzip.compress("".join(json.dumps(talk) + "\n" for talk in talks).encode()))
    else:
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(talks), path)
    found = load([path], tokenizer=folder)
    assert found.formats == ("chat",) and [row["id"] for row in rows(found.trace)] == ["0/0", "1/0", "2/0"]


def test_reasoning_and_tool_calls_are_taken_as_the_template_writes_them(tmp_path, folder, tokens):
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": "<b>"}'}}
    talk = [
        {"role": "user", "content": [{"type": "text", "text": "the cat"}]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "sat"},
        {"role": "assistant", "content": "mat", "reasoning_content": "dog"},
    ]
    record = {"messages": talk, "tools": [{"name": "f"}]}
    first, second = rows(load([lines(tmp_path / "c.jsonl", record)], tokenizer=folder).trace)
    assert first["output_ids"] == tokens('<call>{"a": "<b>"}<|im_end|>')
    assert first["prompt_ids"][: len(tokens('<|im_start|>system\n[{"name": "f"}]'))] == tokens(
        '<|im_start|>system\n[{"name": "f"}]'
    )
    assert second["output_ids"] == tokens("<think>dog</think>mat<|im_end|>")


BROKEN_CALL = {"function": {"name": "f", "arguments": "{"}}


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], "field messages: no answer of an assistant in it"),
        (say("the cat"), "field messages: no answer of an assistant in it"),
        ([*say("", "a greeting")[1:], *say("x")], "field messages: no answer"),
        (say("x", ""), "field messages[]: an empty answer"),
        ([{"role": "critic", "content": "x"}, *say("x", "y")], "field messages[]: the chat template refuses"),
        ([{"content": "x"}], "field messages[]: allowed an object with role and content"),
        (["x"], "field messages[]: allowed an object with role and content"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "field messages[].content: allowed text"),
        ([{"role": "tool", "tool_calls": [BROKEN_CALL]}], "field messages[].tool_calls: arguments that are not JSON"),
    ],
)
def test_bad_conversations_are_left_out_and_counted(tmp_path, folder, messages, reason):
    path = lines(tmp_path / "c.jsonl", {"messages": say("the cat", "sat")}, {"messages": messages})
    found = load([path], tokenizer=folder)
    assert len(found.trace) == 1 and next(iter(found.reasons)).startswith(reason)


def test_one_bad_answer_does_not_cost_the_others(tmp_path, folder):
    found = load([lines(tmp_path / "c.jsonl", {"id": "t", "messages": say("a", "", "b", "c")})], tokenizer=folder)
    assert [row["turn"] for row in rows(found.trace)] == [1] and found.trace.n_skipped == 1


def test_reasoning_that_the_template_hides_is_not_passed_over(tmp_path):
    make_tokenizer(tmp_path / "t", "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}")
    talk = [*say("x"), {"role": "assistant", "content": "y", "reasoning_content": "hm"}]
    with pytest.raises(TraceError, match="does not show the tool calls or reasoning of this answer"):
        load([lines(tmp_path / "c.jsonl", {"messages": talk})], tokenizer=tmp_path / "t")


def test_a_template_without_an_end_token_takes_the_tokenizers(tmp_path):
    tokenizer = make_tokenizer(tmp_path / "t", "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}")
    row = rows(load([lines(tmp_path / "c.jsonl", {"messages": say("x", "y")})], tokenizer=tmp_path / "t").trace)[0]
    assert row["eos_ids"] == [tokenizer.token_to_id("</s>")] == row["output_ids"][-1:]


@pytest.mark.parametrize("where", ["option", "jinja", "list"])
def test_where_templates_come_from(tmp_path, where):
    text, decoy = "{{ messages[0].content }}!{% generation %}{% endgeneration %}", "{{ 'decoy' }}"
    template = (
        [{"name": "tool_use", "template": decoy}, {"name": "default", "template": text}] if where == "list" else decoy
    )
    tokenizer = make_tokenizer(tmp_path / "t", template)
    (tmp_path / "mine.jinja").write_text(text)
    if where == "jinja":
        (tmp_path / "t" / "chat_template.jinja").write_text(text)
    named = tmp_path / "mine.jinja" if where == "option" else None
    path = lines(tmp_path / "c.jsonl", {"messages": say("x", "y")})
    row = rows(load([path], tokenizer=tmp_path / "t" / "tokenizer.json", chat_template=named).trace)[0]
    assert row["prompt_ids"] == tokenizer.encode("x!", add_special_tokens=False).ids


def test_the_date_in_a_prompt_is_the_records_not_the_clocks(tmp_path):
    tokenizer = make_tokenizer(tmp_path / "t", "{{ strftime_now('%Y-%m-%d') }}")
    talk = {"messages": say("x", "y")}
    path = lines(tmp_path / "c.jsonl", {**talk, "timestamp": 1767323045}, {**talk, "timestamp": 1767323045000}, talk)
    found = [tokenizer.decode(row["prompt_ids"]) for row in rows(load([path], tokenizer=tmp_path / "t").trace)]
    assert found == ["2026-01-02", "2026-01-02", "2025-01-01"]


@pytest.mark.parametrize(
    "template", ["{{ ''.__class__.__mro__ }}", "{{ messages.append(1) }}", "{% for i in range(10**9) %}{% endfor %}"]
)
def test_templates_are_kept_in_a_sandbox(tmp_path, template):
    make_tokenizer(tmp_path / "t", template)
    with pytest.raises(TraceError, match="the chat template refuses this conversation"):
        load([lines(tmp_path / "c.jsonl", {"messages": say("x", "y")})], tokenizer=tmp_path / "t")


def test_sharegpt(tmp_path, folder, tokens):
    spoken = [{"from": "gpt", "value": "hi"}, {"from": "human", "value": "the cat"}, {"from": "gpt", "value": "sat"}]
    spoken += [{"from": "human", "value": "on"}, {"from": "gpt", "value": "mat"}]
    odd = {"id": "b", "conversations": [{"from": "martian", "value": "?"}]}
    (tmp_path / "s.json").write_text(json.dumps([{"id": "a", "conversations": spoken}, odd]))
    found = load([tmp_path / "s.json"], tokenizer=folder)
    assert found.formats == ("sharegpt",)
    assert [(row["session"], row["turn"], row["output_ids"]) for row in rows(found.trace)] == [
        ("a", 0, tokens("sat<|im_end|>")),
        ("a", 1, tokens("mat<|im_end|>")),
    ]
    assert next(iter(found.reasons)).startswith("field conversations[].from: allowed human")


def test_conversations_without_a_name_keep_apart_between_files(tmp_path, folder):
    paths = [lines(tmp_path / name, {"messages": say("the cat", "sat")}) for name in ("a.jsonl", "b.jsonl")]
    assert load(paths, tokenizer=folder).trace.session.names == ("a.jsonl:1", "b.jsonl:1")


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
    [("turn", "x"), ("turn", -1), ("timestamp", "noon"), ("timestamp", -5), ("id", [1]), ("session", True)],
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
        (b"", "holds nothing that can be read; allowed ngramspec:"),
        (b"just words\n", "holds nothing that can be read"),
        (b'{"a": 1, "b": 2}\n', "got records of a, b; allowed .*; --format names one"),
        (b"[1, 2]", "holds nothing that can be read"),
        (b"5\n", "holds nothing that can be read"),
        (b'[{"messages": [', "not whole JSON .*; is the file cut off"),
        (b"\x28\xb5\x2f\xfd", "zstd"),
        (b"\x1f\x8b\x08\x00", "cut off or damaged|cannot be read"),
        (b"PK\x03\x04 nothing", "not a trace written by ngramspec"),
        (b"PAR1 nothing", "holds nothing that can be read"),
        (b"\x00\xff\xfe\n", "holds nothing that can be read"),
        (b'{"messages": ' + b"[" * 100_000, "holds nothing that can be read"),
        (b"[{" + b'"a": [' * 100_000, "not whole JSON"),
    ],
)
def test_files_of_no_known_format(tmp_path, content, message):
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(TraceError, match=message) as caught:
        load([tmp_path / "t"])
    assert str(caught.value).startswith(str(tmp_path / "t"))


def test_missing_files(tmp_path):
    with pytest.raises(TraceError, match=r"none: cannot be read: No such file"):
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
    with pytest.raises(TraceError, match="no chat template beside the tokenizer; name one with --chat-template"):
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


JUNK = (None, True, -1, 2**40, 1.5, float("1e400"), "", "x", "...", [], [None], [[1]], {}, {"role": 5}, {"content": []})


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
