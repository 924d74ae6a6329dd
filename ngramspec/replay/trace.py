"""`Trace`: recorded requests as flat arrays, immutable; everything else in `ngramspec.replay` reads these."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..caches.arguments import as_list, as_tokens
from ..errors import ConfigError, TraceError

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

#: Largest token id that a trace may hold.
MAX_TOKEN_ID = 2**31 - 2

#: What `Trace.retokenised` may say of a row.
RETOKENISED = ("prompt", "output", "both")

#: What a row's turn and arrival may be.
_NUMBERS = {
    "turn": "integers from 0 below 2**31, -1 where not recorded",
    "arrival": "seconds from 0, NaN where not recorded",
}


def _freeze(holder: Any, *names: str) -> None:
    """Put read-only views in the place of a frozen dataclass's arrays; the caller's own arrays stay as they are."""
    for name in names:
        view = getattr(holder, name).view()
        view.setflags(write=False)
        object.__setattr__(holder, name, view)


@dataclass(frozen=True)
class Labels:
    """One short string a row, stored as an index into distinct names.

    Attributes
    ----------
    codes : int32[n_rows]
        Index into `names`; -1 where the row has none.
    names : tuple of str
        Distinct names, in order of first appearance.
    """

    codes: Int32
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _freeze(self, "codes")

    @classmethod
    def of(cls, values: Iterable[str | None]) -> Labels:
        """Index `values`, one a row; raises `TraceError` for one that is no text."""
        values = list(values)
        if (wrong := next((v for v in values if v is not None and not isinstance(v, str)), None)) is not None:
            raise TraceError(f"labels: got {wrong!r}, allowed text or None")
        index: dict[str, int] = {}
        codes = [-1 if value is None else index.setdefault(value, len(index)) for value in values]
        return cls(np.array(codes, np.int32), tuple(index))

    def __getitem__(self, row: int) -> str | None:
        code = int(self.codes[row])
        return None if code < 0 else self.names[code]

    def tolist(self) -> list[str | None]:
        """The string of every row."""
        return [None if code < 0 else self.names[code] for code in self.codes.tolist()]

    def take(self, rows: Int64) -> Labels:
        """The labels of `rows`, names that no longer appear left out."""
        return Labels.of(self[row] for row in rows.tolist())


#: Stands for "no row" until the number of rows is known.
_NOT_RETOKENISED = Labels(np.zeros(0, np.int32))


@dataclass(frozen=True)
class Ragged:
    """Lists of token ids, one a row, end to end.

    Attributes
    ----------
    tokens : int32[n_tokens]
        Every row's ids, one row after the other.
    offsets : int64[n_rows + 1]
        Row i is `tokens[offsets[i]:offsets[i + 1]]`.
    """

    tokens: Int32
    offsets: Int64

    def __post_init__(self) -> None:
        _freeze(self, "tokens", "offsets")

    @classmethod
    def of(cls, rows: Sequence[Sequence[int] | Int32]) -> Ragged:
        """Lay `rows` end to end."""
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        tokens = np.empty(int(offsets[-1]), np.int32)
        for row, start in zip(rows, offsets[:-1].tolist(), strict=True):
            tokens[start : start + len(row)] = row
        return cls(tokens, offsets)

    @property
    def lengths(self) -> Int64:
        """Tokens of each row, int64[n_rows]."""
        return np.diff(self.offsets)

    def __getitem__(self, row: int) -> Int32:
        return self.tokens[self.offsets[row] : self.offsets[row + 1]]

    def take(self, rows: Int64) -> Ragged:
        """The given rows, in the given order."""
        return Ragged.of([self[row] for row in rows.tolist()])


@dataclass(frozen=True, repr=False)
class Trace:
    """Recorded requests, in file order.

    Arrays are read-only. Text is not kept: a trace is token ids. `n_skipped` counts bad rows that a reader left out.

    Attributes
    ----------
    name : str
        Where the trace came from, for reports.
    ids : tuple of str
        Request ids as recorded; the row number where there was none.
    prompt, output : Ragged
        Token ids. Negative ids in a prompt are placeholders (an image, say); outputs have none.
    session : Labels
        Session of each row, if any.
    turn : int32[n_rows]
        Turn within the session; -1 where not recorded.
    arrival : float64[n_rows]
        Time of arrival in seconds; NaN where not recorded.
    finish_reason, category : Labels
        As recorded (`"stop"`, `"length"`, ...), if at all.
    eos : Ragged
        Ids that end each row's output; empty where not recorded.
    sampling, spec : Labels
        Sampling parameters and speculation counters as JSON text, if recorded.
    retokenised : Labels
        `"prompt"`, `"output"` or `"both"` where ids were made from text, and so may differ from those served.
    n_skipped : int
        Bad rows left out by a reader.
    skipped : tuple of str
        Why, for the first of them.

    Examples
    --------
    >>> from ngramspec.replay import Trace
    >>> trace = Trace.of(prompts=[[1, 2, 3], [1, 2]], outputs=[[4, 5, 0], [4, 0]], eos_ids=[0])
    >>> len(trace), trace.output[1].tolist(), trace.eos_ids
    (2, [4, 0], (0,))
    """

    name: str
    ids: tuple[str, ...]
    prompt: Ragged
    output: Ragged
    session: Labels
    turn: Int32
    arrival: Float64
    finish_reason: Labels
    category: Labels
    eos: Ragged
    sampling: Labels
    spec: Labels
    retokenised: Labels = _NOT_RETOKENISED
    n_skipped: int = 0
    skipped: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.retokenised.codes):
            object.__setattr__(self, "retokenised", Labels(np.full(len(self), -1, np.int32)))
        _freeze(self, "turn", "arrival")
        _check(self)

    @classmethod
    def of(
        cls,
        prompts: Sequence[Sequence[int] | Int32],
        outputs: Sequence[Sequence[int] | Int32],
        *,
        name: str = "made",
        session: Sequence[str | None] | None = None,
        turn: Sequence[int] | None = None,
        arrival: Sequence[float] | None = None,
        finish_reason: Sequence[str | None] | None = None,
        category: Sequence[str | None] | None = None,
        eos_ids: Sequence[int] = (),
    ) -> Trace:
        """A trace of requests at hand, a prompt and an output each; what is left out counts as not recorded.

        Parameters
        ----------
        prompts, outputs : sequence of sequences of int
            Token ids, one of each a request.
        name : str
            For reports.
        session, turn, arrival, finish_reason, category : sequence, optional
            As the attributes, one value a request.
        eos_ids : sequence of int
            Ids that end every output.

        Raises
        ------
        TraceError
            Something is no list of one value a request, or a value or an id is not allowed.
        ConfigError
            Token ids are no flat list of integers, or do not fit 32 bits.
        """
        n = _length(prompts, "prompts")
        for what, given in (("outputs", outputs), ("session", session), ("turn", turn), ("arrival", arrival),
                            ("finish_reason", finish_reason), ("category", category)):  # fmt: skip
            if (what == "outputs" or given is not None) and _length(given, what) != n:
                raise TraceError(f"{what}: got {_length(given, what)} values, need {n}, one a prompt")
        none = [None] * n
        return cls(
            name=name,
            ids=tuple(map(str, range(n))),
            prompt=Ragged.of([as_tokens(ids, f"prompts[{i}]") for i, ids in enumerate(prompts)]),
            output=Ragged.of([as_tokens(ids, f"outputs[{i}]") for i, ids in enumerate(outputs)]),
            session=_labels(none if session is None else session, "session"),
            turn=np.full(n, -1, np.int32) if turn is None else _turns(turn),
            arrival=np.full(n, np.nan) if arrival is None else _flat(arrival, "arrival", "iuf").astype(np.float64),
            finish_reason=_labels(none if finish_reason is None else finish_reason, "finish_reason"),
            category=_labels(none if category is None else category, "category"),
            eos=Ragged.of([as_tokens(eos_ids, "eos_ids")] * n),
            sampling=Labels.of(none),
            spec=Labels.of(none),
        )

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"<Trace {self.name!r}: {len(self)} requests, {len(self.output.tokens):,} output tokens>"

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """Every id that ends some row's output, ascending."""
        return tuple(np.unique(self.eos.tokens).tolist())

    @property
    def n_retokenised(self) -> int:
        """Rows of which some ids were made from text."""
        return int((self.retokenised.codes >= 0).sum())

    def select(self, rows: Sequence[int] | NDArray[Any]) -> Trace:
        """A trace of the given rows (indices or a mask), in the given order; raises `ConfigError` for what is none."""
        try:
            wanted = np.asarray(rows, None if len(rows) else np.int64)
            chosen = np.arange(len(self), dtype=np.int64)[wanted]
        except (TypeError, ValueError, IndexError):
            chosen = np.zeros((), np.int64)
        if chosen.ndim != 1:
            raise ConfigError(f"rows: got {rows!r}, must be a flat list of numbers below {len(self)}, or as many bools")
        parts: dict[str, Any] = {"ids": tuple(self.ids[row] for row in chosen.tolist())}
        for field in fields(self):
            part = getattr(self, field.name)
            if isinstance(part, Ragged | Labels):
                parts[field.name] = part.take(chosen)
            elif isinstance(part, np.ndarray):
                parts[field.name] = part[chosen]
        return replace(self, **parts)

    @classmethod
    def concat(cls, traces: Sequence[Trace], name: str | None = None) -> Trace:
        """One trace after the other; sessions of the same name in two traces become one.

        Raises
        ------
        TraceError
            `traces` is empty.
        ConfigError
            `traces` is no list of traces.
        """
        traces = as_list(traces, "traces")
        for i, trace in enumerate(traces):
            if not isinstance(trace, Trace):
                raise ConfigError(f"traces[{i}]: got {trace!r}, must be a Trace")
        if not traces:
            raise TraceError("concat: got no traces, needs at least one")
        parts: dict[str, Any] = {
            "name": name or "+".join(trace.name for trace in traces),
            "ids": sum((trace.ids for trace in traces), ()),
            "n_skipped": sum(trace.n_skipped for trace in traces),
            "skipped": sum((trace.skipped for trace in traces), ()),
        }
        for field in fields(cls):
            pieces = [getattr(trace, field.name) for trace in traces]
            if isinstance(pieces[0], Ragged):
                parts[field.name] = Ragged.of([piece[row] for piece in pieces for row in range(len(piece.lengths))])
            elif isinstance(pieces[0], Labels):
                parts[field.name] = Labels.of(value for piece in pieces for value in piece.tolist())
            elif isinstance(pieces[0], np.ndarray):
                parts[field.name] = np.concatenate(pieces)
        return cls(**parts)


