"""The engine's requests as the drafter knows them: each one's history, brought up to date from the engine's records.

The engine's request object is the record: prompt, output so far, and whether it has ended. In overlap mode the tokens
of the latest step are not in it yet and come beside it. Nothing else is remembered here but how much of each history
the drafter has, so that chunked prefill, retraction, a pause after a failure and a late notice of the end are all one
case: what is missing is appended.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ...caches.base import Int32, Share
from ...drafting.drafter import Drafter

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
class Followed:
    """A request that the drafter knows."""

    request: Request  #: the engine's record
    name: str  #: in the drafter; engines may reuse their ids at once
    slot: int  #: in the drafter
    n_prompt: int  #: tokens
    n_known: int  #: tokens of the history that the drafter has or, of the prompt, will read
    n_unread: int  #: tokens of the prompt that it still has to read; nothing is drafted until then

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


class Requests:
    """Follows the requests of one scheduler.

    Parameters
    ----------
    drafter : Drafter
        In deferred mode.
    share : {"tenant", "all users", "nothing"}
        See `EngineConfig`.
    prompt_tokens : int
        Prompt tokens read in one step.
    """

    def __init__(self, drafter: Drafter, share: str, prompt_tokens: int) -> None:
        self.drafter = drafter
        self.n_unfollowed = 0  #: times that a request was not followed, for want of room
        self._share, self._prompt_tokens = share, prompt_tokens
        self._followed: dict[str, Followed] = {}
        self._running: set[str] = set()
        self._n_begun = 0

    def __len__(self) -> int:
        return len(self._followed)

    def follow(self, requests: Sequence[Request]) -> None:
        """Begin those that are new; their prompts are read by `read_prompts`. Modifies."""
        self._running |= {request.rid for request in requests}
        for request in requests:
            self._find(request)

    def catch_up(
        self, requests: Sequence[Request], latest: Sequence[Sequence[int]] | None
    ) -> tuple[list[int], Int32, Int32]:
        """Append what the engine has emitted since the last call; modifies.

        Parameters
        ----------
        requests : sequence of Request
            The batch.
        latest : sequence of sequences of int, optional
            Each request's accepted tokens that are not in its record yet. None: all are.

        Returns
        -------
        list of int
            Places in the batch that can be drafted for.
        int32[n]
            Their slots.
        int32[n]
            Tokens each may still emit, -1 where nobody knows.
        """
        self._running = {request.rid for request in requests}
        places, slots, left = [], [], []
        appended: list[Followed] = []
        tokens: list[int] = []
        offsets = [0]
        for place, request in enumerate(requests):
            item = self._find(request)
            if item is None or item.n_unread:
                continue
            new = item.missing(request.output_ids, latest[place] if latest is not None else ())
            if new is None:  # a record that became shorter: know it anew
                self._end(item)
                self._begin(request)
                continue
            places.append(place)
            slots.append(item.slot)
            limit = request.sampling_params.max_new_tokens
            left.append(-1 if limit is None else max(0, limit - (item.n_known + len(new) - item.n_prompt)))
            if new:
                appended.append(item)
                tokens += new
                offsets.append(len(tokens))
        self._append(appended, tokens, offsets)
        return places, np.array(slots, np.int32), np.array(left, np.int32)

    def read_prompts(self) -> None:
        """Read on in prompts, oldest request first, a fixed number of tokens a call; modifies."""
        budget = self._prompt_tokens
        for item in self._followed.values():
            if item.n_unread and budget > 0:
                unread = self.drafter.ingest(item.name, budget)
                budget -= item.n_unread - unread
                item.n_unread = unread

    def end_finished(self, running: Iterable[Request]) -> None:
        """End those that the engine has ended, with their last tokens; modifies.

        Parameters
        ----------
        running : iterable of Request
            The batch: certainly running, and not looked at.
        """
        rids = {request.rid for request in running}
        for item in [item for rid, item in self._followed.items() if rid not in rids]:
            if item.request.finished():
                self._end(item)

    def forget(self) -> None:
        """Know nothing any more; the drafter is reset. Modifies."""
        self._followed.clear()
        self.drafter.reset()

    def _append(self, items: list[Followed], tokens: list[int], offsets: list[int]) -> None:
        if items:
            slots = np.array([item.slot for item in items], np.int32)
            self.drafter.accept_batch(slots, np.array(tokens, np.int32), np.array(offsets, np.int32))
            for k, item in enumerate(items):
                item.n_known += offsets[k + 1] - offsets[k]

    def _find(self, request: Request) -> Followed | None:
        """The request as followed, begun if it is new; None where it is not to be followed or there is no room."""
        item = self._followed.get(request.rid)
        if item is not None and item.request is not request:  # the id was reused
            self._end(item)
            item = None
        return item or self._begin(request)

    def _begin(self, request: Request) -> Followed | None:
        option = _option(request)
        if option == OFF or not self._make_room():
            return None
        prompt = _as_array(request.origin_input_ids_unpadded)
        tenant, share = tenant_of(request, self._share)
        if option == PRIVATE:
            share = "none"
        name = str(self._n_begun)
        slot = self.drafter.begin(name, prompt, session=request.session_id, tenant=tenant, share=share, max_tokens=0)
        self._n_begun += 1
        item = Followed(request, name, slot, len(prompt), len(prompt), self.drafter.ingest(name, 0))
        self._followed[request.rid] = item
        return item

    def _make_room(self) -> bool:
        """Whether one more can be followed, after ending one that waits outside the batch if need be.

        It may have been retracted, or aborted without a notice; if it comes back, its record tells all.
        """
        if len(self._followed) < self.drafter.config.max_requests:
            return True
        for rid, item in self._followed.items():
            if rid not in self._running:
                self._end(item)
                return True
        self.n_unfollowed += 1
        return False

    def _end(self, item: Followed) -> None:
        output = item.request.output_ids_through_stop
        if not item.n_unread:
            new = item.missing(output, ())
            if new is None:
                item.n_known = item.n_prompt + len(output)
                self.drafter.truncate(item.name, item.n_known)
            elif new:
                self._append([item], new, [0, len(new)])
        self.drafter.finish(item.name)
        del self._followed[item.request.rid]


def tenant_of(request: Request, share: str) -> tuple[str, Share]:
    """Whose text a request may meet: a tenant's name, and what the request leaves behind for it.

    Parameters
    ----------
    request : Request
        `cache_salt` and `extra_key` name its tenant. The engine appends the adapter's id to `extra_key`, which names a
        model and nobody's tenant: it keeps adapters apart and is no key.
    share : {"tenant", "all users", "nothing"}
        See `EngineConfig`.
    """
    adapter = request.lora_id or ""
    extra = (request.extra_key or "").removesuffix(adapter) if adapter else request.extra_key or ""
    key = [adapter, request.cache_salt or "", extra]
    if share == "all users":
        return json.dumps([adapter]), "outputs"
    keyed = bool(key[1] or key[2])
    return json.dumps(key), "outputs" if share == "tenant" and keyed else "none"


def _option(request: Request) -> Any:
    custom = getattr(request.sampling_params, "custom_params", None)
    return custom.get(OPTION) if isinstance(custom, dict) else None


def _as_array(tokens: Sequence[int]) -> NDArray[np.int32]:
    """A copy: an `array.array` that numpy looks into could not grow."""
    return np.array(tokens, np.int64).astype(np.int32)
