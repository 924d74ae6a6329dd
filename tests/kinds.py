"""Every cache there is, by name, and what may be expected of it beyond the protocol."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ngramspec.caches.null import NullCache
from ngramspec.caches.rolling_hash import RollingHashCache
from ngramspec.caches.suffix_trie import SuffixTrieCache
from ngramspec.config import DrafterConfig, HashConfig, TrieConfig
from ngramspec.drafting.drafter import Drafter
from tests.strategies import EOS, VOCAB_SIZE


@dataclass(frozen=True)
class Kind:
    """One cache.

    Attributes
    ----------
    build : callable
        Builds it from the settings that every configuration has, and its own.
    config : callable, optional
        Its configuration, from the same settings; None where it keeps no text.
    attach : callable, optional
        Attaches it to a buffer: takes a configuration and the buffer.
    max_match : int
        Longest match it can report.
    shared_context : int
        Tokens of an unshared prompt that it keeps ahead of a shared output, only to match.
    exact : dict, optional
        Settings with which it reports the longest match there is while few places compete.
    learns : bool
        Whether it learns from outcomes: then probabilities, and which token goes first, depend on all that was emitted
        before, and emitted text counts more than prompts.
    """

    build: Callable[..., Any]
    config: Callable[..., Any] | None = None
    attach: Callable[..., Any] | None = None
    max_match: int = 0
    shared_context: int = 0
    exact: dict[str, Any] | None = None
    learns: bool = False


def _null(max_requests: int = 256, **unused: Any) -> NullCache:
    return NullCache(max_requests=max_requests)


def _over(config: Callable[..., Any], cache: Callable[..., Any], **expected: Any) -> Kind:
    return Kind(lambda **settings: cache(config(**settings)), config, cache, **expected)


KINDS = {
    "none": Kind(_null),
    "rolling-hash": _over(HashConfig, RollingHashCache, max_match=32, shared_context=8, exact={"max_hops": 64}),
    "suffix-trie": _over(TrieConfig, SuffixTrieCache, max_match=7, shared_context=7, exact={}),
    "ngramspec": _over(DrafterConfig, Drafter, max_match=32, shared_context=8, exact={"max_hops": 64}, learns=True),
}

#: Those that draft.
DRAFTING = tuple(name for name in KINDS if name != "none")

#: Small, and the same for every cache.
SETTINGS = {
    "vocab_size": VOCAB_SIZE,
    "eos_ids": (EOS,),
    "max_requests": 8,
    "max_sessions": 8,
    "capacity_tokens": 2_048,
}


def make(name: str, **changed: Any) -> Any:
    """A small cache by name."""
    return KINDS[name].build(**SETTINGS | changed)


def smallest_capacity(name: str, **settings: Any) -> int:
    """The smallest capacity that a configuration allows; 0 where nothing is kept."""
    config = KINDS[name].config
    return 0 if config is None else config(**settings, capacity_tokens=1_000_000).min_capacity_tokens
