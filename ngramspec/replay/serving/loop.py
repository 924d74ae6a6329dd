"""The clock: one modelled step after the other, and idle times in which it jumps to the next arrival.

A step lets in what has been sent while there is room, drafts for the requests that decode, prefills chunks of prompts,
and ends after its modelled time: then, and not before, its tokens are known to anybody.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...caches.base import Cache
from ...drafting.cost import CostModel
from ...errors import ConfigError
from ..counts import PLAIN_MS, STEP_MS, Counts
from ..options import Options
from ..trace import Int64, Trace
from ..verify import output_ends
from .engine import Engine, Plain, Speculating
from .queue import Queue, cached_prefixes
from .settings import Serving
from .timeline import Served, Timeline

#: The clock's end, far from what 64 bits hold.
LAST_NS = 2**62


def serve(trace: Trace, cache: Cache, options: Options, on_progress: Callable[[int], None] | None = None) -> Counts:
    """Serve `trace` with a drafter, and once more without speculation.

    Parameters
    ----------
    trace : Trace
        Recorded requests.
    cache : Cache
        A drafter with room for `options.concurrency` running requests.
    options : Options
        How to replay; with `serving` and step times.
    on_progress : callable, optional
        Called with the number of requests ended so far, outside timed sections.

    Returns
    -------
    Counts
        With `served`. The same for the same inputs, times of this machine apart.

    Raises
    ------
    ConfigError
        Settings or step times are missing.
    TraceError
        Time stamps are missing.
    """
    serving, cost = options.charged, options.step_cost
    if serving is None or cost is None:
        raise ConfigError("serving: needs settings and step times: give Options serving and cost")
    ends = output_ends(trace, options.eos_ids, options.max_tokens)
    n_outputs = (ends - trace.output.offsets[:-1]).tolist()
    counts = Counts.zeros(len(trace), options.max_draft)
    engine = Speculating(trace, cache, options, ends, counts)
    plain = _run(trace, ends, Plain(n_outputs), options, serving.charging(), cost, None)
    drafting = _run(trace, ends, engine, options, serving, cost, on_progress)
    for column, line in ((STEP_MS, drafting), (PLAIN_MS, plain)):
        counts.per_row_ms[:, column] = line.request_ms(serving)
    return replace(
        counts,
        served=Served(drafting, plain),
        prompt_tokens=len(trace.prompt.tokens),
        prefill_tokens=engine.n_first,
        unused_tokens=len(trace.output.tokens) - sum(n_outputs),
        batch_steps=engine.n_steps,
        draft_ns=engine.draft_ns,
        accept_ns=engine.accept_ns,
        ingest_ns=engine.ingest_ns,
    )


def _run(
    trace: Trace,
    ends: Int64,
    engine: Engine,
    options: Options,
    serving: Serving,
    cost: CostModel,
    on_progress: Callable[[int], None] | None,
) -> Timeline:
    """One pass of the clock over the trace; `serving` says what of the drafter's time counts."""
    queue, line = Queue(trace, serving), Timeline(len(trace))
    n_prompt = trace.prompt.lengths.tolist()
    n_outputs = (ends - trace.output.offsets[:-1]).tolist()
    cached = cached_prefixes(trace, ends, serving)
    apart, chunk, capacity = options.shape == "sglang", serving.prefill_chunk, options.concurrency
    draft_ns, accept_ns, ingest_ns = (1000.0 * us for us in (serving.draft_us, serving.accept_us, serving.ingest_us))
    overlap = serving.overlap
    prefilling: dict[int, int] = {}  # tokens left to compute, by row, first come first
    clock = learning = kv_tokens = n_done = n_told = 0
    shared = 0.0  # time of the steps so far that decoding requests took part in, each divided by those that did
    joined: dict[int, float] = {}  # `shared` when a row began to decode

    def end(row: int) -> None:
        nonlocal kv_tokens, n_done
        kv_tokens -= n_prompt[row] + n_outputs[row]
        line.ended[row] = clock
        queue.ended(row, clock)
        n_done += 1

    while True:
        while len(prefilling) + engine.n < capacity:
            row, sent = queue.take(clock)
            if row < 0:
                break
            line.sent[row] = sent
            prefilling[row] = n_prompt[row] - cached[row]
            kv_tokens += cached[row]
        if not prefilling and not engine.n:
            at = queue.next_ns()
            if at is None:
                line.end = clock
                return line
            # What was left to learn is learned in the meantime, as far as that lasts.
            line.idle, clock, learning = line.idle + at - clock, at, max(0, learning - (at - clock))
            continue
        chunks = _chunks(prefilling, chunk) if prefilling else []
        n = 0 if apart and chunks else engine.n
        n_tokens = engine.draft(kv_tokens) if n else 0
        n_prefilled = n_ingested = 0
        for row, n_piece in chunks:
            n_prefilled += n_piece
            n_ingested += n_piece
            if prefilling[row] == n_prompt[row] - cached[row]:
                n_ingested += cached[row]
            prefilling[row] -= n_piece
            engine.prefill(row, n_piece, not prefilling[row])
        n_together = n + len(chunks)
        forward = round(1e6 * cost.step_ms(n_tokens + n_prefilled, n_together, kv_tokens))
        n_learned = engine.emit() if n else 0
        left = engine.leave() if n else []
        firsts = []
        for row, _ in chunks:
            if not prefilling[row]:
                del prefilling[row]
                n_first, goes_on = engine.first(row)
                n_learned += n_first
                firsts.append((row, n_first, goes_on))
        accept, ingest = round(accept_ns * n_learned), round(ingest_ns * n_ingested)
        if overlap:
            duration = round(draft_ns * n) + max(forward, learning + ingest)
            learning = accept
        else:
            duration = round(draft_ns * n) + forward + accept + ingest
        if clock + duration > LAST_NS:
            raise ConfigError(
                f"serving: the modelled clock passes {LAST_NS / 1e9:.0e} s; step times are in milliseconds, "
                "drafting times in microseconds"
            )
        line.log((clock, duration, forward, n, len(chunks), n_tokens + n_prefilled, n_learned, n_ingested))
        clock += duration
        kv_tokens += n_prefilled + n_learned
        share = duration / n_together
        if n:
            shared += share
        for row, _ in chunks:
            line.row_ms[row] += share / 1e6
        for row in left:
            line.row_ms[row] += (shared - joined.pop(row)) / 1e6
            end(row)
        for row, n_first, goes_on in firsts:
            if n_first:
                line.first[row] = clock
            if goes_on:
                joined[row] = shared
            else:
                end(row)
        if on_progress and n_done > n_told:
            n_told = n_done
            on_progress(n_done)


def _chunks(prefilling: dict[int, int], most: int) -> list[tuple[int, int]]:
    """Rows whose prompts a step goes on with, and how many tokens of each: at most `most` in all, in their order."""
    found = []
    for row, left in prefilling.items():
        n = min(left, most)
        if n < left and not n:
            break
        found.append((row, n))
        most -= n
    return found
