"""ShareGPT: `conversations` of `from` and `value`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..rows import Row
from .base import Context, Importer, Record, name_of
from .dialogue import turns
from .failure import Bad
from .source import Source

#: Roles by the names that files of this kind use.
ROLES = (
    dict.fromkeys(("human", "user"), "user")
    | dict.fromkeys(("gpt", "chatgpt", "assistant", "bing", "bard"), "assistant")
    | dict.fromkeys(("tool", "function_response", "observation"), "tool")
    | {"system": "system"}
)


class ShareGPT(Importer):
    """Records with `conversations`; one row for each answer."""

    name = "sharegpt"
    about = "conversations as from and value"

    def matches(self, source: Source) -> bool:
        """By its field."""
        return "conversations" in source.fields

    def rows(self, record: Record, context: Context) -> Iterable[Row | Bad]:
        """One row for each answer."""
        value = record.value if isinstance(record.value, dict) else {}
        spoken = value.get("conversations")
        if not isinstance(spoken, list):
            raise Bad("allowed an object with a list of conversations", got=record.value)
        messages = [_message(said, f"conversations[{i}]") for i, said in enumerate(spoken)]
        session = name_of(value.get("id"), "id") or record.key
        return turns(messages, context.encoder, session=session, field="conversations", options={})


def _message(said: Any, field: str) -> dict[str, Any]:
    if isinstance(said, dict) and "role" in said:  # some files mix both ways
        return said
    if not isinstance(said, dict) or not isinstance(said.get("value"), str):
        raise Bad("allowed an object with from and value", field=field, got=said)
    role = ROLES.get(str(said.get("from")).lower())
    if role is None:
        raise Bad(f"allowed {', '.join(ROLES)}", field=f"{field}.from", got=said.get("from"))
    return {"role": role, "content": said["value"]}
