"""Traces of arrivals: lengths and times without tokens. They are known, and refused with the reason."""

from __future__ import annotations

from collections.abc import Iterable

from ..rows import Row
from .base import Context, Importer, Record, refuse
from .source import Source

#: Lengths in the place of tokens, as Mooncake, Azure's and BurstGPT's traces call them.
FIELDS = (
    {"input_length", "output_length"},
    {"hash_ids"},
    {"ContextTokens", "GeneratedTokens"},
    {"Request tokens", "Response tokens"},
)


class Arrivals(Importer):
    """Known by its lengths, never read."""

    name = "arrivals"
    about = "traces of lengths and times alone; refused, they hold no tokens"

    def matches(self, source: Source) -> bool:
        """By lengths where tokens should be."""
        return any(names <= source.fields for names in FIELDS)

    def rows(self, record: Record, context: Context) -> Iterable[Row]:
        """None: raises `TraceError`."""
        raise refuse(
            record,
            "lengths and arrivals without tokens: what a drafter would have found cannot be told from them; record "
            "token ids with the same traffic (SGLang: --log-requests --log-requests-level 3; vLLM: return_token_ids)",
        )