def _length(values: Any, what: str) -> int:
    """Entries of a list of any kind, lists of lists and arrays among them; raises `TraceError` for what is none."""
    listed = hasattr(values, "__getitem__") and not isinstance(values, (str, bytes, Mapping, type))
    if not listed or getattr(values, "ndim", 1) == 0:
        raise TraceError(f"{what}: got {type(values).__name__}, must be a list of one entry a request")
    return len(values)


def _labels(values: Iterable[str | None], what: str) -> Labels:
    try:
        return Labels.of(values)
    except TraceError as error:
        raise TraceError(f"{what}: {str(error).removeprefix('labels: ')}") from None


def _flat(values: Any, what: str, kinds: str) -> NDArray[Any]:
    """An array of one dimension and of these kinds of numbers, for `_check` to judge; raises `TraceError`."""
    try:
        found = np.array(values)
    except (ValueError, OverflowError):
        found = np.zeros(1, np.object_)
    if found.ndim != 1 or (len(found) and found.dtype.kind not in kinds):
        raise TraceError(
            f"{what}: got {found.dtype} of {found.ndim} dimensions, must be a flat list of {_NUMBERS[what]}"
        )
    return found


def _turns(values: Any) -> Int32:
    found = _flat(values, "turn", "iu")
    if len(found) and not -1 <= int(found.min()) <= int(found.max()) < 2**31:
        raise TraceError(f"turn: got {found.min()} to {found.max()}, allowed {_NUMBERS['turn']}")
    return found.astype(np.int32)


