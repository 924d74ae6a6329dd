"""OpenAI batches: the file of outputs, and that of inputs where the outputs hold no token ids."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..rows import Row
from .base import Context, Importer, Record
from .failure import Bad
from .openai import rows_of
from .source import Source


class OpenAIBatch(Importer):
    """Lines with a `custom_id`: inputs have a `body`, outputs a `response` or an `error`."""

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
        value = record.value
        key = value.get("custom_id") if isinstance(value, dict) else None
        if not isinstance(key, str):
            raise Bad("allowed an object with a custom_id", got=value)
        if "body" not in value:
            self._outputs.append(record)
        elif self._inputs.setdefault(key, record) is not record:
            raise Bad("the same custom_id twice among the inputs", field="custom_id", got=key)
        return []

    def rest(self, context: Context) -> Iterator[tuple[Record, Row | Bad]]:
        """Every output with its input, in the order of the outputs, then inputs without an output."""
        for record in self._outputs:
            source = self._inputs.pop(record.value["custom_id"], None)
            try:
                for item in _rows(record.value, source.value["body"] if source else None, context):
                    yield record, item
            except Bad as bad:
                yield record, bad
        for record in self._inputs.values():
            yield record, Bad("an input without its output; name the file of outputs too")


def _rows(output: dict[str, Any], request: Any, context: Context) -> Iterator[Row | Bad]:
    response = output.get("response")
    if not isinstance(response, dict) or response.get("status_code", 200) != 200:
        error = output.get("error") or (response or {}).get("status_code")
        raise Bad("the request failed", got=error.get("message") if isinstance(error, dict) else error)
    for item in rows_of(request, response.get("body"), context, "response.body"):
        if isinstance(item, Row):
            n_own = len(response["body"].get("id") or "")
            item.id = output["custom_id"] + str(item.id or "")[n_own:]  # "/1" of a second choice stays
        yield item
