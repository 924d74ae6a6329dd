"""What every released drafter is behind: calls that separate its own work from the engine's and from ours.

An engine keeps the text of its requests itself, in the form that its drafter reads; `hold` and `append` stand for that
and are never timed. `ingest`, `propose`, `learn` and `finish` are what the drafter costs. `read` turns what it proposed
into tokens and parents, for comparing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

#: (tokens, parents) of one draft; -1 is the last committed token.
Drafted = tuple[list[int], list[int]]


class Variant(NamedTuple):
    """One way to set a drafter up."""

    options: dict[str, Any]  #: of the rule
    topology: str  #: "chain" or "tree"
    max_draft: int  #: most tokens a draft
    eos_ids: tuple[int, ...] = ()  #: for rules that look at them


class Rival(Protocol):
    """A drafter, driven as its engine drives it."""

    def hold(self, request: str, prompt: np.ndarray) -> None:
        """Engine: keep the text of a new request, int32[n]."""

    def append(self, requests: list[str], emitted: list[list[int]]) -> None:
        """Engine: append what was emitted to the texts, after `learn`."""

    def ingest(self, request: str, prompt: np.ndarray) -> None:
        """Drafter: take note of a new request."""

    def propose(self, requests: list[str]) -> Any:
        """Drafter: one draft a request, in the form that the engine gets."""

    def learn(self, requests: list[str], emitted: list[list[int]]) -> None:
        """Drafter: take note of the tokens of a step, before `append`."""

    def finish(self, request: str) -> None:
        """Drafter: a request ended."""

    def read(self, proposed: Any) -> list[Drafted]:
        """What `propose` returned, for comparing."""


def chain(tokens: Sequence[int]) -> Drafted:
    """A draft without branches."""
    return list(tokens), list(range(-1, len(tokens) - 1))


def accepted(draft: Drafted, record: Sequence[int]) -> int:
    """Drafted tokens that the record goes on with."""
    at, n = -1, 0
    for i, (token, parent) in enumerate(zip(*draft, strict=True)):
        if n < len(record) and parent == at and token == record[n]:
            at, n = i, n + 1
    return n
