"""What a step costs: time by tokens verified in the whole batch, batch size and KV tokens, from measured points."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ..caches.arguments import as_list, at_least, one_of
from ..errors import ConfigError
from ..kernels.step_time import fill_times
from .cost_points import Point, Throughput, count, in_order, not_negative, positive, read_point, throughputs

Float64 = NDArray[np.float64]

#: Where a figure comes from: measured on a GPU or a CPU, computed from a model of the hardware, or read somewhere.
Kind = Literal["measured-gpu", "measured-cpu", "modelled", "read"]
KINDS: tuple[str, ...] = get_args(Kind)

#: Where a straight line is sampled; any two places give the same line.
_LINE = (1, 1025)
_LINE_KV = (0, 2**20)


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """Step time of one engine, model and machine. Frozen: a table read off it is the same on every rank.

    Between points it interpolates linearly, in tokens inside KV tokens inside batch; below the first point that point's
    time holds, beyond the last two their line goes on without falling, and one point alone is constant.

    Parameters
    ----------
    decode : tuple of Point
        Steps without speculation: one token a request.
    verify : tuple of Point
        Steps that verify drafts: more than one token a request.
    captured : tuple of int
        Tokens a batch for which the engine has captured graphs, ascending: a step is padded to the next, so that it
        costs what that costs. Empty: nothing is padded.
    exposed_us : float
        Time of drafting, learning and ingesting that the engine's own work does not hide, µs a request and step.
    name : str
        How results call it.
    kind : {"measured-gpu", "measured-cpu", "modelled", "read"}
        Where the figures come from.
    note : str
        Model, machine and source, in words.
    measured : tuple of Throughput
        Tokens a second without speculation, measured apart from the points; see `replay.reproduction`.
    includes_drafting : str
        Drafter whose own time is in the verify points, as it is in steps measured on a server while it speculates:
        that time must not be charged again. Empty: none, or not known.

    Raises
    ------
    ConfigError
        A point, the captured sizes or a label is not allowed.

    Examples
    --------
    >>> from ngramspec.replay import CostModel
    >>> model = CostModel.from_two(baseline_tps=82, verify_ms=30)
    >>> round(model.breakeven_accept_length(), 2)  # tokens a step that speculation needs to pay
    2.46
    >>> CostModel.from_linear(base_ms=7.1, per_token_ms=0.021).step_ms(n_tokens=32 * 4, batch=32)
    9.788
    """

    decode: tuple[Point, ...]
    verify: tuple[Point, ...]
    captured: tuple[int, ...] = ()
    exposed_us: float = 0.0
    name: str = "custom"
    kind: Kind = "read"
    note: str = ""
    measured: tuple[Throughput, ...] = ()
    includes_drafting: str = ""
    #: Whether step times depend on KV tokens at a given batch.
    needs_kv: bool = field(init=False, repr=False, compare=False)
    _arrays: tuple[Float64, Float64, NDArray[np.int64]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for what in ("decode", "verify"):
            object.__setattr__(self, what, in_order(getattr(self, what), what))
        captured = tuple(as_list(self.captured, "captured"))
        object.__setattr__(self, "captured", captured)
        for i, n in enumerate(captured):
            count(n, f"captured[{i}]", 1)
        if list(captured) != sorted(set(captured)):
            raise ConfigError(f"captured: got {list(captured)}, must rise")
        not_negative(self.exposed_us, "exposed_us")
        if self.exposed_us and self.includes_drafting:
            raise ConfigError(
                f"exposed_us: got {self.exposed_us:g}, but the verify points hold the time of drafting by "
                f"{self.includes_drafting} already, so that it would count twice; leave one of them out"
            )
        one_of(self.kind, "kind", KINDS)
        for what in ("name", "note", "includes_drafting"):
            if not isinstance(getattr(self, what), str):
                raise ConfigError(f"{what}: got {getattr(self, what)!r}, must be text")
        object.__setattr__(self, "measured", throughputs(self.measured))
        sides = (self.decode, self.verify)
        lengths = [p.kv_tokens != q.kv_tokens and p.batch == q.batch for side in sides for p, q in pairwise(side)]
        object.__setattr__(self, "needs_kv", any(lengths))
        tables = [np.array([(p.batch, p.kv_tokens, p.n_tokens, p.ms) for p in side]) for side in sides]
        object.__setattr__(self, "_arrays", (*tables, np.array(captured, np.int64)))

    @classmethod
    def from_points(cls, points: Iterable[Mapping[str, Any] | Point], **labels: Any) -> CostModel:
        """Build from measured steps; those of one token a request are decode steps, unless a phase says otherwise.

        Parameters
        ----------
        points : iterable of mapping or Point
            With `n_tokens`, `batch`, `kv_tokens` (0 where left out) and `ms`. A mapping may name its `phase`,
            `"decode"` or `"verify"`; a verify step of one token a request is a point of the verify curve alone.
        **labels
            Other parameters of the class.

        Raises
        ------
        ConfigError
            Names the point and the field.
        """
        sides: dict[str, list[Point]] = {"decode": [], "verify": []}
        for i, given in enumerate(as_list(points, "points")):
            try:
                phase, point = read_point(given._asdict() if isinstance(given, Point) else given)
            except ConfigError as error:
                raise ConfigError(f"points[{i}].{error}") from None
            sides[phase].append(point)
        return cls(decode=tuple(sides["decode"]), verify=tuple(sides["verify"]), **labels)

    @classmethod
    def from_two(cls, baseline_tps: float, verify_ms: float, **labels: Any) -> CostModel:
        """Build from the speed without speculation and the time of a verify step, whatever its width, at batch 1.

        Parameters
        ----------
        baseline_tps : float
            Tokens a second of one request without speculation.
        verify_ms : float
            Milliseconds of a verify step.
        **labels
            Other parameters of the class.
        """
        decode = Point(1, 1, 0, 1000.0 / positive(baseline_tps, "baseline_tps"))
        verify = Point(2, 1, 0, positive(verify_ms, "verify_ms"))
        return cls(decode=(decode,), verify=(verify,), **{"name": "two numbers", **labels})

    @classmethod
    def from_linear(cls, base_ms: float, per_token_ms: float, per_kv_token_ms: float = 0.0, **labels: Any) -> CostModel:
        """Build from a fit `base_ms + per_token_ms * n_tokens + per_kv_token_ms * kv_tokens`.

        Parameters
        ----------
        base_ms : float
            Milliseconds of a step without any token.
        per_token_ms, per_kv_token_ms : float
            Milliseconds that each token verified, and each in the KV cache, adds.
        **labels
            Other parameters of the class.
        """
        positive(base_ms, "base_ms")
        not_negative(per_token_ms, "per_token_ms")
        not_negative(per_kv_token_ms, "per_kv_token_ms")

        def at(n: int, batch: int, kv: int) -> Point:
            return Point(n, batch, kv, base_ms + per_token_ms * n + per_kv_token_ms * kv)

        kvs = _LINE_KV if per_kv_token_ms else _LINE_KV[:1]
        decode = tuple(at(n, n, kv) for n in _LINE for kv in kvs)
        return cls(decode=decode, verify=tuple(at(n, 1, kv) for n in _LINE for kv in kvs), **labels)

    def with_exposed(self, us: float) -> CostModel:
        """The same model with `us` µs of drafting a request and step that nothing hides."""
        return replace(self, exposed_us=us)

    def fill(self, out: Float64, batch: int, kv_tokens: int = 0, *, stride: int = 1, exposed: bool = True) -> None:
        """Write to `out[i]` the time of a step that computes `batch + i * stride` tokens, in one compiled call.

        Parameters
        ----------
        out : float64[n]
            Filled with milliseconds. `out[0]` is a decode step.
        batch : int
            Running requests.
        kv_tokens : int
            Tokens in the KV cache over the whole batch.
        stride : int
            Tokens from one entry to the next: `batch` for one more drafted token a request.
        exposed : bool
            Add `exposed_us` of every request, which plain decoding after drafting has spent too.
        """
        extra = self.exposed_ms(batch) if exposed else 0.0
        fill_times(*self._arrays, batch, kv_tokens, batch, stride, extra, out)

    def step_ms(self, n_tokens: int, batch: int, kv_tokens: int = 0) -> float:
        """Time of a step that computes `n_tokens` over the whole batch, exposed drafting left out, in milliseconds.

        Parameters
        ----------
        n_tokens : int
            Committed and drafted tokens, padding included. Up to `batch`, it is a decode step.
        batch : int
            Running requests.
        kv_tokens : int
            Tokens in the KV cache over the whole batch.
        """
        count(batch, "batch", 1)
        at_least(kv_tokens, "kv_tokens", 0, 2**62)
        out = np.empty(1)
        fill_times(*self._arrays, batch, kv_tokens, max(int(n_tokens), batch), 1, 0.0, out)
        return float(out[0])

    def decode_ms(self, batch: int, kv_tokens: int = 0) -> float:
        """Time of a step without speculation, in milliseconds."""
        return self.step_ms(batch, batch, kv_tokens)

    def exposed_ms(self, batch: int) -> float:
        """Time of drafting for `batch` requests that nothing hides, in milliseconds."""
        return self.exposed_us * count(batch, "batch", 0) / 1000.0

    def breakeven_accept_length(self, batch: int = 1, width: int = 1, kv_tokens: int = 0) -> float:
        """Accept length above which verifying `width` drafted tokens a request beats decoding.

        Parameters
        ----------
        batch : int
            Running requests.
        width : int
            Drafted tokens a request, at least 1.
        kv_tokens : int
            Tokens in the KV cache over the whole batch.
        """
        count(batch, "batch", 1)
        count(width, "width", 1)
        verify = self.step_ms(batch * (1 + width), batch, kv_tokens)
        return (verify + self.exposed_ms(batch)) / self.decode_ms(batch, kv_tokens)

    @property
    def caveat(self) -> str:
        """What to know before the width of drafts is chosen by this model; empty where it tells widths apart."""
        told: dict[int, bool] = {}
        for (batch, _), points in groupby(self.verify, lambda point: (point.batch, point.kv_tokens)):
            told[batch] = told.get(batch, False) or len(list(points)) > 1
        flat = ", ".join(str(batch) for batch, more in told.items() if not more)
        if not flat:
            return ""
        return f"one width of verify steps at batch {flat}: others are taken to cost as much until measured and added"

    def describe(self) -> dict[str, Any]:
        """Everything in it, as JSON can hold it; `cost_file.parse` reads it back."""
        points = [{"phase": phase, **p._asdict()} for phase in ("decode", "verify") for p in getattr(self, phase)]
        optional: dict[str, Any] = {"measured": [m._asdict() for m in self.measured]} if self.measured else {}
        if self.includes_drafting:
            optional["includes_drafting"] = self.includes_drafting
        return {
            "name": self.name,
            "kind": self.kind,
            "note": self.note,
            "captured": list(self.captured),
            "exposed_us": self.exposed_us,
            "points": points,
        } | optional
