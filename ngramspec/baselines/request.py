"""A running request of a rival rule, what is asked of the rule, and where it answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..caches.base import Int32, Share
from ..draft import ONE_Q30, Source

NO_TOKENS = np.zeros(0, np.int32)


class Ask(NamedTuple):
    """What one draft may hold."""

    width: int  #: most tokens
    depth: int  #: most tokens on one path
    tree: bool  #: whether siblings are wanted
    min_prob: float  #: least path probability


class Row(NamedTuple):
    """Where a rule writes its draft: one row of a `DraftBatch`, parents before children."""

    tokens: Int32
    parents: Int32
    path_q30: Int32


class Found(NamedTuple):
    """What a rule found."""

    n: int  #: tokens written
    match_length: int  #: tokens of context behind them; 0 where nothing matched
    source: Source = Source.OWN


NOTHING = Found(0, 0, Source.NONE)


class Text:
    """A sequence of tokens that grows in place."""

    def __init__(self, tokens: Int32 | None = None) -> None:
        self.data = np.zeros(64, np.int32)
        self.n = 0
        if tokens is not None:
            self.append(tokens)

    @property
    def tokens(self) -> Int32:
        """The tokens, a view that the next `append` may leave behind."""
        return self.data[: self.n]

    def append(self, tokens: Int32) -> None:
        """Append tokens; modifies."""
        end = self.n + len(tokens)
        if end > len(self.data):
            grown = np.zeros(max(end, 2 * len(self.data)), np.int32)
            grown[: self.n] = self.tokens
            self.data = grown
        self.data[self.n : end] = tokens
        self.n = end


@dataclass(slots=True)
class Request:
    """One running request."""

    request_id: str  #: as given to `begin`
    slot: int  #: its place in batches
    tenant: str | None  #: whose memory it reads and feeds
    share: Share  #: what others may see of it
    prompt: Int32  #: all of it, placeholders renamed
    text: Text = field(default_factory=Text)  #: ingested prompt, then output
    draft: tuple[Int32, Int32] = (NO_TOKENS, NO_TOKENS)  #: tokens and parents last offered
    drafted: bool = False  #: whether a draft was asked for since the last accept
    banned: set[int] = field(default_factory=set)  #: first tokens refused since the last progress
    state: Any = None  #: what the rule keeps for the request

    @property
    def ready(self) -> bool:
        """Whether the prompt is ingested to its end and there is a last token."""
        return self.text.n > 0 and self.text.n >= len(self.prompt)


def write_chain(row: Row, tokens: Int32) -> int:
    """Write a chain without probabilities into `row`; returns its length."""
    n = len(tokens)
    row.tokens[:n] = tokens
    row.parents[:n] = np.arange(-1, n - 1, dtype=np.int32)
    row.path_q30[:n] = ONE_Q30
    return n
