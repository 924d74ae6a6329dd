"""One step of a scheduler: the engine's batch in, verify rows out, whatever happens in between."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...caches.frozen import FrozenCorpus
from ...config import DrafterConfig
from ...draft import DraftBatch, Reason, Topology
from ...drafting.drafter import Drafter
from ...kernels.rows import fill_rows
from .config import EngineConfig
from .counters import Counters
from .followed import Request
from .guard import Guard
from .metrics import Metrics
from .pace import chosen
from .record import Recorder
from .requests import Requests
from .snapshots import Snapshots

NO_SLOTS = np.zeros(0, np.int32)


class Rows(NamedTuple):
    """What a step verifies; views that the next step overwrites."""

    ids: NDArray[np.int64]  #: int64[batch * n_rows], row 0 of a request is its last committed token
    seen: NDArray[np.bool_]  #: bool[batch * n_rows * n_rows], rows of its own draft that a row may attend to
    n_rows: int  #: a request


class Drafts:
    """Drafts for one scheduler, in the rows that the engine verifies.

    Nothing raises into the engine: a step that fails here has no draft, and the drafter starts over.

    Parameters
    ----------
    config : EngineConfig
        Settings.
    drafter : DrafterConfig
        Sizes, from `config.drafter`.
    max_batch : int
        Largest batch.
    n_rows : int
        Rows verified a request, the committed token included (`--speculative-num-draft-tokens`).
    chain : bool
        Draft chains: the attention backend is not known to read tree masks.
    widths : tuple of int
        Rows that a step may verify, the last is `n_rows`. Empty: every step verifies `n_rows`.
    tokenizer : str
        For snapshots: what tells the tokenizer apart.
    """

    def __init__(
        self,
        config: EngineConfig,
        drafter: DrafterConfig,
        *,
        max_batch: int,
        n_rows: int,
        chain: bool,
        widths: tuple[int, ...] = (),
        tokenizer: str = "",
    ) -> None:
        self.n_rows, self.chain = n_rows, chain
        self.guard, self.counters = Guard(), Counters()
        self.pace = chosen(config.width, config.guard, widths, n_rows, config.cost_model())
        self.metrics: Metrics | None = None
        self.recorder = Recorder(config.record) if config.record else None
        self.snapshots = Snapshots(config.snapshot, tokenizer) if config.snapshot else None
        self.requests = Requests(
            Drafter(drafter), config.share, config.prompt_tokens_per_step, self.counters, self.recorder
        )
        if self.snapshots:
            self.snapshots.load(self.drafter)
        self.drafter.touch()  # not page by page while requests wait
        self._min_prob = config.min_prob
        self._topology = Topology.CHAIN if chain else Topology.TREE
        self._out = DraftBatch.allocate(max_batch, n_rows - 1)
        self._some = DraftBatch.allocate(max_batch, n_rows - 1)  # drafts of a part of the batch
        self._slots = NO_SLOTS
        self._last = np.zeros(max_batch, np.int64)
        self._ids = np.zeros(max_batch * n_rows, np.int64)
        self._mask = np.zeros(max_batch * n_rows * n_rows, np.bool_)
        self._corpus: FrozenCorpus | None = None
        self._uncounted: tuple[Sequence[Request], int, bool] | None = None

    @property
    def drafter(self) -> Drafter:
        """Its drafter."""
        return self.requests.drafter

    def rows(self, requests: Sequence[Request], latest: Sequence[Sequence[int]] | None = None) -> Rows:
        """Verify rows of a batch, parents before children; modifies.

        Parameters
        ----------
        requests : sequence of Request
            The batch, in the engine's order.
        latest : sequence of sequences of int, optional
            Each request's accepted tokens that are not in its record yet.
        """
        started = perf_counter_ns()
        n = len(requests)
        if latest is None:  # `last_token` without a call for each request: the model waits for this
            self._last[:n] = [one.output_ids[-1] if len(one.output_ids) else last_token(one, ()) for one in requests]
        else:
            self._last[:n] = [last_token(request, new) for request, new in zip(requests, latest, strict=True)]
        self._slots = NO_SLOTS
        self._safely("counting a step", self._count)
        rows = self._drafted(requests, latest) if self.guard.ready() else None
        drafted = rows is not None
        if rows is None:
            rows = self._bare(n)
        self._uncounted = requests, rows.n_rows, drafted
        if self.metrics:
            read_ns, self.requests.read_ns = self.requests.read_ns, 0
            self.metrics.timed((perf_counter_ns() - started) / 1000, read_ns / 1000)
        return rows

    def prefilled(self, requests: Sequence[Request]) -> None:
        """Follow the requests of a prefill batch and have prompts read; modifies. Call it while the model runs."""
        self._safely("counting a step", self._count)
        if self.pace:
            self.pace.interrupt()
        self._while_running(requests, prefill=True)

    def decoded(self, requests: Sequence[Request]) -> None:
        """Learn from the step whose rows have been handed out; modifies. Call it while the model runs."""
        self._safely("counting a step", self._count)
        self._while_running(requests, prefill=False)

    def finished(self, rid: str) -> None:
        """End a request that the engine says has ended; modifies."""
        if not self.guard.paused:
            self._safely("ending a request", self.requests.finished, rid)
        if self.metrics and not len(self.requests):
            self.metrics.publish(self.told, at_once=True)  # nothing may follow for long

    def flush(self) -> None:
        """Save what was learned where that is asked for, then forget everything; modifies."""
        if self.snapshots and not self.guard.paused:
            self._safely("saving a snapshot", self._save)
        if self.recorder:
            self.recorder.flush()
        self.forget()

    def forget(self) -> None:
        """Forget everything, as after a failure; modifies."""
        self._slots = NO_SLOTS
        try:
            self.requests.forget()
        except Exception as error:
            self.guard.failed("flushing", error)

    def bare(self, requests: Sequence[Request], width: int | None = None) -> Rows:
        """Rows without a draft instead of those that `rows` gave for this step; modifies.

        Parameters
        ----------
        requests : sequence of Request
            The batch.
        width : int, optional
            Rows a request; None: the fewest.
        """
        if self.pace:
            self.pace.interrupt()  # its choice was not followed
        rows = self._bare(len(requests), width)
        self._uncounted = requests, rows.n_rows, False
        return rows

    def fix_width(self) -> None:
        """Verify the server's number of rows in every step from now on; modifies."""
        self.pace = None

    def close(self) -> None:
        """Write what is to outlive the server; for its end."""
        with suppress(Exception):
            if self.snapshots and not self.guard.paused:
                self.requests.wait()
                self.snapshots.save(self.drafter, wait=True)
        if self.recorder:
            self.recorder.close()

    def use_corpus(self, corpus: FrozenCorpus | None) -> None:
        """Draft from this frozen text, or from none, from the next step on; modifies."""
        self._corpus = corpus
        self._safely("changing the corpus", self._swap)

    def told(self) -> dict[str, Any]:
        """Everything that metrics show, by name."""
        stats = self.drafter.stats()
        recorder, snapshots = self.recorder, self.snapshots
        return self.counters.to_dict() | {
            "failures": self.guard.failures,
            "paused": int(self.guard.paused),
            "slow": int(bool(self.pace and self.pace.paused)),
            "requests": len(self.requests),
            "not_followed": self.requests.n_unfollowed,
            "cache_bytes": self.drafter.nbytes,
            "corpus_bytes": self._corpus.nbytes if self._corpus else 0,
            **{name: stats[name] for name in stats if name.startswith(("own_tokens", "shared_tokens"))},
            "recorded": recorder.n_recorded if recorder else 0,
            "record_dropped": recorder.n_dropped if recorder else 0,
            "snapshots": snapshots.n_saved if snapshots else 0,
            "snapshot_failures": snapshots.failures if snapshots else 0,
        }

    def _drafted(self, requests: Sequence[Request], latest: Sequence[Sequence[int]] | None) -> Rows | None:
        """Rows with drafts; None after a failure."""
        n, out = len(requests), self._out
        try:
            self._draft(requests, latest)
            width = self.n_rows
            if self.pace:
                kv_tokens = self.requests.kv_tokens(requests) if self.pace.needs_kv else 0
                self.pace.begin(n, self.counters.emitted, kv_tokens)
                width = self.pace.choose(out, n)
            if width < self.n_rows:
                np.minimum(out.n_draft[:n], width - 1, out=out.n_draft[:n])
            ids, seen = self._views(n, width)
            fill_rows(n, out.tokens, out.parents, out.n_draft, self._last, self.chain, width, ids, seen)
            self.guard.worked()
            return Rows(ids, seen, width)
        except Exception as error:
            self._failed("drafting", error)
            return None

    def _draft(self, requests: Sequence[Request], latest: Sequence[Sequence[int]] | None) -> None:
        """Fill `_out`, row i for request i, empty where it cannot be drafted for."""
        places, slots, remaining = self.requests.catch_up(requests, latest)
        n, total = len(slots), len(requests)
        self._slots = slots
        if n < total:
            self._out.n_draft[:total] = 0
            self._out.reason[:total] = Reason.TOO_SHORT
        if n == 0:
            return
        out = self._out if n == total else self._some
        self.drafter.draft_batch(
            slots,
            out,
            max_draft=self.n_rows - 1,
            topology=self._topology,
            min_prob=self._min_prob,
            remaining=remaining,
        )
        if out is not self._out:
            at = np.array(places, np.int64)
            for name in ("tokens", "parents", "path_q30", "sources", "n_draft", "reason"):
                getattr(self._out, name)[at] = getattr(out, name)[:n]

    def _bare(self, n: int, width: int | None = None) -> Rows:
        width = width or (self.pace.widths[0] if self.pace else self.n_rows)
        self._out.n_draft[:n] = 0
        ids, seen = self._views(n, width)
        return fill_bare(self._last[:n], self.chain, width, ids, seen)

    def _count(self) -> None:
        """Count the step whose rows were handed out last, while the model runs it or at the latest before the next."""
        if self._uncounted is None:
            return
        requests, width, drafted = self._uncounted
        self._uncounted, n = None, len(requests)
        if drafted:
            self.counters.stepped(self._out, n, width)
        else:
            self.counters.bare(n, width)
        self.requests.stepped(requests, self._out.n_draft[:n].tolist())

    def _views(self, n: int, width: int) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        return self._ids[: n * width], self._mask[: n * width**2]

    def _while_running(self, requests: Sequence[Request], *, prefill: bool) -> None:
        if not self.guard.paused:
            self._safely("following requests", self._follow if prefill else self._learn, requests)
        if self.metrics:
            self.metrics.publish(self.told)

    def _follow(self, requests: Sequence[Request]) -> None:
        self.requests.follow(requests)
        self._settle_down(requests)

    def _learn(self, requests: Sequence[Request]) -> None:
        slots, self._slots = self._slots, NO_SLOTS
        if len(slots):
            self.requests.wait()
            self.drafter.settle(slots)
        self._settle_down(requests)

    def _settle_down(self, requests: Sequence[Request]) -> None:
        self.requests.end_finished(requests)
        if self.snapshots and self.snapshots.due:
            self.snapshots.save(self.drafter)
        self.requests.read_prompts()

    def _save(self) -> None:
        assert self.snapshots is not None
        self.requests.wait()
        self.snapshots.save(self.drafter)

    def _swap(self) -> None:
        self.requests.wait()
        for name in self.drafter.corpora:
            self.drafter.remove_corpus(name)
        if self._corpus is not None:
            self.drafter.add_corpus(self._corpus)

    def _safely(self, doing: str, call: Any, *arguments: Any) -> None:
        try:
            call(*arguments)
        except Exception as error:
            self._failed(doing, error)

    def _failed(self, doing: str, error: Exception) -> None:
        """Start over: a failure may have left half a change in the drafter."""
        self.guard.failed(doing, error)
        self.forget()


