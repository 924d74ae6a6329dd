"""Rows of tables: Parquet, and text with separated columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from .failure import Bad
from .file import DAMAGED, File

#: Characters in the longest cell.
LONGEST = 2**31 - 1

#: Rows that are decoded at a time: few, since a row may hold a whole conversation.
BATCH = 64


def parquet(file: File) -> Iterator[tuple[int, Any]]:
    """Rows of a Parquet file as dicts, numbered from 1; a `Bad` where it cannot be read on."""
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        with pyarrow.parquet.ParquetFile(file.path) as table:
            total = max(1, table.metadata.num_rows)
            for batch in table.iter_batches(BATCH):
                for item in batch.to_pylist():
                    number += 1
                    file.done = file.size * number // total
                    yield number, item
    except (pyarrow.ArrowException, UnicodeDecodeError, OSError) as error:
        yield number + 1, Bad("not readable as Parquet", got=str(error))


def csv_rows(file: File) -> Iterator[tuple[int, Any]]:
    """Rows under a header as dicts of text, numbered from 1 below it; a `Bad` for each that does not fit.

    Columns are separated by commas, or by tabs when the header has any.
    """
    csv.field_size_limit(LONGEST)
    number = 0
    with file.open() as content, io.TextIOWrapper(content, "utf-8-sig", newline="") as text:
        try:
            header = text.readline()
            text.seek(0)
            reader = csv.DictReader(text, dialect="excel-tab" if "\t" in header else "excel", strict=True)
            if len(set(reader.fieldnames or ())) < 2:
                return
            for row in reader:
                number += 1
                fits = None not in row and None not in row.values()
                yield number, row if fits else Bad("a row must have as many cells as the header")
        except (csv.Error, UnicodeDecodeError, OSError, *DAMAGED) as error:
            yield number + 1, Bad("not readable as text in columns", got=str(error))
