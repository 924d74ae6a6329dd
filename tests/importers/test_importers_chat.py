"""Importers: conversations, templates."""

import gzip
import json

import pytest

from ngramspec.errors import TraceError
from ngramspec.replay.importers import load
from tests.importing import rendered, rows
from tests.made_files import (
    lines,
    make_tokenizer,
    say,
)

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


def test_half_a_character_that_a_template_writes_is_a_bad_row(tmp_path):
    make_tokenizer(tmp_path / "t", "{% for m in messages %}{{ m.role }}:{{ m.content }}{{ '\\ud800' }};{% endfor %}")
    with pytest.raises(TraceError, match=r"got .*ud800.*, must be text of whole characters"):
        load([lines(tmp_path / "c.jsonl", {"messages": say("x", "y")})], tokenizer=tmp_path / "t")


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
