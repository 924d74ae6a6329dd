"""Drafters by the names that the command line and results use. A new one is one function and one line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from ..baselines import BASELINES
from ..caches.base import Cache
from ..errors import ConfigError
from .trace import Trace

#: The one that is not built but read off the trace; see `recorded`.
RECORDED = "recorded"

#: Tokens of text that a drafter keeps unless told otherwise: traces of two million tokens fit without eviction.
DEFAULT_CAPACITY = 4_000_000

#: Most sessions that a drafter is asked to remember.
MAX_SESSIONS = 65_536


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a drafter's configuration has to know of the traffic.

    Attributes
    ----------
    vocab_size : int
        Every id is below it.
    eos_ids : tuple of int
        Ids that end an output.
    max_requests : int
        Most requests that run at a time.
    max_sessions : int
        Sessions and ended requests worth remembering.
    capacity_tokens : int
        Tokens of text to keep.

    Examples
    --------
    >>> from ngramspec.replay import Facts, Trace
    >>> Facts.of([Trace.of([[1, 2]], [[3, 0]], eos_ids=[0])], eos_ids=None, concurrency=8).vocab_size
    256
    """

    vocab_size: int
    eos_ids: tuple[int, ...] = ()
    max_requests: int = 1
    max_sessions: int = 1024
    capacity_tokens: int = DEFAULT_CAPACITY

    @classmethod
    def of(
        cls,
        traces: list[Trace],
        *,
        eos_ids: tuple[int, ...] | None,
        concurrency: int,
        vocab_size: int | None = None,
        capacity_tokens: int = DEFAULT_CAPACITY,
    ) -> Facts:
        """Read them off the traces that one drafter will see.

        Parameters
        ----------
        traces : list of Trace
            The trace, and those replayed before it.
        eos_ids : tuple of int, optional
            None: all that the traces record.
        concurrency : int
            Requests that run at a time.
        vocab_size : int, optional
            None: the largest id + 1, rounded up to a multiple of 256.
        capacity_tokens : int
            Tokens of text to keep.

        Raises
        ------
        ConfigError
            An id is not below `vocab_size`.
        """
        eos = sorted({i for trace in traces for i in trace.eos_ids} if eos_ids is None else set(eos_ids))
        tokens = [part.tokens for trace in traces for part in (trace.prompt, trace.output)]
        largest = max([0, *eos, *(int(part.max()) for part in tokens if len(part))])
        if vocab_size is None:
            vocab_size = min(-(-(largest + 1) // 256) * 256, 2**31 - 1)
        elif largest >= vocab_size:
            raise ConfigError(
                f"vocab_size: got {vocab_size}, but ids up to {largest} occur; allowed from {largest + 1}"
            )
        sessions = sum(len(trace.session.names) + int(np.sum(trace.session.codes < 0)) for trace in traces)
        return cls(
            vocab_size=vocab_size,
            eos_ids=tuple(eos),
            max_requests=concurrency,
            max_sessions=min(max(1024, sessions), MAX_SESSIONS),
            capacity_tokens=capacity_tokens,
        )

    def settings(self) -> dict[str, Any]:
        """Keyword arguments that every configuration class takes."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def _rolling_hash(facts: Facts, **options: Any) -> Cache:
    from ..caches.rolling_hash import RollingHashCache
    from ..config import HashConfig

    return RollingHashCache(HashConfig.from_dict(facts.settings() | options))


def _suffix_trie(facts: Facts, **options: Any) -> Cache:
    from ..caches.suffix_trie import SuffixTrieCache
    from ..config import TrieConfig

    return SuffixTrieCache(TrieConfig.from_dict(facts.settings() | options))


def _ngramspec(facts: Facts, **options: Any) -> Cache:
    from ..config import DrafterConfig
    from ..drafting.drafter import Drafter

    return Drafter(DrafterConfig.from_dict(facts.settings() | options))


def _none(facts: Facts, **options: Any) -> Cache:
    from ..caches.null import NullCache

    if options:
        raise ConfigError(f"drafter_options: got {', '.join(options)}, drafter 'none' has no options: leave them out")
    return NullCache()


def _recorded(facts: Facts, **options: Any) -> Cache:
    raise ConfigError("drafter: 'recorded' cannot draft anew, it replays what a trace records: use replay.run")


def _rival(place: str) -> Callable[..., Cache]:
    """How to build the rule at `"module:class"`; rivals remember no sessions."""

    def factory(facts: Facts, **options: Any) -> Cache:
        module, name = place.split(":")
        rule = getattr(import_module(module), name)
        signatures = [inspect.signature(part.__init__).parameters.values() for part in rule.__mro__[:-1]]
        known = dict.fromkeys(p.name for part in signatures for p in part if p.kind is p.KEYWORD_ONLY)
        for option in options:
            if option not in known:
                raise ConfigError(f"drafter_options: got {option!r}, {rule.name} has {', '.join(known)}")
        settings = facts.settings()
        del settings["max_sessions"]
        cache: Cache = rule(**(settings | options))
        return cache

    return factory


#: Name -> how to build it, from facts and options of its own by name.
DRAFTERS: dict[str, Callable[..., Cache]] = {
    "ngramspec": _ngramspec,
    "rolling-hash": _rolling_hash,
    "suffix-trie": _suffix_trie,
    "none": _none,
    RECORDED: _recorded,
    **{name: _rival(place) for name, place in BASELINES.items()},
}


def build(name: str, facts: Facts, drafter_options: Mapping[str, Any] | None = None) -> Cache:
    """A fresh drafter.

    Parameters
    ----------
    name : str
        A name in `DRAFTERS`.
    facts : Facts
        What it has to know of the traffic.
    drafter_options : mapping, optional
        Settings of its own, over its defaults and over `facts`.

    Raises
    ------
    ConfigError
        An unknown name or option, naming those there are, or a value that is not allowed.

    Examples
    --------
    >>> from ngramspec.replay import DRAFTERS, Facts, build
    >>> "suffix-decoding" in DRAFTERS
    True
    >>> build("prompt-lookup", Facts(vocab_size=1000), {"max_ngram": 3}).name
    'prompt-lookup'
    """
    if not isinstance(name, str) or name not in DRAFTERS:
        raise ConfigError(f"drafter: got {name!r}, allowed {', '.join(DRAFTERS)}")
    if drafter_options is not None and not isinstance(drafter_options, Mapping):
        raise ConfigError(f"drafter_options: got {drafter_options!r}, must be an object of settings by name")
    return DRAFTERS[name](facts, **(drafter_options or {}))