def _texts(values: Iterable[str], what: str) -> None:
    """Raise `TraceError` for what files could not hold: half a surrogate pair, or no text at all."""
    for value in values:
        if not isinstance(value, str):
            raise TraceError(f"{what}: got {value!r}, allowed text")
    try:
        "".join(values).encode()
    except UnicodeEncodeError as error:
        raise TraceError(f"{what}: got {error.object[error.start]!r}, allowed characters of Unicode") from None


def _array(values: NDArray[Any], what: str, dtype: type) -> None:
    if values.dtype != dtype or values.ndim != 1:
        raise TraceError(f"{what}: got {values.dtype} of {values.ndim} dimensions, allowed {np.dtype(dtype)} of one")


def _check(trace: Trace) -> None:
    n = len(trace)
    if not isinstance(trace.name, str):
        raise TraceError(f"name: got {trace.name!r}, allowed text")
    _texts(trace.ids, "ids")
    for name in ("prompt", "output", "eos"):
        part: Ragged = getattr(trace, name)
        tokens, offsets = part.tokens, part.offsets
        _array(tokens, f"{name}.tokens", np.int32)
        _array(offsets, f"{name}.offsets", np.int64)
        if len(offsets) != n + 1 or offsets[0] != 0 or offsets[-1] != len(tokens) or (np.diff(offsets) < 0).any():
            raise TraceError(f"{name}.offsets: must rise from 0 to {len(tokens)} in {n + 1} steps")
        low = np.iinfo(np.int32).min if name == "prompt" else 0
        if len(tokens) and not low <= tokens.min() <= tokens.max() <= MAX_TOKEN_ID:
            raise TraceError(f"{name}: got ids from {tokens.min()} to {tokens.max()}, allowed {low} to {MAX_TOKEN_ID}")
    for name in ("session", "finish_reason", "category", "sampling", "spec", "retokenised"):
        labels: Labels = getattr(trace, name)
        codes = labels.codes
        _array(codes, f"{name}.codes", np.int32)
        if len(codes) != n or (n and not -1 <= codes.min() <= codes.max() < len(labels.names)):
            raise TraceError(f"{name}: needs {n} codes from -1 to {len(labels.names) - 1}")
        _texts(labels.names, name)
    if unknown := sorted(set(trace.retokenised.names) - set(RETOKENISED)):
        raise TraceError(f"retokenised: got {unknown[0]!r}, allowed {', '.join(RETOKENISED)}")
    _array(trace.turn, "turn", np.int32)
    _array(trace.arrival, "arrival", np.float64)
    if len(trace.turn) != n or len(trace.arrival) != n:
        raise TraceError(f"turn, arrival: got {len(trace.turn)} and {len(trace.arrival)} entries, need {n}")
    turn, arrival = trace.turn, trace.arrival
    for name, wrong in (("turn", turn[turn < -1]), ("arrival", arrival[(arrival < 0) | np.isinf(arrival)])):
        if len(wrong):
            raise TraceError(f"{name}: got {wrong[0]}, allowed {_NUMBERS[name]}")
