"""SGLang's request log: `--log-requests --log-requests-level 3 --log-requests-format json`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice

from ..rows import Row
from .base import Context, Importer, Record, refuse, seconds
from .failure import Bad
from .sglang import Cut, row_of
from .source import N_LOOK, Source, decoded

#: A line of the log: an object, behind a time in brackets since SGLang 0.5. What collects logs may put fields
#: ahead of these; in text inside the object the quotes would be escaped.
_LINE = re.compile(rb'(?:\[[^\]{}]*\]\s*)?(\{.*?"event": ?"request\..*)', re.DOTALL)
#: The same log in the other format, which writes Python rather than JSON.
_AS_TEXT = re.compile(rb"(?:\[[^\]{}]*\]\s*)?(?:Receive|Finish): obj=")

LEVEL_3 = "log again with --log-requests-level 3 --log-requests-format json"


class SGLangLog(Importer):
    """Lines of finished requests; other lines of a server's output are passed over."""

    name = "sglang-log"
    about = "SGLang's log with --log-requests --log-requests-level 3 --log-requests-format json"

    def matches(self, source: Source) -> bool:
        """By a line that the request logger wrote, among the first."""
        if source.kind not in ("json", "text"):
            return False
        lines = (line for _, line in islice(source.lines(), N_LOOK) if isinstance(line, bytes))
        return any(_LINE.match(line) or _AS_TEXT.match(line) for line in lines)

    def records(self, source: Source, context: Context) -> Iterator[Record]:
        """Lines that the request logger wrote."""
        for number, line in source.lines():
            if isinstance(line, Bad):
                yield Record(source.path, number, line)
            elif found := _LINE.match(line):
                yield Record(source.path, number, decoded(found[1]))
            elif _AS_TEXT.match(line):
                raise refuse(Record(source.path, number, None), f"a log in text format: {LEVEL_3}")

    def rows(self, record: Record, context: Context) -> Iterable[Row]:
        """The row of a finished request; none for the line that only says it came in."""
        line = record.value
        if line.get("event") != "request.finished":
            return []
        obj, out = line.get("obj"), line.get("out")
        if isinstance(obj, dict) and isinstance(out, dict) and not {"output_ids", "text", "embedding"} & set(out):
            # Two keys that levels 0 and 1 leave out, and levels 2 and 3 never do.
            raise refuse(record, f"a log of level 0 or 1, which holds no tokens: {LEVEL_3}")
        try:
            row = row_of(obj, out, context)
        except Cut as cut:
            raise refuse(
                record,
                f"field {cut} is cut by the logger, so this is a log of level 2, which shortens everything longer than "
                f"2,048; the rows that are left would be the short ones, not a sample of the traffic: {LEVEL_3}",
            ) from None
        ended = seconds(line.get("timestamp"), "timestamp")
        latency = ((out or {}).get("meta_info") or {}).get("e2e_latency")
        if ended is not None and isinstance(latency, int | float):
            row.timestamp = max(0.0, ended - latency)
        return [row]
