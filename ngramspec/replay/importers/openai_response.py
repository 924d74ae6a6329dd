"""Logs of OpenAI-compatible responses, alone or with their requests."""

from __future__ import annotations

from collections.abc import Iterable

from ..rows import Row
from .base import Context, Importer, Record, seconds
from .failure import Bad
from .openai import rows_of, session_of
from .source import Source


class OpenAIResponse(Importer):
    """Responses with `choices`, or pairs of `request` and `response`.

    Servers give ids when asked: vLLM and SGLang with `return_token_ids` in the request.
    """

    name = "openai"
    about = "OpenAI-compatible responses, alone or under request and response"

    def matches(self, source: Source) -> bool:
        """By `choices`, or by a pair of which the response has some."""
        first = source.first if isinstance(source.first, dict) else {}
        response = first.get("response")
        return "choices" in first or (isinstance(response, dict) and "choices" in response)

    def rows(self, record: Record, context: Context) -> Iterable[Row | Bad]:
        """One row for each choice."""
        value = record.value
        if not isinstance(value, dict):
            raise Bad("allowed an object", got=value)
        alone = "choices" in value
        request, response = (None, value) if alone else (value.get("request"), value.get("response"))
        session = session_of(value) or (session_of(request) if isinstance(request, dict) else None)
        arrival = None if alone else seconds(value.get("timestamp"), "timestamp")
        for row in rows_of(request, response, context, "" if alone else "response"):
            if isinstance(row, Row):
                row.session = session
                row.timestamp = row.timestamp if arrival is None else arrival
            yield row
