"""SGLang's dumps of requests: `--crash-dump-folder`, and what its request dumper writes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pickle import UnpicklingError
from typing import Any

from ...errors import TraceError
from ..rows import Row
from . import pickles
from .base import Context, Importer, Record, seconds
from .failure import Bad
from .sglang import Cut, row_of
from .source import Source


class SGLangDump(Importer):
    """A pickled list of (request, output, time of arrival, time of the end), alone or under `requests`."""

    name = "sglang-dump"
    about = "SGLang's request and crash dumps (pickle)"

    def matches(self, source: Source) -> bool:
        """By the first byte of a pickle."""
        return source.kind == "pickle"

    def records(self, source: Source, context: Context) -> Iterator[Record]:
        """The dumped requests; the server's arguments and whatever else is in it are passed over."""
        if not context.allow_pickle:
            raise TraceError(
                f"{source.path}: a pickle, which a hostile writer can make dangerous; if it is your own server's, "
                "read it with --allow-pickle (nothing in it is run: what is not expected in a dump is refused)"
            )
        try:
            with source.open() as file:
                content = pickles.load(file)
        except pickles.Unexpected as error:
            raise TraceError(
                f"{source.path}: asks for {error}, which is not expected in a dump of SGLang; it was not loaded, and "
                "the file is refused (allowed: requests, server arguments and model configurations)"
            ) from None
        except UnpicklingError as error:
            raise TraceError(f"{source.path}: not a whole pickle ({error}); copy it anew") from None
        requests = content.get("requests") if isinstance(content, dict) else content
        if not isinstance(requests, list):
            raise TraceError(f"{source.path}: holds no list of requests, so it is not a dump of SGLang")
        for number, request in enumerate(requests, 1):
            yield Record(source.path, number, request)

    def rows(self, record: Record, context: Context) -> Iterable[Row]:
        """The row of one dumped request."""
        if not isinstance(record.value, list | tuple) or len(record.value) < 3:
            raise Bad("allowed (request, output, arrival, end)", got=record.value)
        obj, out, arrival = record.value[:3]
        if type(obj).__name__ == "EmbeddingReqInput":
            raise Bad("an embedding request, which has no output tokens")
        try:
            row = row_of(_fields(obj), out, context)
        except Cut as cut:  # dumps are whole; this one was made by other hands
            raise Bad("cut", field=str(cut)) from None
        row.timestamp = seconds(arrival, "arrival")
        return [row]


def _fields(request: Any) -> Any:
    return request.fields if isinstance(request, pickles.Inert) else request
