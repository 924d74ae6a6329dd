"""One step of a scheduler: the engine's batch in, verify rows out, whatever happens in between."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...config import DrafterConfig
from ...draft import DraftBatch, Topology
from ...drafting.drafter import Drafter
from ...kernels.rows import fill_rows
from .config import EngineConfig
from .guard import Guard
from .requests import Request, Requests

NO_SLOTS = np.zeros(0, np.int32)
Rows = tuple[NDArray[np.int64], NDArray[np.bool_]]


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
    """

    def __init__(
        self, config: EngineConfig, drafter: DrafterConfig, *, max_batch: int, n_rows: int, chain: bool
    ) -> None:
        self.n_rows, self.chain = n_rows, chain
        self.guard = Guard()
        self.requests = Requests(Drafter(drafter), config.share, config.prompt_tokens_per_step)
        self.n_steps = self.n_drafted = 0  #: request steps, and tokens drafted in them
        self._min_prob = config.min_prob
        self._topology = Topology.CHAIN if chain else Topology.TREE
        self._out = DraftBatch.allocate(max_batch, n_rows - 1)
        self._some = DraftBatch.allocate(max_batch, n_rows - 1)  # drafts of a part of the batch
        self._slots = NO_SLOTS
        self._last = np.zeros(max_batch, np.int64)
        self._ids = np.zeros(max_batch * n_rows, np.int64)
        self._mask = np.zeros(max_batch * n_rows * n_rows, np.bool_)

    def rows(self, requests: Sequence[Request], latest: Sequence[Sequence[int]] | None = None) -> Rows:
        """Verify rows of a batch; modifies.

        Parameters
        ----------
        requests : sequence of Request
            The batch, in the engine's order.
        latest : sequence of sequences of int, optional
            Each request's accepted tokens that are not in its record yet.

        Returns
        -------
        ids : int64[batch * n_rows]
            Row 0 is the last committed token. A view that the next call overwrites.
        mask : bool[batch * n_rows * n_rows]
            Which rows of its own draft a row may attend to; parents come before children. A view as well.
        """
        n = len(requests)
        for i, request in enumerate(requests):
            self._last[i] = last_token(request, latest[i] if latest is not None else ())
        ids, mask = self._ids[: n * self.n_rows], self._mask[: n * self.n_rows**2]
        self._slots = NO_SLOTS
        if self.guard.ready():
            try:
                self._draft(requests, latest)
                out = self._out
                fill_rows(n, out.tokens, out.parents, out.n_draft, self._last, self.chain, self.n_rows, ids, mask)
                self.n_steps += n
                self.n_drafted += int(out.n_draft[:n].sum())
                self.guard.worked()
                return ids, mask
            except Exception as error:
                self._failed("drafting", error)
        self._bare(n, ids, mask)
        return ids, mask

    def prefilled(self, requests: Sequence[Request]) -> None:
        """Follow the requests of a prefill batch and read their prompts; modifies. Call it while the model runs."""
        self._while_running(requests, prefill=True)

    def decoded(self, requests: Sequence[Request]) -> None:
        """Learn from the step whose rows have been handed out; modifies. Call it while the model runs."""
        self._while_running(requests, prefill=False)

    def flush(self) -> None:
        """Forget everything; modifies."""
        self._slots = NO_SLOTS
        try:
            self.requests.forget()
        except Exception as error:
            self.guard.failed("flushing", error)

    def _draft(self, requests: Sequence[Request], latest: Sequence[Sequence[int]] | None) -> None:
        """Fill `_out`, row i for request i, empty where it cannot be drafted for."""
        places, slots, remaining = self.requests.catch_up(requests, latest)
        n, at = len(slots), np.array(places, np.int64)
        self._slots = slots
        self._out.n_draft[: len(requests)] = 0
        if n == 0:
            return
        out = self._out if n == len(requests) else self._some
        self.requests.drafter.draft_batch(
            slots,
            out,
            max_draft=self.n_rows - 1,
            topology=self._topology,
            min_prob=self._min_prob,
            remaining=remaining,
        )
        if out is not self._out:
            for there, here in zip((self._out.tokens, self._out.parents), (out.tokens, out.parents), strict=True):
                there[at] = here[:n]
            self._out.n_draft[at] = out.n_draft[:n]

    def _bare(self, n: int, ids: NDArray[np.int64], mask: NDArray[np.bool_]) -> None:
        """Rows without a draft, in numpy alone: this is what is left when compiled code fails."""
        seen = np.tri(self.n_rows, dtype=np.bool_) if self.chain else np.eye(self.n_rows, dtype=np.bool_)
        seen[:, 0] = True
        mask.reshape(n, self.n_rows, self.n_rows)[:] = seen
        rows = ids.reshape(n, self.n_rows)
        rows[:] = 0
        rows[:, 0] = self._last[:n]

    def _while_running(self, requests: Sequence[Request], *, prefill: bool) -> None:
        if self.guard.paused:
            return
        try:
            if prefill:
                self.requests.follow(requests)
            elif len(self._slots):
                self.requests.drafter.settle(self._slots)
            self.requests.end_finished(requests)
            self.requests.read_prompts()
        except Exception as error:
            self._failed("following requests", error)

    def _failed(self, doing: str, error: Exception) -> None:
        """Start over: a failure may have left half a change in the drafter."""
        self.guard.failed(doing, error)
        self.flush()


def last_token(request: Request, latest: Sequence[int]) -> int:
    """The last committed token, which the engine has emitted but not run yet.

    Parameters
    ----------
    request : Request
        Its record.
    latest : sequence of int
        Accepted tokens that are not in the record yet.
    """
    for tokens in (latest, request.output_ids, request.origin_input_ids_unpadded):
        if len(tokens):
            return int(tokens[-1])
    return 0
