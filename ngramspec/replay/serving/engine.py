"""What a step does with the requests that decode: draft, verify and learn; or, without speculation, one token each."""

from __future__ import annotations

import heapq
from time import perf_counter_ns
from typing import Protocol

import numpy as np

from ...caches.base import Cache
from ...draft import Topology
from ...kernels.verify import calibrate_batch, verify_batch
from ..batch import Batch, known_limits
from ..counts import Counts
from ..options import Options
from ..trace import Int64, Trace


class Engine(Protocol):
    """One batch that decodes, seen from the clock.

    Attributes
    ----------
    n : int
        Requests that decode.
    """

    n: int

    def draft(self, kv_tokens: int) -> int:
        """Begin a step of all that decode; returns the tokens that it computes."""

    def prefill(self, row: int, n_tokens: int, last: bool) -> None:
        """Show so many more tokens of a prompt to the drafter; all that is left where they are the last."""

    def emit(self) -> int:
        """End the step that `draft` began; returns the tokens emitted."""

    def first(self, row: int) -> tuple[int, bool]:
        """After its prompt: tokens that a request emits, one or none, and whether it decodes from the next step on."""

    def leave(self) -> list[int]:
        """Take out the requests that ended in this step; returns their rows."""


class Plain:
    """No speculation.

    Parameters
    ----------
    n_outputs : list of int
        Tokens that each row emits.
    """

    def __init__(self, n_outputs: list[int]) -> None:
        self.n = 0
        self._n_outputs = n_outputs
        self._step = 0
        self._ends: list[tuple[int, int]] = []  # the step in which a row emits its last token

    def draft(self, kv_tokens: int) -> int:
        """One token a request."""
        return self.n

    def prefill(self, row: int, n_tokens: int, last: bool) -> None:
        """Nobody looks."""

    def emit(self) -> int:
        """One token a request."""
        self._step += 1
        return self.n

    def first(self, row: int) -> tuple[int, bool]:
        """As for any engine."""
        n = self._n_outputs[row]
        if n > 1:
            heapq.heappush(self._ends, (self._step + n - 1, row))
            self.n += 1
        return min(n, 1), n > 1

    def leave(self) -> list[int]:
        """Those whose last token came."""
        rows = []
        while self._ends and self._ends[0][0] == self._step:
            rows.append(heapq.heappop(self._ends)[1])
        self.n -= len(rows)
        return rows


class Speculating:
    """Drafts for all that decode, verified against the record, in three compiled calls a step.

    Parameters
    ----------
    trace : Trace
        Recorded requests.
    cache : Cache
        The drafter.
    options : Options
        How to replay.
    ends : int64[n_rows]
        Where each output ends, as positions in the outputs.
    counts : Counts
        Counted into.
    """

    def __init__(self, trace: Trace, cache: Cache, options: Options, ends: Int64, counts: Counts) -> None:
        self.n = 0
        self.n_first = self.n_steps = 0
        self.draft_ns = self.accept_ns = self.ingest_ns = 0
        self._trace, self._cache, self._options = trace, cache, options
        # Kernels see one array type only: writable, contiguous.
        self._outputs, self._prompts = np.array(trace.output.tokens), np.array(trace.prompt.tokens)
        self._starts, self._ends = trace.output.offsets.tolist(), ends.tolist()
        self._prompt_at = trace.prompt.offsets.tolist()
        self._limits = known_limits(trace, options.max_tokens).tolist()
        self._slots: dict[int, int] = {}
        self._batch = Batch(min(options.concurrency, max(1, len(trace))), options.max_draft)
        self._fixed, self._judged = self._batch.arguments(self._outputs, counts)
        self._topology, self._budget = Topology.parse(options.topology), options.plan
        self._width = -1 if options.verify_width is None else options.verify_width - 1
        self._n_ended = 0

    def draft(self, kv_tokens: int) -> int:
        """Ask the drafter, and shorten its drafts to what is worth verifying."""
        n, batch, options = self.n, self._batch, self._options
        t0 = perf_counter_ns()
        self._cache.draft_batch(
            batch.slots[:n],
            batch.draft,
            max_draft=options.max_draft,
            topology=self._topology,
            min_prob=options.min_prob,
            remaining=batch.remaining[:n],
        )
        if self._budget is not None:
            plan = self._budget.apply(batch.draft, n, kv_tokens)
            if self._budget.uniform_width:
                self._width = plan.width
        self.draft_ns += perf_counter_ns() - t0
        self.n_steps += 1
        return n * (1 + self._width) if self._width >= 0 else n + int(batch.draft.n_draft[:n].sum())

    def prefill(self, row: int, n_tokens: int, last: bool) -> None:
        """Begin the request with its first tokens, or ingest more of them."""
        limit = None if last else n_tokens
        t0 = perf_counter_ns()
        if row in self._slots:
            self._cache.ingest(str(row), limit)
        else:
            prompt = self._prompts[self._prompt_at[row] : self._prompt_at[row + 1]]
            session, share = self._trace.session[row], self._options.share
            self._slots[row] = self._cache.begin(str(row), prompt, session=session, share=share, max_tokens=limit)
        self.ingest_ns += perf_counter_ns() - t0

    def emit(self) -> int:
        """Verify the drafts and let the drafter learn what was emitted."""
        n, batch = self.n, self._batch
        if self._options.calibration:
            calibrate_batch(n, *self._judged)
        n_emitted, self._n_ended = verify_batch(n, self._width, *self._fixed)
        t0 = perf_counter_ns()
        self._cache.accept_batch(batch.slots[:n], batch.emitted[:n_emitted], batch.offsets[: n + 1])
        self.accept_ns += perf_counter_ns() - t0
        return int(n_emitted)

    def first(self, row: int) -> tuple[int, bool]:
        """Let the drafter learn the token that the prompt's last chunk gave."""
        pos, end = self._starts[row], self._ends[row]
        if pos == end:
            self._finish(row)
            return 0, False
        t0 = perf_counter_ns()
        self._cache.accept(str(row), self._outputs[pos : pos + 1])
        self.accept_ns += perf_counter_ns() - t0
        self.n_first += 1
        if pos + 1 == end:
            self._finish(row)
            return 1, False
        self._batch.add(self._slots[row], pos + 1, end, self._limits[row], row)
        self.n = self._batch.n
        return 1, True

    def leave(self) -> list[int]:
        """Those that verification found at their end."""
        if not self._n_ended:
            return []
        rows = self._batch.remove_ended()
        self._n_ended, self.n = 0, self._batch.n
        for row in rows:
            self._finish(row)
        return rows

    def _finish(self, row: int) -> None:
        self._cache.finish(str(row))
        del self._slots[row]
