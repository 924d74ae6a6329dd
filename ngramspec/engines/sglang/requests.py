"""The engine's requests as the drafter knows them: each one's history, brought up to date from the engine's records.

The engine's request object is the record: prompt, output so far, and whether it has ended. In overlap mode the tokens
of the latest step are not in it yet and come beside it. Nothing else is remembered here but how much of each history
the drafter has, so that chunked prefill, retraction, a pause after a failure and a late notice of the end are all one
case: what is missing is appended.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from time import perf_counter_ns
from typing import Any

import numpy as np

from ...caches.base import Int32
from ...drafting.drafter import Drafter
from .counters import Counters
from .followed import OFF, PRIVATE, Followed, Log, Request, as_array, option_of, tenant_of
from .record import Recorder, row_of

#: Most tokens left that a drafter can be told; a request may say that it wants more than any model emits.
MAX_LEFT = 2**31 - 1


class Requests:
    """Follows the requests of one scheduler.

    Prompts are read by a thread while the model runs. Whatever it was given is done before the next call here looks at
    anything, so that what is visible in a step depends on the sequence of calls alone.

    Parameters
    ----------
    drafter : Drafter
        In deferred mode.
    share : {"tenant", "all users", "everything", "nothing"}
        See `EngineConfig`.
    prompt_tokens : int
        Prompt tokens read in one step.
    counters : Counters, optional
        Where outcomes of steps are counted.
    recorder : Recorder, optional
        Where ended requests go.

    Attributes
    ----------
    n_unfollowed : int
        Times that a request was not followed, for want of room.
    n_steps : int
        Decode steps of the scheduler.
    read_ns : int
        Nanoseconds spent reading prompts, since whoever looks at it last set it to 0.
    """

    def __init__(
        self,
        drafter: Drafter,
        share: str,
        prompt_tokens: int,
        counters: Counters | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.drafter, self.recorder = drafter, recorder
        self.counters = counters or Counters()
        self.n_unfollowed = self.n_steps = self.read_ns = 0
        self._share, self._prompt_tokens = share, prompt_tokens
        self._followed: dict[str, Followed] = {}
        self._new: list[Followed] = []  # not begun in the drafter yet
        self._batches: list[Sequence[Request]] = []  # the latest: those that run now
        self._n_begun = 0
        self._thread = ThreadPoolExecutor(1, "ngramspec-read")
        self._reading: Future[None] | None = None

    def __len__(self) -> int:
        return len(self._followed)

    def follow(self, requests: Sequence[Request]) -> None:
        """Note those that are new; `read_prompts` begins them and reads their prompts. Modifies."""
        self.wait()
        self._batches = [*self._batches[-3:], requests]
        for request in requests:
            self._find(request, ())

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
        self.wait()
        self._batches = [requests]
        followed = self._followed
        places, slots, left = [], [], []
        grown: list[int] = []
        tokens: list[int] = []
        offsets = [0]
        n_steps = n_emitted = 0
        for place, request in enumerate(requests):  # first of all, since finding one may end another of the same id
            item = followed.get(request.rid)
            if item is None or item.request is not request:
                self._find(request, latest[place] if latest is not None else ())
        for place, request in enumerate(requests):  # what this does for each request, the model waits for
            beside = latest[place] if latest is not None else ()
            item = followed.get(request.rid)
            if item is None or item.request is not request or item.slot < 0 or item.n_unread:
                continue
            output, have = request.output_ids, item.n_known - item.n_prompt
            new = output[have:] if not beside and have <= len(output) else item.missing(output, beside)
            if new is None:  # a record that became shorter: know it anew
                self._end(item)
                self._begin(request, beside)
                continue
            places.append(place)
            slots.append(item.slot)
            if new:
                n_new = len(new)
                grown.append(item.slot)
                tokens += new
                offsets.append(len(tokens))
                item.n_known += n_new
                have += n_new
                if item.n_open == 1 and item.log is None and not item.n_before:  # nearly always
                    item.n_open = 0
                    n_steps += 1
                    n_emitted += n_new
                else:
                    self._count(item, n_new)
            left.append(item.limit - have if item.limit > have else 0 if item.limit >= 0 else -1)
        if grown:
            self._accept(grown, tokens, offsets)
            self.counters.outcome(n_steps, n_emitted)
        return places, np.array(slots, np.int32), np.array(left, np.int32)

    def kv_tokens(self, requests: Sequence[Request]) -> int:
        """Tokens that the engine holds for these requests, as far as they are followed."""
        return sum(item.n_known for request in requests if (item := self._followed.get(request.rid)) is not None)

    def stepped(self, requests: Sequence[Request], n_draft: Sequence[int]) -> None:
        """Note that the engine verifies a step now; modifies.

        Parameters
        ----------
        requests : sequence of Request
            The batch.
        n_draft : sequence of int
            Tokens drafted for each.
        """
        self.n_steps += 1
        for request, n in zip(requests, n_draft, strict=True):
            item = self._followed.get(request.rid)
            if item is not None:
                item.n_open += 1
                if item.log is not None:
                    item.log.drafted.append(n)

    def read_prompts(self) -> None:
        """Have new requests begun and prompts read on, oldest request first, a fixed number of tokens a call; modifies.

        Returns at once; the next call of anything here waits for the end.
        """
        self.wait()
        if self._new or any(item.n_unread for item in self._followed.values()):
            self._reading = self._thread.submit(self._read)

    def wait(self) -> None:
        """Wait until the prompts given out are read; raises what failed there."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.result()

    def end_finished(self, running: Iterable[Request]) -> None:
        """End those that the engine has ended, with their last tokens; modifies.

        Parameters
        ----------
        running : iterable of Request
            The batch: certainly running, and not looked at.
        """
        self.wait()
        rids = {request.rid for request in running}
        for item in [item for rid, item in self._followed.items() if rid not in rids]:
            if item.request.finished():
                self._end(item)

    def finished(self, rid: str) -> None:
        """End one that the engine says has ended; modifies. Unknown ones are not looked at."""
        item = self._followed.get(rid)
        if item is not None and item.request.finished():
            self.wait()
            self._end(item)

    def forget(self) -> None:
        """Know nothing any more; the drafter is reset. Modifies."""
        with suppress(Exception):  # what failed there is forgotten as well
            self.wait()
        self._followed.clear()
        self._new.clear()
        self._batches, self._n_begun = [], 0  # nothing that happened before may tell two ranks apart
        self.drafter.reset()

    def _read(self) -> None:
        """What the thread does."""
        started = perf_counter_ns()
        while self._new:
            item = self._new.pop(0)
            tenant, share = tenant_of(item.request, self._share)
            if option_of(item.request) == PRIVATE:
                share = "none"
            session = None if item.request.session_id is None else str(item.request.session_id)
            item.slot = self.drafter.begin(
                item.name, item.prompt, session=session, tenant=tenant, share=share, max_tokens=0
            )
            item.n_unread = self.drafter.ingest(item.name, 0)
        budget = self._prompt_tokens
        for item in self._followed.values():
            if item.n_unread and budget > 0:
                unread = self.drafter.ingest(item.name, budget)
                budget -= item.n_unread - unread
                item.n_unread = unread
        self.read_ns += perf_counter_ns() - started

    def _accept(self, slots: list[int], tokens: list[int], offsets: list[int]) -> None:
        """Append tokens that were counted as known already: whatever fails here has to end in `forget`."""
        self.drafter.accept_batch(np.array(slots, np.int32), np.array(tokens, np.int32), np.array(offsets, np.int32))

    def _count(self, item: Followed, n_new: int) -> None:
        """Count what a request's open steps emitted."""
        lengths = item.outcome(n_new)
        self.counters.outcome(len(lengths), sum(lengths))
        if item.log is not None:
            item.log.lengths += lengths

    def _find(self, request: Request, latest: Sequence[int]) -> Followed | None:
        """The request as followed, begun if it is new; None where it is not to be followed or there is no room."""
        item = self._followed.get(request.rid)
        if item is not None and item.request is not request:  # the id was reused
            self._end(item)
            item = None
        return item or self._begin(request, latest)

    def _begin(self, request: Request, latest: Sequence[int]) -> Followed | None:
        option = option_of(request)
        if option == OFF or not self._make_room():
            return None
        prompt = as_array(request.origin_input_ids_unpadded)
        n_before = len(request.output_ids) + len(latest)
        item = Followed(request, str(self._n_begun), prompt, len(prompt), n_before)
        item.n_known = item.n_unread = len(prompt)
        limit = request.sampling_params.max_new_tokens
        item.limit = -1 if limit is None else max(0, min(limit, MAX_LEFT))
        if self.recorder is not None and option is None and self.recorder.chosen(request.session_id or request.rid):
            item.log = Log(time.time(), self.n_steps)
        self._n_begun += 1
        self._new.append(item)
        self._followed[request.rid] = item
        return item

    def _make_room(self) -> bool:
        """Whether one more can be followed, after ending one that waits outside the batch if need be.

        It may have been retracted, or aborted without a notice; if it comes back, its record tells all.
        """
        if len(self._followed) < self.drafter.config.max_requests:
            return True
        running = {request.rid for batch in self._batches for request in batch}
        for rid, item in self._followed.items():
            if rid not in running:
                self._end(item)
                return True
        self.n_unfollowed += 1
        return False

    def _end(self, item: Followed) -> None:
        del self._followed[item.request.rid]
        output = item.request.output_ids_through_stop
        if item.slot < 0:
            self._new.remove(item)
        else:
            if item.ready:
                new = item.missing(output, ())
                if new is None:
                    item.n_known = item.n_prompt + len(output)
                    self.drafter.truncate(item.name, item.n_known)
                elif new:
                    item.n_known += len(new)
                    self._accept([item.slot], new, [0, len(new)])
                    self._count(item, len(new))
            self.drafter.finish(item.name)
        if item.log is not None and self.recorder is not None and item.request.finished():
            self.recorder.add(row_of(item.request, item.prompt, as_array(output), self._told(item, item.log)))

    def _told(self, item: Followed, log: Log) -> dict[str, Any]:
        """Fields of a record's row that only we know."""
        recorder, request = self.recorder, item.request
        assert recorder is not None
        spec: dict[str, Any] = {"drafter": "ngramspec", "first_step": log.first_step, "last_step": self.n_steps}
        n_output = len(request.output_ids_through_stop)
        if 0 <= sum(log.lengths) - (n_output - 1) < max(log.lengths, default=1):
            spec["accept_lengths"] = log.lengths
            if len(log.drafted) >= len(log.lengths):
                spec["n_drafted"] = log.drafted[: len(log.lengths)]
        else:  # it was followed in parts only: the engine's own count
            spec["spec_correct_drafts_histogram"] = list(getattr(request, "spec_correct_drafts_histogram", ()))
        tenant, share = tenant_of(request, self._share)
        return {
            "id": recorder.hashed(request.rid),
            "session": recorder.hashed(request.session_id),
            "tenant": recorder.hashed(tenant) if share != "none" else None,
            "timestamp": log.arrival,
            "eos_ids": list(self.drafter.config.eos_ids) or None,
            "spec": spec,
        }
