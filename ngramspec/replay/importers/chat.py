"""Conversations as lists of messages with roles: JSONL, JSON or Parquet."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from ..rows import Row
from .base import Context, Importer, Record, name_of, seconds
from .dialogue import turns
from .failure import Bad
from .openai import session_of
from .source import Source

#: Fields that hold the messages: the usual one, and WildChat's.
MESSAGES = ("messages", "conversation")


class Chat(Importer):
    """Records with `messages`, each with `role` and `content`; one row for each answer."""

    name = "chat"
    about = "conversations as messages with role and content"

    def matches(self, source: Source) -> bool:
        """By messages with roles."""
        value = source.first if isinstance(source.first, dict) else {}
        return any(_has_roles(value.get(name)) for name in MESSAGES)

    def rows(self, record: Record, context: Context) -> Iterable[Row | Bad]:
        """One row for each answer of the assistant."""
        value = record.value if isinstance(record.value, dict) else {}
        field = next((name for name in MESSAGES if isinstance(value.get(name), list)), None)
        if field is None:
            raise Bad("allowed an object with a list of messages", got=record.value)
        return turns(
            value[field],
            context.encoder,
            session=session_of(value) or name_of(value.get("id"), "id") or record.key,
            field=field,
            options={"tools": value.get("tools")} | _date(value),
            category=name_of(value.get("category"), "category"),
        )


def _has_roles(messages: Any) -> bool:
    return isinstance(messages, list) and bool(messages) and isinstance(messages[0], dict) and "role" in messages[0]


def _date(value: dict[str, Any]) -> dict[str, Any]:
    """The day of the conversation, for templates that write it. It says nothing of when each answer was asked for."""
    time = seconds(value.get("timestamp"), "timestamp")
    return {} if time is None else {"date": datetime.fromtimestamp(time, UTC)}
