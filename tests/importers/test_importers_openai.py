"""Importers: OpenAI-compatible responses and batches."""

import json

import pytest

from ngramspec.errors import TraceError
from ngramspec.replay.importers import load
from tests.importing import batch_input, batch_output, rendered, rows
from tests.made_files import (
    chat_response,
    lines,
    say,
)

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
        ({"stop_reason": 5}, None),  # not the last token: left open
    ],
)
def test_the_end_token_is_known_where_the_server_says_so(tmp_path, choice, eos):
    response = chat_response(choice=choice)
    assert rows(load([lines(tmp_path / "r.jsonl", response)]).trace)[0].get("eos_ids") == eos


def test_a_time_of_creation_in_milliseconds(tmp_path, folder):
    pair = {"request": {"messages": say("x")}, "response": chat_response(prompt_token_ids=None, created=1767323045000)}
    found = load([lines(tmp_path / "r.jsonl", pair)], tokenizer=folder)
    assert rows(found.trace)[0]["timestamp"] == 1767323045.0


def test_chat_responses_of_sglang(tmp_path):
    choice = {"token_ids": None, "response_token_ids": [7, 8, 9], "prompt_token_ids": [1, 2], "matched_stop": 9}
    response = chat_response(choice=choice, prompt_token_ids=None)
    del response["choices"][0]["stop_reason"]
    found = load([lines(tmp_path / "r.jsonl", response, {**response, "usage": {"completion_tokens": 4}})])
    (row,) = rows(found.trace)
    assert (row["prompt_ids"], row["output_ids"], row["eos_ids"]) == ([1, 2], [7, 8, 9], [9])
    assert next(iter(found.reasons)).startswith("field choices[].response_token_ids: holds another number")


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
