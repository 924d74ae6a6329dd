"""Prompts and responses in two columns: CSV, JSONL or Parquet."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..rows import Row
from .base import Context, Importer, Record, name_of, seconds
from .dialogue import answer, message_of
from .failure import Bad
from .openai import session_of
from .source import Source

#: What the two columns are called, the first that is there counts.
PROMPT = ("prompt", "input", "question", "instruction")
RESPONSE = ("response", "completion", "output", "answer")


class Columns(Importer):
    """Rows with a prompt and a response.

    A prompt that is text is taken as the whole text that the model saw, no template around it; a list of messages goes
    through the chat template.
    """

    name = "columns"
    about = "prompt and response columns in CSV, JSONL or Parquet"

    def matches(self, source: Source) -> bool:
        """By the names of both columns."""
        return not source.fields.isdisjoint(PROMPT) and not source.fields.isdisjoint(RESPONSE)

    def rows(self, record: Record, context: Context) -> Iterable[Row]:
        """The one row."""
        value = record.value if isinstance(record.value, dict) else {}
        ask, reply = _first(value, PROMPT), _first(value, RESPONSE)
        prompt, response, reason = value[ask], value[reply], name_of(value.get("finish_reason"), "finish_reason")
        if not isinstance(response, str) or not response:
            raise Bad("allowed text that is not empty", field=reply, got=response)
        encoder, ended = context.encoder, reason != "length"
        if isinstance(prompt, str):
            row = Row(
                prompt_ids=encoder.prompt(prompt, ask),
                output_ids=encoder.written(response, reply) + list(encoder.eos if ended else ()),
                eos_ids=list(encoder.eos) or None,
                retokenised="both",
            )
        elif isinstance(prompt, list):
            before = [message_of(message, f"{ask}[{i}]") for i, message in enumerate(prompt)]
            message = {"role": "assistant", "content": response}
            row = answer(before, message, encoder, field=ask, options={"tools": value.get("tools")}, ended=ended)
        else:
            raise Bad("allowed text or a list of messages", field=ask, got=prompt)
        row.id, row.session, row.finish_reason = name_of(value.get("id"), "id") or record.key, session_of(value), reason
        row.category, row.turn = name_of(value.get("category"), "category"), _turn(value.get("turn"))
        row.timestamp = seconds(value.get("timestamp"), "timestamp")
        return [row]


def _first(value: dict[str, Any], names: tuple[str, ...]) -> str:
    for name in names:
        if name in value:
            return name
    raise Bad(f"is missing, allowed {' or '.join(names)}", field=names[0])


def _turn(value: Any) -> int | None:
    if value is None or value == "":
        return None
    if isinstance(value, bool) or not str(value).isdecimal() or int(value) >= 2**31:
        raise Bad("allowed a whole number from 0", field="turn", got=value)
    return int(value)
