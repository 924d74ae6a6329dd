"""Why a record was left out."""

from __future__ import annotations

import re
from typing import Any

_NOTHING = object()


class Bad(Exception):
    """One record, or one turn of it, cannot be used: it is left out and counted under its reason.

    Parameters
    ----------
    reason : str
        What is wrong or allowed; the same words for the same fault, so that faults can be counted.
    field : str
        Where in the record, as `choices[0].token_ids[3]`.
    got : object
        What stood there.
    """

    def __init__(self, reason: str, *, field: str = "", got: Any = _NOTHING) -> None:
        super().__init__(reason)
        self.reason, self.field, self.got = reason, field, got

    @property
    def kind(self) -> str:
        """Field and reason without what differs from record to record."""
        field = re.sub(r"\[\d+\]", "[]", self.field)
        return f"field {field}: {self.reason}" if field else self.reason

    def at(self, where: str) -> str:
        """The full message; `where` names file and row."""
        place = f"{where}, field {self.field}" if self.field else where
        got = "" if self.got is _NOTHING else f"got {_short(self.got)}, "
        return f"{place}: {got}{self.reason}"


def _short(value: Any) -> str:
    # Not the whole of a large value: a pickled one may be small on disk and endless when written out.
    text = repr(value) if isinstance(value, str | int | float | bool | None) else f"a {type(value).__name__}"
    return text if len(text) <= 60 else text[:57] + "..."
