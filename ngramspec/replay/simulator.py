"""The replay loop: C requests at a time, interleaved step by step as a continuous-batching server would.

One step is three compiled calls for the whole batch: draft, verify against the record, accept. A request learns from
another only what that one had emitted by then. The first output token of a request comes from prefill: it is accepted
when the request starts and belongs to no step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from time import perf_counter_ns
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from ..caches.base import Cache, Share
from ..draft import DraftBatch, Reason, Source, Topology
from ..drafting.budget import Budget
from ..drafting.cost import CostModel
from ..errors import ConfigError
from ..kernels.verify import END, N_BINS, N_COUNTS, POS, ROW, calibrate_batch, verify_batch
from .plain import plain_ms
from .schedule import Schedule
from .trace import Int32, Int64, Trace
from .verify import output_ends

#: Columns of `per_row_ms`: modelled time of the steps, and of decoding the same tokens without speculation.
STEP_MS, PLAIN_MS = range(2)

#: What an engine verifies in one step: every draft as it is; chains as they are; the same width for every request.
Shape = Literal["ideal", "vllm", "sglang"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to replay.

    Parameters
    ----------
    max_draft : int
        Most tokens drafted a step.
    topology : {"tree", "chain"}
        Shape of the drafts.
    min_prob : float
        Path probability below which a token is not drafted.
    concurrency : int
        Requests that run at a time. 1: one after the other.
    share : {"outputs", "all", "none"}
        What later requests may see of a request.
    eos_ids : tuple of int, optional
        Ids that end an output. None: those that the trace records.
    max_tokens : int, optional
        Most output tokens a request, a limit that the engine and so the drafter know. None: no such limit.
    verify_width : int, optional
        Tokens that the engine verifies a step whatever was drafted (the last committed one included, the rest padded).
        None: one more than was drafted.
    calibration : bool
        Compare predicted probabilities with what was emitted.
    shape : {"ideal", "vllm", "sglang"}
        What the engine verifies: any draft as it is; chains as they are; or one width for the whole batch, shorter
        drafts padded, which is `max_draft` unless `budget` chooses it.
    budget : Budget, optional
        Shortens each step's drafts to what is worth verifying. None: all that was drafted is verified.
    cost : CostModel, optional
        Step times behind a modelled speed-up. None: those of `budget`, if it has any.

    Raises
    ------
    ConfigError
        A value is outside what is allowed.
    """

    max_draft: int = 11
    topology: str = "tree"
    min_prob: float = 0.0
    concurrency: int = 1
    share: Share = "outputs"
    eos_ids: tuple[int, ...] | None = None
    max_tokens: int | None = None
    verify_width: int | None = None
    calibration: bool = False
    shape: Shape = "ideal"
    budget: Budget | None = None
    cost: CostModel | None = None

    def __post_init__(self) -> None:
        topology = Topology.parse(self.topology)
        for name, low, high in (("max_draft", 0, 4096), ("concurrency", 1, 65_536)):
            if not low <= getattr(self, name) <= high:
                raise ConfigError(f"{name}: got {getattr(self, name)}, allowed {low} to {high}")
        if not 0.0 <= self.min_prob <= 1.0:
            raise ConfigError(f"min_prob: got {self.min_prob}, allowed a probability from 0 to 1")
        if self.share not in ("outputs", "all", "none"):
            raise ConfigError(f"share: got {self.share!r}, allowed 'outputs', 'all' or 'none'")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise ConfigError(f"max_tokens: got {self.max_tokens}, allowed 1 or more, or None")
        if self.verify_width is not None and self.verify_width <= self.max_draft:
            raise ConfigError(
                f"verify_width: got {self.verify_width}, needs at least max_draft + 1 = {self.max_draft + 1}"
            )
        if self.shape not in get_args(Shape):
            raise ConfigError(f"shape: got {self.shape!r}, allowed {', '.join(get_args(Shape))}")
        if self.shape == "vllm" and topology != Topology.CHAIN:
            raise ConfigError("topology: got 'tree', but shape 'vllm' verifies chains only; take 'chain'")
        if self.verify_width is not None and (self.shape != "ideal" or self.budget is not None):
            raise ConfigError("verify_width: has no effect with a shape or a budget, which set the width; leave it out")
        if self.budget is not None and self.budget.uniform_width != (self.shape == "sglang"):
            uniform = "one width for the whole batch" if self.shape == "sglang" else "drafts of different lengths"
            raise ConfigError(
                f"budget: shape {self.shape!r} verifies {uniform}; take uniform_width={self.shape == 'sglang'}"
            )

    @property
    def plan(self) -> Budget | None:
        """The budget applied to each step; a shape of uniform width has one even where none was asked for."""
        if self.budget is None and self.shape == "sglang":
            return Budget(max_draft=self.max_draft, uniform_width=True)
        return self.budget

    @property
    def step_cost(self) -> CostModel | None:
        """The cost model that prices steps."""
        return self.cost if self.cost is not None or self.budget is None else self.budget.cost

    def describe(self) -> dict[str, Any]:
        """Settings as JSON can hold them; `cost` and `budget` only where there are any."""
        found = {item.name: getattr(self, item.name) for item in fields(self)}
        found |= {
            "budget": self.budget and self.budget.describe(),
            "cost": self.step_cost and self.step_cost.describe(),
        }
        return {name: value for name, value in found.items() if value is not None or name not in ("budget", "cost")}


