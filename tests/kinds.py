"""Every cache there is, by name, and what may be expected of it beyond the protocol."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ngramspec import HashConfig, RollingHashCache
from ngramspec.caches.null import NullCache


@dataclass(frozen=True)
class Kind:
    """One cache.

    Attributes
    ----------
    make : callable
        Builds it; takes the settings that every configuration has, and its own.
    config : callable, optional
        Its configuration, from the same settings; None where it keeps no text.
    max_match : int
        Longest match it can report.
    shared_context : int
        Tokens of an unshared prompt that it keeps ahead of a shared output, only to match.
    exact : bool
        Whether it reports the longest match there is while few places compete.
    """

    make: Callable[..., Any]
    config: Callable[..., Any] | None = None
    max_match: int = 0
    shared_context: int = 0
    exact: bool = False


def _null(max_requests: int = 256, **unused: Any) -> NullCache:
    return NullCache(max_requests=max_requests)


def _rolling_hash(**settings: Any) -> RollingHashCache:
    return RollingHashCache(HashConfig(**settings))


KINDS = {
    "none": Kind(_null),
    "rolling-hash": Kind(_rolling_hash, HashConfig, max_match=32, shared_context=8, exact=True),
}

#: Those that draft.
DRAFTING = tuple(name for name in KINDS if name != "none")
