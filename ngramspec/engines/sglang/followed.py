"""What is read of the engine's requests, whose text they may meet, and what is remembered of each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ...caches.base import Int32, Share

#: Key of a request's `custom_params`, and what it may hold: not to be shared, or not to be drafted for at all.
OPTION, PRIVATE, OFF = "ngramspec", "private", "off"


class Request(Protocol):
    """What is read of an engine's request."""

    rid: str
    origin_input_ids_unpadded: Sequence[int]
    output_ids: Sequence[int]
    output_ids_through_stop: Sequence[int]
    sampling_params: Any
    extra_key: str | None
    cache_salt: str | None
    lora_id: str | None
    session_id: str | None

    def finished(self) -> bool:
        """Whether the engine has ended it."""


@dataclass
class Log:
    """What a record tells of one request beside its text."""

    arrival: float  #: seconds since 1970
    first_step: int  #: number of the scheduler's decode step
    lengths: list[int] = field(default_factory=list)  #: tokens emitted by each of its steps
    drafted: list[int] = field(default_factory=list)  #: for each of its steps


@dataclass
class Followed:
    """A request that the drafter knows, or is about to."""

    request: Request  #: the engine's record
    name: str  #: in the drafter; engines may reuse their ids at once
    prompt: Int32  #: tokens
    n_prompt: int  #: tokens
    n_before: int  #: tokens that it had emitted when it was first seen, and no step of ours
    slot: int = -1  #: in the drafter; -1 until it was begun there
    n_known: int = 0  #: tokens of the history that the drafter has or, of the prompt, will read
    n_unread: int = 0  #: tokens of the prompt that it still has to read; nothing is drafted until then
    limit: int = -1  #: tokens that it may emit; -1 where nobody knows
    n_open: int = 0  #: steps whose outcome is not known yet
    log: Log | None = None  #: where it is recorded

    @property
    def ready(self) -> bool:
        """Whether it can be drafted for."""
        return self.slot >= 0 and not self.n_unread

    def missing(self, output: Sequence[int], latest: Sequence[int]) -> list[int] | None:
        """Tokens of `output` and `latest` that the drafter lacks; None where it has more than there are.

        Parameters
        ----------
        output : sequence of int
            As the engine recorded it.
        latest : sequence of int
            Accepted by the latest step and not in `output` yet.
        """
        have = self.n_known - self.n_prompt
        if have <= len(output):
            return [*output[have:], *latest]
        have -= len(output)
        return None if have > len(latest) else list(latest[have:])

    def outcome(self, n_new: int) -> list[int]:
        """Tokens that each open step emitted, `n_new` tokens having come since; modifies.

        Where several steps were open, none but the last had a draft.
        """
        n_steps, self.n_open = self.n_open, 0
        n_new -= self.n_before
        self.n_before = 0
        return [1] * (n_steps - 1) + [n_new - n_steps + 1] if 0 < n_steps <= n_new else []


def tenant_of(request: Request, share: str) -> tuple[str, Share]:
    """Whose text a request may meet: a tenant's name, and what the request leaves behind for it.

    Parameters
    ----------
    request : Request
        `cache_salt` and `extra_key` name its tenant. The engine appends the adapter's id to `extra_key`, which names a
        model and nobody's tenant: it keeps adapters apart and is no key.
    share : {"tenant", "all users", "everything", "nothing"}
        See `EngineConfig`.
    """
    adapter = request.lora_id or ""
    extra = (request.extra_key or "").removesuffix(adapter) if adapter else request.extra_key or ""
    key = [adapter, request.cache_salt or "", extra]
    if share in ("all users", "everything"):
        return json.dumps([adapter]), "outputs" if share == "all users" else "all"
    keyed = bool(key[1] or key[2])
    return json.dumps(key), "outputs" if share == "tenant" and keyed else "none"


def option_of(request: Request) -> Any:
    """What the request asks of us: `PRIVATE`, `OFF` or nothing."""
    custom = getattr(request.sampling_params, "custom_params", None)
    return custom.get(OPTION) if isinstance(custom, dict) else None


def as_array(tokens: Sequence[int]) -> Int32:
    """Token ids as an array of their own. A copy: an `array.array` that numpy looks into could not grow."""
    return np.array(tokens, np.int64).astype(np.int32)