@dataclass(frozen=True)
class Counts:
    """What a replay counted; `metrics` turns it into the project's named numbers.

    Attributes
    ----------
    per_row : int64[n_rows, 7]
        Steps, emitted, accepted and drafted tokens, steps with a draft, tokens drafted past the end of the record, and
        tokens that the engine computed, padding included.
    per_depth : int64[max_draft + 1, 2]
        Steps that drafted to this depth within the record, and those that accepted there (row 0 is unused).
    per_source : int64[n_sources, 2]
        Drafted tokens within the record and accepted ones, by `Source`.
    per_reason : int64[n_reasons]
        Steps by `Reason`.
    bins : int64[10, 3]
        Calibration: nodes, sum of predictions (30 fractional bits), emitted; zero unless asked for.
    per_row_ms : float64[n_rows, 2]
        Modelled milliseconds of the steps, each shared evenly by its batch, and of the same traffic without
        speculation; zero without a cost model.
    prompt_tokens, prefill_tokens, unused_tokens : int
        Tokens ingested from prompts, first tokens that came from prefill, recorded tokens behind an EOS or limit.
    batch_steps : int
        Steps of the engine, each of the whole batch.
    draft_ns, accept_ns, ingest_ns : int
        Time in the drafter's calls: drafting, accepting, beginning requests.
    """

    per_row: Int64
    per_depth: Int64
    per_source: Int64
    per_reason: Int64
    bins: Int64
    per_row_ms: NDArray[np.float64]
    prompt_tokens: int = 0
    prefill_tokens: int = 0
    unused_tokens: int = 0
    batch_steps: int = 0
    draft_ns: int = 0
    accept_ns: int = 0
    ingest_ns: int = 0

    @classmethod
    def zeros(cls, n_rows: int, max_draft: int) -> Counts:
        """Nothing counted yet."""
        return cls(
            per_row=np.zeros((n_rows, N_COUNTS), np.int64),
            per_depth=np.zeros((max_draft + 1, 2), np.int64),
            per_source=np.zeros((len(Source), 2), np.int64),
            per_reason=np.zeros(len(Reason), np.int64),
            bins=np.zeros((N_BINS, 3), np.int64),
            per_row_ms=np.zeros((n_rows, 2)),
        )


class Batch:
    """Arrays of the running requests, reused for every step; the first `n` entries are in use.

    Parameters
    ----------
    capacity : int
        Most requests at a time.
    width : int
        Most tokens drafted a request.
    """

    def __init__(self, capacity: int, width: int) -> None:
        self.n = 0
        self.draft = DraftBatch.allocate(capacity, width)
        self.state: Int64 = np.zeros((capacity, 4), np.int64)
        self.slots: Int32 = np.zeros(capacity, np.int32)
        self.remaining: Int32 = np.zeros(capacity, np.int32)
        self.emitted: Int32 = np.zeros(capacity * (width + 1), np.int32)
        self.offsets: Int32 = np.zeros(capacity + 1, np.int32)
        self.depths: Int32 = np.zeros(width, np.int32)

    def add(self, slot: int, pos: int, end: int, limit: int, row: int) -> None:
        """Put one request at the end.

        Parameters
        ----------
        slot : int
            As `begin` returned it.
        pos, end, limit : int
            Next token, end and known limit (-1: none), as positions in the outputs.
        row : int
            Row of the trace.
        """
        i = self.n
        self.state[i] = pos, end, limit, row
        self.slots[i] = slot
        self.remaining[i] = limit - pos if limit >= 0 else -1
        self.n += 1

    def remove_ended(self) -> list[int]:
        """Take out the requests that have ended, the order of the others kept; returns their rows."""
        state = self.state[: self.n]
        going = state[:, POS] < state[:, END]
        rows: list[int] = state[~going, ROW].tolist()
        self.n -= len(rows)
        for array in (self.state, self.slots, self.remaining):
            array[: self.n] = array[: len(going)][going]
        return rows


