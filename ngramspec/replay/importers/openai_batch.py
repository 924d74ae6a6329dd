"""OpenAI batches: the file of outputs, and that of inputs where the outputs hold no token ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from ..rows import Row
from .base import Context, Importer, Record, parsed
from .failure import Bad
from .openai import rows_of
from .source import Source


class Reply(msgspec.Struct):
    """The `response` of an output."""

    status_code: int = 200
    body: dict[str, Any] | None = None


class Line(msgspec.Struct):
    """An input has a `body`; an output has a `response`, an `error`, or both."""

    custom_id: str
    body: dict[str, Any] | None = None
    response: Reply | None = None
    error: dict[str, Any] | str | None = None


class OpenAIBatch(Importer):
    """Inputs and outputs, joined by `custom_id`."""

    name = "openai-batch"
    about = "OpenAI batch files, output and input together"

    def __init__(self) -> None:
        self._inputs: dict[str, Record] = {}
        self._outputs: list[Record] = []

    def matches(self, source: Source) -> bool:
        """By its ids."""
        return "custom_id" in source.fields and bool({"body", "response", "error"} & source.fields)

    def rows(self, record: Record, context: Context) -> Iterable[Row]:
        """No rows yet: the other half may stand in a later file."""
        line = parsed(record.value, Line)
        if line.body is None:
            self._outputs.append(record)
        elif self._inputs.setdefault(line.custom_id, record) is not record:
            raise Bad("the same custom_id twice among the inputs", field="custom_id", got=line.custom_id)
        return []

    def rest(self, context: Context) -> Iterator[tuple[Record, Row | Bad]]:
        """Every output with its input, in the order of the outputs, then inputs without an output."""
        for record in self._outputs:
            line = parsed(record.value, Line)
            source = self._inputs.pop(line.custom_id, None)
            try:
                for item in _rows(line, source.value["body"] if source else None, context):
                    yield record, item
            except Bad as bad:
                yield record, bad
        for record in self._inputs.values():
            yield record, Bad("an input without its output; name the file of outputs too")


def _rows(line: Line, request: Any, context: Context) -> Iterator[Row | Bad]:
    reply = line.response or Reply()
    if reply.status_code != 200 or reply.body is None:
        error = line.error or f"status {reply.status_code}"
        raise Bad("the request failed", got=error.get("message") if isinstance(error, dict) else error)
    n_own = len(str(reply.body.get("id") or ""))
    for item in rows_of(request, reply.body, context, "response.body"):
        if isinstance(item, Row):
            item.id = line.custom_id + str(item.id or "")[n_own:]  # "/1" of a second choice stays
        yield item