def fill_bare(
    last: NDArray[np.int64], chain: bool, width: int, ids: NDArray[np.int64], seen: NDArray[np.bool_]
) -> Rows:
    """Rows without a draft, in numpy alone: this is what is left when compiled code fails.

    Parameters
    ----------
    last : int64[batch]
        Last committed token of each request.
    chain : bool
        Each row may attend to all before it, not only to the first and itself.
    width : int
        Rows a request.
    ids : int64[batch * width]
        Filled with tokens.
    seen : bool[batch * width * width]
        Filled with what rows may attend to.
    """
    n = len(last)
    one = np.tri(width, dtype=np.bool_) if chain else np.eye(width, dtype=np.bool_)
    one[:, 0] = True
    seen.reshape(n, width, width)[:] = one
    rows = ids.reshape(n, width)
    rows[:] = 0
    rows[:, 0] = last
    return Rows(ids, seen, width)


def last_token(request: Request, latest: Sequence[int]) -> int:
    """The last committed token, which the engine has emitted but not run yet.

    Parameters
    ----------
    request : Request
        Its record.
    latest : sequence of int
        Accepted tokens that are not in the record yet.
    """
    if latest:
        return latest[-1]
    output = request.output_ids
    if len(output):
        return output[-1]
    prompt = request.origin_input_ids_unpadded
    return prompt[-1] if len(prompt) else 0