def simulate(trace: Trace, cache: Cache, options: Options, on_progress: Callable[[int], None] | None = None) -> Counts:
    """Replay `trace` through `cache`, which keeps what it learns.

    Parameters
    ----------
    trace : Trace
        Recorded requests.
    cache : Cache
        A drafter with room for `options.concurrency` running requests.
    options : Options
        How to replay.
    on_progress : callable, optional
        Called with the number of requests ended so far, outside timed sections.

    Returns
    -------
    Counts
        The same for the same inputs, times apart.
    """
    # Kernels see one array type only: writable, contiguous.
    outputs, prompts = np.array(trace.output.tokens), np.array(trace.prompt.tokens)
    starts = trace.output.offsets.tolist()
    ends_array = output_ends(trace, options.eos_ids, options.max_tokens)
    ends, limits = ends_array.tolist(), _limits(trace, options.max_tokens).tolist()
    prompt_at = trace.prompt.offsets.tolist()
    counts = Counts.zeros(len(trace), options.max_draft)
    batch = Batch(min(options.concurrency, max(1, len(trace))), options.max_draft)
    schedule = Schedule(trace)
    clock = perf_counter_ns
    draft_ns = accept_ns = ingest_ns = prompt_tokens = prefill_tokens = n_done = 0
    kv_tokens = batch_steps = 0

    def finish(row: int) -> None:
        nonlocal n_done
        cache.finish(str(row))
        schedule.ended(row)
        n_done += 1

    draft, state, max_draft, min_prob = batch.draft, batch.state, options.max_draft, options.min_prob
    topology = Topology.parse(options.topology)
    draft_batch, accept_batch, calibration = cache.draft_batch, cache.accept_batch, options.calibration
    fixed = (outputs, draft.tokens, draft.parents, draft.sources, draft.n_draft, draft.reason, state, batch.remaining,
             batch.depths, batch.emitted, batch.offsets, counts.per_row, counts.per_depth, counts.per_source,
             counts.per_reason)  # fmt: skip
    judged = (outputs, draft.tokens, draft.parents, draft.path_q30, draft.n_draft, state, batch.depths, counts.bins)
    emitted, last = batch.emitted, len(trace)
    budget, cost = options.plan, options.step_cost
    width = -1 if options.verify_width is None else options.verify_width - 1
    while True:
        while batch.n < len(batch.slots) and (row := schedule.start()) >= 0:
            prompt, request, session = prompts[prompt_at[row] : prompt_at[row + 1]], str(row), trace.session[row]
            t0 = clock()
            slot = cache.begin(request, prompt, session=session, share=options.share)
            ingest_ns += clock() - t0
            prompt_tokens += len(prompt)
            pos, end = starts[row], ends[row]
            if pos < end:
                first = outputs[pos : pos + 1]
                t0 = clock()
                cache.accept(request, first)
                accept_ns += clock() - t0
                prefill_tokens += 1
                pos += 1
            if pos < end:
                batch.add(slot, pos, end, limits[row], row)
                kv_tokens += len(prompt) + 1
            else:
                finish(row)
        n = batch.n
        if n == 0:
            break
        slots, offsets, remaining = batch.slots[:n], batch.offsets[: n + 1], batch.remaining[:n]
        n_ended = 0
        while not n_ended:
            t0 = clock()
            draft_batch(slots, draft, max_draft=max_draft, topology=topology, min_prob=min_prob, remaining=remaining)
            if budget is not None:
                plan = budget.apply(draft, n, kv_tokens)
                if budget.uniform_width:
                    width = plan.width
            t1 = clock()
            if calibration:
                calibrate_batch(n, *judged)
            n_emitted, n_ended = verify_batch(n, width, *fixed)
            if cost is not None:
                n_tokens = n * (1 + width) if width >= 0 else n + int(draft.n_draft[:n].sum())
                step_ms = cost.step_ms(n_tokens, n, kv_tokens) + cost.exposed_ms(n)
                counts.per_row_ms[state[:n, ROW], STEP_MS] += step_ms / n
            kv_tokens += n_emitted
            tokens = emitted[:n_emitted]
            t2 = clock()
            accept_batch(slots, tokens, offsets)
            t3 = clock()
            batch_steps += 1
            draft_ns += t1 - t0
            accept_ns += t3 - t2
        for row in batch.remove_ended():
            kv_tokens -= prompt_at[row + 1] - prompt_at[row] + ends[row] - starts[row]
            finish(row)
        if on_progress:
            on_progress(n_done)
    if cost is not None:
        counts.per_row_ms[:, PLAIN_MS] = plain_ms(trace, ends_array, len(batch.slots), cost)
    return replace(
        counts,
        prompt_tokens=prompt_tokens,
        prefill_tokens=prefill_tokens,
        unused_tokens=starts[last] - starts[0] - int((ends_array - trace.output.offsets[:-1]).sum()),
        batch_steps=batch_steps,
        draft_ns=draft_ns,
        accept_ns=accept_ns,
        ingest_ns=ingest_ns,
    )


def _limits(trace: Trace, max_tokens: int | None) -> Int64:
    """Position in the outputs at which the engine knows that it must stop, -1 where it knows of none, int64[n_rows].

    The recorded length counts only where the record says that a limit ended it: else it would leak the future.
    """
    starts, ends = trace.output.offsets[:-1], trace.output.offsets[1:]
    names = trace.finish_reason.names
    length: NDArray[np.bool_] = trace.finish_reason.codes == (names.index("length") if "length" in names else -2)
    limits = np.where(length, ends, -1)
    if max_tokens is not None:
        limits = np.where(length, np.minimum(ends, starts + max_tokens), starts + max_tokens)
    return limits
