"""Conversations: one row for each answer of the assistant, its prompt everything before, as the template writes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ..rows import Row
from .encoder import Encoder
from .failure import Bad

#: Where engines put what a model thought before it answered.
REASONING = ("reasoning_content", "reasoning", "thinking")


def turns(
    messages: Sequence[Any], encoder: Encoder, *, session: str, field: str, options: Mapping[str, Any], **about: Any
) -> Iterator[Row | Bad]:
    """One row for each answer in a conversation; a `Bad` for an answer that cannot be used.

    What the assistant says before anyone else spoke is not an answer, and makes no row.

    Parameters
    ----------
    messages : sequence
        Messages with `role` and `content`, as chat APIs take them.
    encoder : Encoder
        Tokenizer and template.
    session : str
        Name of the conversation.
    field : str
        Where the messages stand, for messages of errors.
    options : mapping
        Variables of the template, such as `tools`.
    **about : object
        Further fields of every row.
    """
    clean = [message_of(message, f"{field}[{i}]") for i, message in enumerate(messages)]
    asked = next((i for i, message in enumerate(clean) if message["role"] not in ("assistant", "system")), len(clean))
    answers = [i for i, message in enumerate(clean) if message["role"] == "assistant" and i > asked]
    if not answers:
        raise Bad("no answer of an assistant in it", field=field)
    for turn, i in enumerate(answers):
        try:
            row = answer(clean[:i], clean[i], encoder, field=f"{field}[{i}]", options=options)
        except Bad as bad:
            yield bad
        else:
            row.id, row.session, row.turn = f"{session}/{turn}", session, turn
            for name, value in about.items():
                setattr(row, name, value)
            yield row


def answer(
    before: Sequence[dict[str, Any]],
    message: dict[str, Any],
    encoder: Encoder,
    *,
    field: str,
    options: Mapping[str, Any],
    ended: bool = True,
) -> Row:
    """The row of one answer; raises `Bad` when the template cannot tell what the model saw or wrote.

    Plain content is taken as it stands. Tool calls and reasoning are taken as the template writes them, which is how
    the model was taught to write them.

    Parameters
    ----------
    before : sequence of dict
        The messages that the model saw.
    message : dict
        What it answered.
    encoder : Encoder
        Tokenizer and template.
    field : str
        Where the answer stands, for messages of errors.
    options : mapping
        Variables of the template.
    ended : bool
        The model ended the answer itself, so that its last token is the end token.
    """
    prompt = encoder.render(before, field, add_generation_prompt=True, **options)
    thought = next((message[name] for name in REASONING if message.get(name)), "")
    written = message["content"]
    if thought or message.get("tool_calls"):
        whole = encoder.render([*before, message], field, add_generation_prompt=False, **options)
        if not whole.startswith(prompt) or thought not in whole:
            raise Bad("the template does not show the tool calls or reasoning of this answer", field=field)
        written = whole[len(prompt) :].removesuffix(encoder.end.text)
    if not written:
        raise Bad("an empty answer", field=field)
    return Row(
        prompt_ids=encoder.written(prompt, field),
        output_ids=encoder.written(written, field) + list(encoder.end.ids if ended else ()),
        eos_ids=list(encoder.end.ids) or None,
        retokenised="both",
    )


def message_of(message: Any, field: str) -> dict[str, Any]:
    """A message as templates take it: content as one text, arguments of tool calls as objects; raises `Bad`."""
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise Bad("allowed an object with role and content", field=field, got=message)
    clean = {name: value for name, value in message.items() if value is not None}
    clean["content"] = _text(message.get("content"), f"{field}.content")
    if clean.get("tool_calls"):
        clean["tool_calls"] = [_call(call, f"{field}.tool_calls") for call in clean["tool_calls"]]
    return clean


def _text(content: Any, field: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    found = [text for text in texts if isinstance(text, str)]
    if len(found) < len(texts):
        raise Bad("allowed text: the tokens that a model saw for anything else are not in it", field=field, got=content)
    return "\n".join(found)


def _call(call: Any, field: str) -> dict[str, Any]:
    function = call.get("function", call) if isinstance(call, dict) else None
    if not isinstance(function, dict):
        raise Bad("allowed objects with a function", field=field, got=call)
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = msgspec.json.decode(arguments)
        except (msgspec.DecodeError, RecursionError):
            raise Bad("arguments that are not JSON", field=field, got=arguments) from None
    return {**call, "function": {**function, "arguments": arguments}}
