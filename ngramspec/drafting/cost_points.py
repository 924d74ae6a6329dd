"""Measured steps, the points that a cost model is built from, and their checks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from ..caches.arguments import as_list
from ..errors import ConfigError

#: Largest count in a point; beyond it float64 would round.
LARGEST = 1e12  # of any time or rate, in its unit
MAX_COUNT = 2**52


class Point(NamedTuple):
    """One measured step."""

    n_tokens: int  #: tokens that the step computed, over the whole batch; equal to `batch` in a decode step
    batch: int  #: running requests
    kv_tokens: int  #: tokens in the KV cache, over the whole batch
    ms: float  #: time of the step, milliseconds


class Throughput(NamedTuple):
    """Tokens a second that a server was measured to decode, without speculation and beside the points of its model."""

    batch: int  #: requests that decoded at a time
    prompt_tokens: int  #: prompt of each request
    output_tokens: int  #: output of each request
    tokens_per_second: float  #: of all requests together, first tokens left out


def number(value: Any, name: str) -> float:
    """`value`, a finite number."""
    try:
        known = isinstance(value, (int, float, np.number)) and not isinstance(value, bool) and isfinite(value)
    except (OverflowError, TypeError):  # an integer beyond any float; a complex number
        known = False
    if not known:
        raise ConfigError(f"{name}: got {value!r}, must be a number")
    return float(value)


def not_negative(value: Any, name: str) -> float:
    """`value`, a number from 0 to `LARGEST`."""
    if not 0.0 <= number(value, name) <= LARGEST:
        raise ConfigError(f"{name}: got {value!r}, must be a number from 0 to {LARGEST:g}")
    return float(value)


def positive(value: Any, name: str) -> float:
    """`value`, a number above 0, from 1 / `LARGEST` to `LARGEST`."""
    if not 1.0 / LARGEST <= number(value, name) <= LARGEST:
        raise ConfigError(f"{name}: got {value!r}, must be a number above 0, from {1 / LARGEST:g} to {LARGEST:g}")
    return float(value)


def count(value: Any, name: str, low: int) -> int:
    """`value`, an integer from `low`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= MAX_COUNT:
        raise ConfigError(f"{name}: got {value!r}, must be an integer from {low} to {MAX_COUNT}")
    return int(value)


def read_point(given: Mapping[str, Any]) -> tuple[str, Point]:
    """Phase (`"decode"` or `"verify"`) and point of a mapping; errors begin with the field's name.

    Without a phase, a step of one token a request is a decode step.
    """
    if not isinstance(given, Mapping):
        raise ConfigError(f"point: got {given!r}, must be an object with n_tokens, batch and ms")
    for name in given:
        if name not in ("phase", *Point._fields):
            raise ConfigError(f"{name}: unknown field, allowed phase, {', '.join(Point._fields)}")
    for name in ("n_tokens", "batch", "ms"):
        if given.get(name) is None:
            raise ConfigError(f"{name}: missing")
    batch = count(given["batch"], "batch", 1)
    n_tokens = count(given["n_tokens"], "n_tokens", batch)
    kv_tokens = count(given.get("kv_tokens", 0), "kv_tokens", 0)
    phase = given.get("phase", "decode" if n_tokens == batch else "verify")
    if not isinstance(phase, str) or phase not in ("decode", "verify"):
        raise ConfigError(f"phase: got {phase!r}, allowed decode or verify")
    if phase == "decode" and n_tokens != batch:
        raise ConfigError(f"n_tokens: got {n_tokens} in a decode step of batch {batch}, which computes {batch}")
    return phase, Point(n_tokens, batch, kv_tokens, positive(given["ms"], "ms"))


def throughputs(given: Iterable[Throughput | Mapping[str, Any]]) -> tuple[Throughput, ...]:
    """Measured throughputs, checked; errors begin with the place and the field's name."""
    found = []
    for i, item in enumerate(as_list(given, "measured")):
        fields = item._asdict() if isinstance(item, Throughput) else item
        where = f"measured[{i}]"
        if not isinstance(fields, Mapping):
            raise ConfigError(f"{where}: got {fields!r}; needs {', '.join(Throughput._fields)}")
        if set(fields) != set(Throughput._fields):
            raise ConfigError(
                f"{where}: got fields {', '.join(map(str, fields))}; needs {', '.join(Throughput._fields)}"
            )
        found.append(
            Throughput(
                count(fields["batch"], f"{where}.batch", 1),
                count(fields["prompt_tokens"], f"{where}.prompt_tokens", 0),
                count(fields["output_tokens"], f"{where}.output_tokens", 2),
                positive(fields["tokens_per_second"], f"{where}.tokens_per_second"),
            )
        )
    return tuple(found)


def in_order(points: tuple[Point, ...], phase: str) -> tuple[Point, ...]:
    """Points of one phase by batch, KV tokens and tokens; raises for none, for wrong ones and for two at one place."""
    points = tuple(as_list(points, phase))
    if not points:
        needed = "one token a request" if phase == "decode" else "more than one token a request"
        raise ConfigError(f"{phase}: no points; at least one step of {needed} is needed")
    found: dict[tuple[int, int, int], Point] = {}
    for i, given in enumerate(points):
        try:
            point = read_point({"phase": phase, **Point(*given)._asdict()})[1]
        except TypeError:
            raise ConfigError(f"{phase}[{i}]: got {given!r}, must be a Point") from None
        except ConfigError as error:
            raise ConfigError(f"{phase}[{i}].{error}") from None
        key = (point.batch, point.kv_tokens, point.n_tokens)
        if key in found:
            raise ConfigError(
                f"{phase}: two points of batch {key[0]}, {key[1]} KV tokens and {key[2]} tokens; give one"
            )
        found[key] = point
    return tuple(found[key] for key in sorted(found))
