"""A response of an OpenAI-compatible server, chat or text, with token ids or without."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from ..rows import PromptToken, Row, Token
from .base import Context, name_of, parsed, seconds
from .dialogue import REASONING, answer, message_of
from .failure import Bad

Ids = list[PromptToken]


class Choice(msgspec.Struct):
    """One of `choices`, with what vLLM and SGLang add.

    vLLM gives `stop_reason`, null when it was EOS; SGLang gives `matched_stop`, and in chats calls the ids
    `response_token_ids`.
    """

    index: int = 0
    text: str | None = None
    message: dict[str, Any] | None = None
    finish_reason: str | None = None
    token_ids: list[Token] | None = None
    response_token_ids: list[Token] | None = None
    prompt_token_ids: Ids | None = None
    stop_reason: int | str | UnsetType | None = UNSET
    matched_stop: int | str | None = None


class Usage(msgspec.Struct):
    """Numbers of tokens."""

    completion_tokens: int | None = None
    completion_tokens_details: dict[str, Any] | None = None
    reasoning_tokens: int | None = None


class Response(msgspec.Struct):
    """A whole response."""

    choices: list[Choice]
    id: str | None = None
    object: str | None = None
    created: float | None = None
    prompt_token_ids: Ids | None = None
    usage: Usage | None = None


class Request(msgspec.Struct):
    """What was asked, as far as it is needed."""

    messages: list[dict[str, Any]] | None = None
    prompt: str | list[Any] | None = None
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


#: Settings of a request that a trace keeps.
SAMPLING = (
    *("temperature", "top_p", "top_k", "min_p", "max_tokens", "max_completion_tokens", "seed", "n"),
    *("presence_penalty", "frequency_penalty", "repetition_penalty"),
)


def rows_of(request: Any, response: Any, context: Context, at: str) -> Iterator[Row | Bad]:
    """One row for each choice of a response; a `Bad` for each that cannot be used.

    Parameters
    ----------
    request : object
        The request's body; None where it was not kept.
    response : object
        The response's body.
    context : Context
        What the caller provides.
    at : str
        The field of the record in which the response stands, for messages.
    """
    whole = parsed(response, Response, at)
    if (whole.object or "").endswith(".chunk"):
        raise Bad("a piece of a streamed response; log whole responses", field=f"{at}.object" if at else "object")
    if not whole.choices:
        raise Bad("no choices", field=at)
    asked = None if request is None else parsed(request, Request, "request")
    sampling = {name: request[name] for name in SAMPLING if request.get(name) is not None} if request else {}
    arrival = seconds(whole.created, "created")
    for i, choice in enumerate(whole.choices):
        field = f"{at}.choices[{i}]".lstrip(".")
        try:
            row = _row(asked, whole, choice, context, field)
        except Bad as bad:
            yield bad
            continue
        row.id = whole.id if len(whole.choices) == 1 or whole.id is None else f"{whole.id}/{choice.index}"
        row.timestamp, row.finish_reason, row.sampling = arrival, choice.finish_reason, sampling or None
        yield row


def _row(asked: Request | None, whole: Response, choice: Choice, context: Context, field: str) -> Row:
    usage = whole.usage or Usage()
    ended = choice.finish_reason != "length"
    name = "token_ids" if choice.response_token_ids is None else "response_token_ids"
    output: list[int] | None = getattr(choice, name)
    made = output is None
    if output is None:
        hidden = usage.reasoning_tokens or (usage.completion_tokens_details or {}).get("reasoning_tokens")
        if hidden and not any((choice.message or {}).get(name) for name in REASONING):
            raise Bad("does not hold the reasoning tokens that the model wrote before its answer", field=field)
        if choice.message is not None and asked is not None and asked.messages:
            return _chat(asked, choice, whole, context, field, ended)
        if not choice.text:
            raise Bad("no token_ids, and no request and response text to make them from", field=field)
        output = context.encoder.written(choice.text, f"{field}.text") + list(context.encoder.eos if ended else ())
    elif not output:
        raise Bad("no output tokens", field=f"{field}.{name}")
    elif len(whole.choices) == 1 and usage.completion_tokens not in (None, len(output)):
        raise Bad("holds another number of tokens than usage.completion_tokens says", field=f"{field}.{name}")
    prompt, prompt_made = _prompt(asked, whole, choice, context, field)
    return Row(
        prompt_ids=prompt,
        output_ids=output,
        eos_ids=_eos(choice, output) if not made else list(context.encoder.eos) or None,
        retokenised={(True, True): "both", (True, False): "prompt", (False, True): "output"}.get((prompt_made, made)),  # type: ignore[arg-type]
    )


def _chat(asked: Request, choice: Choice, whole: Response, context: Context, field: str, ended: bool) -> Row:
    assert asked.messages is not None and choice.message is not None
    before = [message_of(message, f"request.messages[{i}]") for i, message in enumerate(asked.messages)]
    options = _options(asked, whole)
    reply = message_of(choice.message, f"{field}.message")
    return answer(before, reply, context.encoder, field=f"{field}.message", options=options, ended=ended)


def _options(asked: Request, whole: Response) -> dict[str, Any]:
    time = seconds(whole.created, "created")
    date = {} if time is None else {"date": datetime.fromtimestamp(time, UTC)}
    return {"tools": asked.tools, **(asked.chat_template_kwargs or {}), **date}


def _prompt(
    asked: Request | None, whole: Response, choice: Choice, context: Context, field: str
) -> tuple[list[int], bool]:
    """The prompt's ids, and whether they had to be made from text."""
    for ids in (choice.prompt_token_ids, whole.prompt_token_ids):
        if ids is not None:
            return ids, False
    if asked is None:
        raise Bad("no prompt_token_ids, and the request was not kept", field=field)
    if asked.messages:
        before = [message_of(message, f"request.messages[{i}]") for i, message in enumerate(asked.messages)]
        text = context.encoder.render(before, "request.messages", add_generation_prompt=True, **_options(asked, whole))
        return context.encoder.written(text, "request.messages"), True
    prompt = asked.prompt[0] if isinstance(asked.prompt, list) and len(asked.prompt) == 1 else asked.prompt
    if isinstance(prompt, str):
        return context.encoder.prompt(prompt, "request.prompt"), True
    if prompt is None:
        raise Bad("no prompt_token_ids, and no messages or prompt in the request", field=field)
    return parsed(prompt, Ids, "request.prompt"), False


def _eos(choice: Choice, output: list[int]) -> list[int] | None:
    """The last token, where the server says that it ended the output."""
    stop = choice.matched_stop if choice.stop_reason is UNSET else choice.stop_reason
    by_eos = choice.finish_reason == "stop" and choice.stop_reason is None
    return [output[-1]] if by_eos or (type(stop) is int and stop == output[-1]) else None


def session_of(record: dict[str, Any]) -> str | None:
    """The session that a log names beside request and response, under one of the usual names."""
    return next((name_of(record[name], name) for name in SESSION if record.get(name) is not None), None)


#: What logs call a conversation.
SESSION = ("session", "session_id", "conversation_id", "conversation_hash", "thread_id")
