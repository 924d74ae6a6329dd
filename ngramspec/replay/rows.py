"""One row of a trace as files hold it: its fields, what they may be, and errors that name file, row and field."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, NoReturn

import msgspec
import numpy as np

from ..errors import TraceError
from .trace import MAX_TOKEN_ID, Labels, Ragged, Trace

#: Messages of skipped rows that a trace keeps.
MAX_MESSAGES = 20

Token = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKEN_ID)]
PromptToken = Annotated[int, msgspec.Meta(ge=-(2**31), le=MAX_TOKEN_ID)]


class Row(msgspec.Struct):
    """The fields that are read; others are ignored, text (`prompt`, `output`) among them.

    `spec` holds what speculation did when the row was served; `recorded.steps` says what of it can be replayed.
    """

    prompt_ids: list[PromptToken]
    output_ids: list[Token]
    id: str | int | None = None
    session: str | int | None = None
    turn: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    timestamp: Annotated[float, msgspec.Meta(ge=0)] | None = None
    category: str | None = None
    finish_reason: str | None = None
    eos_ids: list[Token] | None = None
    sampling: Any = None
    spec: Any = None
    retokenised: Literal["prompt", "output", "both"] | None = None


ALLOWED = {
    "prompt_ids": f"a list of integers from {-(2**31)} to {MAX_TOKEN_ID} (negative: a placeholder)",
    "output_ids": f"a list of integers from 0 to {MAX_TOKEN_ID}",
    "id": "a string, an integer or null",
    "session": "a string, an integer or null",
    "turn": "an integer from 0 or null",
    "timestamp": "a number of seconds from 0 or null",
    "category": "a string or null",
    "finish_reason": "a string or null",
    "eos_ids": f"a list of integers from 0 to {MAX_TOKEN_ID} or null",
    "retokenised": "one of prompt, output, both, or null",
}

#: What to do with a file that holds something else.
IMPORT = "ngramspec trace import makes a trace of other programs' logs, and of text with --tokenizer"

_PATH = re.compile(r"at `\$\.?([^`]*)`")
_MISSING = re.compile(r"missing required field `(\w+)`")


def fail(where: str, error: msgspec.ValidationError, value: Any) -> NoReturn:
    """Raise a `TraceError` that says what stood in the row (`value`, decoded) and what is allowed there."""
    text = str(error)
    foreign = isinstance(value, dict) and not {"prompt_ids", "output_ids"} & set(value)
    advice = f"; {IMPORT}" if foreign else ""
    if missing := _MISSING.search(text):
        raise TraceError(f"{where}: field {missing[1]} is missing, it must be {ALLOWED[missing[1]]}{advice}") from None
    found = _PATH.search(text)
    if not found:
        raise TraceError(f"{where}: got {_short(value)}, allowed one object with prompt_ids and output_ids") from None
    path = found[1]
    for step in re.findall(r"\w+", path):
        value = value[int(step) if step.isdigit() else step]
    field = re.split(r"\W", path)[0]
    raise TraceError(f"{where}, field {path}: got {_short(value)}, allowed {ALLOWED[field]}{advice}") from None


def _short(value: Any) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 60 else text[:57] + "..."


class Rows:
    """Collects rows and turns them into a `Trace`.

    Parameters
    ----------
    name : str
        Name of the trace, and of the file in messages.
    skip_bad : bool
        Leave a bad row out and remember why, instead of raising.
    """

    def __init__(self, name: str, skip_bad: bool) -> None:
        self.name, self.skip_bad = name, skip_bad
        self.rows: list[Row] = []
        self.prompts: list[np.ndarray[Any, Any]] = []
        self.outputs: list[np.ndarray[Any, Any]] = []
        self.n_skipped = 0
        self.messages: list[str] = []

    def add(self, row: Row) -> None:
        """Take one row; its token lists become arrays at once, which keeps memory small."""
        self.prompts.append(np.array(row.prompt_ids, np.int32))
        self.outputs.append(np.array(row.output_ids, np.int32))
        row.prompt_ids, row.output_ids = [], []
        self.rows.append(row)

    def bad(self, error: TraceError) -> None:
        """Note a bad row, or raise its error."""
        if not self.skip_bad:
            raise error
        self.n_skipped += 1
        if len(self.messages) < MAX_MESSAGES:
            self.messages.append(str(error))

    def trace(self) -> Trace:
        """All rows so far as a `Trace`; raises `TraceError` when there are none."""
        rows = self.rows
        if not rows:
            why = f": all {self.n_skipped} are bad, the first: {self.messages[0]}" if self.messages else ""
            raise TraceError(f"{self.name}: no rows{why}")
        return Trace(
            name=self.name,
            ids=tuple(str(i if row.id is None else row.id) for i, row in enumerate(rows)),
            prompt=Ragged.of(self.prompts),
            output=Ragged.of(self.outputs),
            session=Labels.of(_text(row.session) for row in rows),
            turn=np.array([-1 if row.turn is None else row.turn for row in rows], np.int32),
            arrival=np.array([np.nan if row.timestamp is None else row.timestamp for row in rows], np.float64),
            finish_reason=Labels.of(row.finish_reason for row in rows),
            category=Labels.of(row.category for row in rows),
            eos=Ragged.of([row.eos_ids or [] for row in rows]),
            sampling=Labels.of(_text(row.sampling) for row in rows),
            spec=Labels.of(_text(row.spec) for row in rows),
            retokenised=Labels.of(row.retokenised for row in rows),
            n_skipped=self.n_skipped,
            skipped=tuple(self.messages),
        )


def _text(value: Any) -> str | None:
    """A string as it is, anything else but None as JSON."""
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()


def row_dict(trace: Trace, row: int) -> dict[str, Any]:
    """Row number `row` as a plain mapping of the fields it has."""
    turn, arrival = int(trace.turn[row]), float(trace.arrival[row])
    fields = {
        "id": trace.ids[row],
        "session": trace.session[row],
        "turn": None if turn < 0 else turn,
        "timestamp": None if np.isnan(arrival) else arrival,
        "category": trace.category[row],
        "finish_reason": trace.finish_reason[row],
        "eos_ids": trace.eos[row].tolist() or None,
        "sampling": _parsed(trace.sampling[row]),
        "spec": _parsed(trace.spec[row]),
        "retokenised": trace.retokenised[row],
        "prompt_ids": trace.prompt[row].tolist(),
        "output_ids": trace.output[row].tolist(),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _parsed(text: str | None) -> Any:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
