"""One request of SGLang, as its request log and its dumps both hold it."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from ..rows import PromptToken, Row, Token
from .base import Context, name_of, parsed
from .failure import Bad

#: What the request logger of SGLang puts in the place of what it leaves out.
GAP = "..."

#: Requests that the server sends to itself have ids that start with this.
HEALTH_CHECK = "HEALTH_CHECK"


class Cut(Exception):
    """A list or a text was cut by the logger."""


class Asked(msgspec.Struct):
    """The request: `obj` in the log, the first of four in a dump."""

    rid: str | None = None
    session_id: str | None = None
    conversation_id: str | None = None
    session_params: dict[str, Any] | None = None
    input_ids: list[PromptToken | Literal["..."]] | None = None
    text: str | None = None
    sampling_params: dict[str, Any] | None = None


class Facts(msgspec.Struct):
    """What the engine says of the answer: `meta_info`."""

    finish_reason: dict[str, Any] | None = None
    completion_tokens: int | None = None
    e2e_latency: float | None = None


class Answered(msgspec.Struct):
    """The answer: `out` in the log, the second of four in a dump."""

    output_ids: list[Token | Literal["..."]] | None = None
    prompt_token_ids: list[PromptToken | Literal["..."]] | None = None
    meta_info: Facts | None = None


def row_of(obj: Any, out: Any, context: Context) -> Row:
    """The row of one finished request.

    Raises
    ------
    Bad
        It has no ids, or the server or the client stopped it before the model did, or only a part was kept.
    Cut
        The logger has left ids or text out.
    """
    asked, answered = parsed(obj, Asked, "obj"), parsed(out, Answered, "out")
    facts = answered.meta_info or Facts()
    if (asked.rid or "").startswith(HEALTH_CHECK):
        raise Bad("a health check of the server, not traffic")
    if facts.finish_reason is None:
        raise Bad("not finished: the record ends where the dump was taken")
    output = _whole(answered.output_ids, "out.output_ids")
    if not output:
        raise Bad("no output tokens", field="out.output_ids")
    if facts.completion_tokens not in (None, len(output)):
        raise Bad(
            "holds another number of tokens than meta_info.completion_tokens says, a part of a stream perhaps",
            field="out.output_ids",
        )
    prompt, made = _prompt(asked, answered, context)
    matched = facts.finish_reason.get("matched")
    return Row(
        id=asked.rid,
        session=asked.session_id
        or name_of((asked.session_params or {}).get("id"), "obj.session_params.id")
        or asked.conversation_id,
        prompt_ids=prompt,
        output_ids=output,
        eos_ids=[matched] if type(matched) is int and matched == output[-1] else None,
        finish_reason=name_of(facts.finish_reason.get("type"), "out.meta_info.finish_reason.type"),
        sampling=_plain(asked.sampling_params or {}) or None,
        spec=_plain({name: value for name, value in out["meta_info"].items() if str(name).startswith("spec_")}) or None,
        retokenised="prompt" if made else None,
    )


def _prompt(asked: Asked, answered: Answered, context: Context) -> tuple[list[int], bool]:
    """The prompt's ids, and whether they had to be made from text."""
    for ids, field in ((answered.prompt_token_ids, "out.prompt_token_ids"), (asked.input_ids, "obj.input_ids")):
        if ids is not None:
            return _whole(ids, field), False
    if asked.text is None:
        raise Bad("no prompt: neither input_ids nor text", field="obj")
    _refuse_cut_text(asked.text, "obj.text")
    return context.encoder.prompt(asked.text, "obj.text"), True


def _whole(ids: list[Any] | None, field: str) -> list[int]:
    if ids is not None and GAP in ids:
        raise Cut(field)
    return ids or []


def _refuse_cut_text(text: str, field: str) -> None:
    half = 1024
    if len(text) == 2 * half + len(GAP) and text[half : half + len(GAP)] == GAP:
        raise Cut(field)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Numbers and texts, and short lists of them: a pickle may hold anything else, nested without end."""
    return {
        str(name): list(value) if isinstance(value, list | tuple) else value
        for name, value in values.items()
        if _simple(value) or (isinstance(value, list | tuple) and len(value) <= 256 and all(map(_simple, value)))
    }


def _simple(value: Any) -> bool:
    return isinstance(value, str | int | float) and (not isinstance(value, str) or len(value) <= 4096)
