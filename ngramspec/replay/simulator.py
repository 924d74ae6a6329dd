"""The replay loop: C requests at a time, interleaved step by step as a continuous-batching server would.

One step is three compiled calls for the whole batch: draft, verify against the record, accept. A request learns from
another only what that one had emitted by then. The first output token of a request comes from prefill: it is accepted
when the request starts and belongs to no step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from time import perf_counter_ns

import numpy as np

from ..caches.base import Cache
from ..draft import Topology
from ..kernels.verify import ROW, calibrate_batch, verify_batch
from .batch import Batch, known_limits
from .counts import PLAIN_MS, STEP_MS, Counts
from .options import Options
from .plain import plain_ms
from .schedule import Schedule
from .serving.loop import serve
from .trace import Trace
from .verify import output_ends


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

    Examples
    --------
    >>> import ngramspec as ns
    >>> from ngramspec.replay import Options, Trace, simulate
    >>> cache = ns.RollingHashCache(ns.HashConfig(capacity_tokens=100_000, vocab_size=100))
    >>> trace = Trace.of(prompts=[[7, 8, 9, 1, 7]], outputs=[[8, 9, 1, 7, 8]])
    >>> simulate(trace, cache, Options(max_draft=3)).per_row.tolist()  # steps, emitted, accepted, drafted, ...
    [[1, 4, 3, 3, 1, 0, 4]]
    """
    if options.serving is not None:
        return serve(trace, cache, options, on_progress)
    # Kernels see one array type only: writable, contiguous.
    outputs, prompts = np.array(trace.output.tokens), np.array(trace.prompt.tokens)
    starts = trace.output.offsets.tolist()
    ends_array = output_ends(trace, options.eos_ids, options.max_tokens)
    ends, limits = ends_array.tolist(), known_limits(trace, options.max_tokens).tolist()
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
    fixed, judged = batch.arguments(outputs, counts)
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
