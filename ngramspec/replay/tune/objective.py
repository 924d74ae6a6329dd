"""What a point is worth: its modelled speed-up at each batch size, by replay."""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

from ...drafting.cost import CostModel
from ...kernels.verify import EMITTED, STEPS
from .. import metrics
from ..counts import PLAIN_MS, STEP_MS, Counts
from ..drafters import Facts, build
from ..options import Shape
from ..results import compile_kernels, in_memory
from ..simulator import simulate
from ..trace import Trace
from .engines import engine
from .space import Values

#: Parts of a trace.
TUNING, HELD_OUT = range(2)


@dataclass(frozen=True)
class Task:
    """All that a worker needs to know, once.

    Attributes
    ----------
    engine : str
        A name in `engines.ENGINES`.
    shape : {"ideal", "vllm", "sglang"}
        What it verifies.
    cost : CostModel
        Step times.
    parts : tuple of Trace
        Requests to tune on, and those held out.
    eos_ids : tuple of int, optional
        None: what the trace records.
    seed : int
        Seed of the intervals.
    """

    engine: str
    shape: Shape
    cost: CostModel
    parts: tuple[Trace, Trace]
    eos_ids: tuple[int, ...] | None
    seed: int


class Job(NamedTuple):
    """One replay."""

    values: Values
    batch: int
    part: int = TUNING


@dataclass(frozen=True)
class Score:
    """What came out of one replay.

    Attributes
    ----------
    speedup : float
        Modelled, against decoding.
    interval_95 : tuple of float, optional
        Of the speed-up, by bootstrap over sessions; None with fewer than two.
    accept_length : float
        Tokens emitted a step.
    verified_per_step : float
        Tokens that the engine computes a request and step, padding included.
    batch_mean : float
        Requests that ran at a time.
    digest : str
        Of everything that was counted: replays that differ in no draft have the same.
    drafting_us : float
        Drafting, learning and ingesting, µs of this CPU a request and step. Differs from run to run.
    exposed_speedup : float
        `speedup` if nothing hid `drafting_us`.
    """

    speedup: float
    interval_95: tuple[float, float] | None
    accept_length: float
    verified_per_step: float
    batch_mean: float
    digest: str
    drafting_us: float = field(default=0.0, compare=False)
    exposed_speedup: float = field(default=0.0, compare=False)

    def describe(self) -> dict[str, Any]:
        """As JSON can hold it; `read` reads it back."""
        return asdict(self) | {"interval_95": None if self.interval_95 is None else list(self.interval_95)}

    @classmethod
    def read(cls, described: dict[str, Any]) -> Score:
        """What `describe` wrote."""
        interval = described["interval_95"]
        return cls(**(described | {"interval_95": None if interval is None else (interval[0], interval[1])}))


#: Of one point, at each batch size.
Scores = tuple[Score, ...]


def evaluate(task: Task, job: Job) -> Score:
    """Replay one part of the trace with some settings at one batch size; the same for the same job, times apart."""
    trace = task.parts[job.part]
    how = engine(task.engine).replay(job.values, task.shape, task.cost, job.batch)
    options = replace(how.options, eos_ids=task.eos_ids)
    capacity = {k: v for k, v in how.drafter_options.items() if k == "capacity_tokens"}
    own = {k: v for k, v in how.drafter_options.items() if k not in capacity}
    # Ids of both parts count, so that both are drafted for by one configuration.
    facts = Facts.of(list(task.parts), eos_ids=task.eos_ids, concurrency=job.batch, **capacity)
    cache = build(how.drafter, facts, own)
    if job.part == HELD_OUT:  # timed
        compile_kernels(how.drafter, facts, options, own)
        cache = in_memory(cache)
    return _score(trace, simulate(trace, cache, options), task.seed)


def _score(trace: Trace, counts: Counts, seed: int) -> Score:
    total = counts.per_row.sum(0).tolist()
    steps, emitted = total[STEPS], total[EMITTED]
    step_ms, plain_ms = (float(counts.per_row_ms[:, column].sum()) for column in (STEP_MS, PLAIN_MS))
    interval = metrics.ratio_interval(trace, counts.per_row_ms[:, [PLAIN_MS, STEP_MS]], seed)
    seen = hashlib.blake2b(digest_size=16)
    for array in (counts.per_row, counts.per_depth, counts.per_source, counts.per_reason):
        seen.update(array.tobytes())
    us = (counts.draft_ns + counts.accept_ns + counts.ingest_ns) / 1000 / steps
    return Score(
        speedup=plain_ms / step_ms,
        interval_95=None if interval is None else (interval[0], interval[1]),
        accept_length=emitted / steps,
        verified_per_step=metrics.totals(counts.per_row)["verified_tokens"] / steps,
        batch_mean=steps / counts.batch_steps,
        digest=seen.hexdigest(),
        drafting_us=us,
        exposed_speedup=plain_ms / (step_ms + us * steps / 1000),
    )


def mean(scores: Scores) -> float:
    """One number for all batch sizes: the geometric mean of the speed-ups. No drafting is 1."""
    return math.exp(math.fsum(math.log(score.speedup) for score in scores) / len(scores))
