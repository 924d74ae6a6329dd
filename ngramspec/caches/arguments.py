"""Checks of what callers pass in, one way for every cache; each raises `ConfigError` before anything changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, get_args

import numpy as np

from ..draft import DraftBatch
from ..errors import ConfigError
from ..kernels.limits import bad_span
from .base import Int32, Share, Tokens

_INT32, _CONTIGUOUS = np.dtype(np.int32), (4,)
_SHARES = get_args(Share)
_LOWEST, _HIGHEST = -(2**31), 2**31 - 1  # as int32 holds them; a vocabulary ends before the last


def request_named(request_id: str, session: str | None, tenant: str | None, share: Share) -> None:
    """What `begin` is told besides tokens: names are text, and the way to share is known.

    Parameters
    ----------
    request_id, session, tenant, share
        As in `Cache.begin`.
    """
    for value, name in ((request_id, "request_id"), (session, "session"), (tenant, "tenant")):
        if not isinstance(value, str) and (value is not None or name == "request_id"):
            raise ConfigError(f"{name}: got {value!r}, must be text{'' if name == 'request_id' else ' or None'}")
    if not isinstance(share, str) or share not in _SHARES:
        raise ConfigError(f"share: got {share!r}, allowed {', '.join(map(repr, _SHARES))}")


def as_tokens(tokens: Tokens | Sequence[Any], name: str) -> Int32:
    """Token ids as a contiguous int32 array, which may be the caller's own."""
    try:
        array = np.asarray(tokens)
    except (ValueError, TypeError, OverflowError):
        raise ConfigError(f"{name}: must be a flat list of integer token ids, got lists of different lengths") from None
    if array.shape == (0,):
        return np.zeros(0, np.int32)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ConfigError(
            f"{name}: must be a flat list of integer token ids, got {array.dtype} of {array.ndim} dimensions"
        )
    if array.dtype != np.int32:
        low, high = int(array.min()), int(array.max())
        if low < _LOWEST or high > _HIGHEST:
            raise ConfigError(
                f"{name}: got token id {high if high > _HIGHEST else low}, allowed {_LOWEST} to {_HIGHEST}"
            )
    return np.ascontiguousarray(array, np.int32)


def at_least(value: int, name: str, low: int, high: int | None = _HIGHEST) -> int:
    """`value`, checked.

    Parameters
    ----------
    value : int
        What was given.
    name : str
        Of the argument, for the message.
    low, high : int
        Smallest and largest allowed value; with None there is no largest, as of limits that no output reaches.
    """
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < low or (high is not None and value > high):
        most = "" if high is None else f" and at most {high}"
        raise ConfigError(f"{name}: got {value!r}, must be an integer of at least {low}{most}")
    return int(value)


def instance(value: Any, name: str, kind: type) -> None:
    """Raise `ConfigError` unless `value` is of this class."""
    if not isinstance(value, kind):
        raise ConfigError(f"{name}: got {value!r}, allowed a {kind.__name__}")


def one_of(value: str, name: str, allowed: Sequence[str]) -> str:
    """`value`, one of these words."""
    if not isinstance(value, str) or value not in allowed:
        raise ConfigError(f"{name}: got {value!r}, allowed {', '.join(allowed)}")
    return value


def listed(values: Any, name: str) -> Iterable[Any]:
    """`values`, a list of some kind or what gives one thing after the other, which its caller looks at."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable) or getattr(values, "ndim", 1) == 0:
        raise ConfigError(f"{name}: got {values!r}, must be a list")
    return values


def as_list(values: Any, name: str) -> list[Any]:
    """A list of what is in `values`."""
    return list(listed(values, name))


def probability(value: float, name: str) -> float:
    """`value`, a number from 0 to 1."""
    if not isinstance(value, (int, float, np.integer, np.floating)) or not 0.0 <= value <= 1.0:
        raise ConfigError(f"{name}: got {value!r}, allowed 0 to 1")
    return float(value)


def as_int32(array: Any, name: str) -> Int32:
    """`array`, int32 of one dimension and contiguous, as kernels take it; never a converted copy."""
    # Seven arrays a step pass here, nearly all of them like this.
    if type(array) is np.ndarray and array.dtype is _INT32 and array.strides == _CONTIGUOUS:
        return array
    if not isinstance(array, np.ndarray) or array.dtype != np.int32 or array.ndim != 1:
        got = f"{array.dtype} of {array.ndim}" if isinstance(array, np.ndarray) else type(array).__name__
        raise ConfigError(f"{name}: must be int32 of one dimension, got {got}")
    return np.ascontiguousarray(array)


def a_row(value: int | Int32, name: str, n: int) -> Int32:
    """One value a row, int32[n]: `value` itself, or an integer for every row."""
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return _filled(max(-1, min(int(value), 2**31 - 1)), n)
    values = as_int32(value, name)
    if len(values) < n:
        raise ConfigError(f"{name}: got {len(values)} values, need {n}, one a slot")
    return values


@lru_cache(maxsize=256)
def _filled(value: int, n: int) -> Int32:
    """`value`, n times. Kept, as a step of one request would spend a tenth of its time on it; nobody writes to it."""
    return np.full(n, value, np.int32)


def enough_rows(out: DraftBatch, n: int) -> None:
    """`out` holds a batch of `n`."""
    if not isinstance(out, DraftBatch):
        raise ConfigError(f"out: got {out!r}, must be a DraftBatch; allocate one")
    if len(out.n_draft) < n:
        raise ConfigError(f"out: holds {len(out.n_draft)} rows, the batch has {n}; allocate a larger DraftBatch")


def spans(
    tokens: Int32, offsets: Int32, n: int, find_bad: Callable[[Int32, int, int], int] = bad_span
) -> tuple[Int32, Int32]:
    """Tokens and offsets of a batch of `n`, every span within the tokens.

    Parameters
    ----------
    tokens : int32[n_tokens]
        Tokens, one request after the other.
    offsets : int32[n + 1]
        Where each request's tokens start.
    n : int
        Requests.
    find_bad : callable
        `bad_span`, or the C core's.
    """
    tokens, offsets = as_int32(tokens, "tokens"), as_int32(offsets, "offsets")
    if len(offsets) < n + 1:
        raise ConfigError(f"offsets: got {len(offsets)} values, need {n + 1}, one a slot and the end")
    bad = int(find_bad(offsets, n, len(tokens)))
    if bad >= 0:
        raise ConfigError(
            f"offsets[{bad}]: got a span from {int(offsets[bad])} to {int(offsets[bad + 1])}; "
            f"spans must rise and lie within the {len(tokens)} tokens"
        )
    return tokens, offsets
