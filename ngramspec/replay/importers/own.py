"""Traces of this project, so that they can be joined with others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..formats import read
from ..rows import Row, row_dict
from .base import Context, Importer, Record, parsed
from .source import Source


class Own(Importer):
    """JSONL, Parquet or `.npz` with `prompt_ids` and `output_ids`."""

    name = "ngramspec"
    about = "traces with prompt_ids and output_ids"

    def matches(self, source: Source) -> bool:
        """By its two lists of ids."""
        return source.kind == "npz" or {"prompt_ids", "output_ids"} <= source.fields

    def records(self, source: Source, context: Context) -> Iterator[Record]:
        """Rows as they stand."""
        if source.kind != "npz":
            yield from super().records(source, context)
            return
        trace = read(source.path)
        for row in range(len(trace)):
            yield Record(source.path, row + 1, row_dict(trace, row))

    def rows(self, record: Record, context: Context) -> Iterable[Row]:
        """The row, checked."""
        return [parsed(record.value, Row)]
