"""Tuning: which settings to give an engine for this traffic and these step times, and whether to draft at all."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from ...caches.arguments import as_tokens
from ...drafting.cost import CostModel
from ...errors import ConfigError, TraceError
from ..options import Shape
from ..splitting import split
from ..trace import Trace
from ..verify import output_ends
from .engines import engine as known
from .objective import HELD_OUT, Job, Task
from .outcome import AtBatch, Sensitivity, Tuned, sensitivities
from .search import Progress, Search
from .space import Point, Space
from .workers import Workers, workers

__all__ = ["AtBatch", "Sensitivity", "Tuned", "tune"]

#: Gain at one batch size above which settings of its own are told.
TOLD = 0.01


def tune(
    trace: Trace,
    cost: CostModel,
    *,
    engine: str = "ngramspec",
    shape: Shape | None = None,
    batches: Sequence[int] = (1, 8, 32),
    settings: Mapping[str, Sequence[Any]] | None = None,
    trials: int = 48,
    held_out: float = 0.5,
    min_gain: float = 0.01,
    seed: int = 0,
    n_workers: int = 1,
    storage: str | None = None,
    ray: bool = False,
    eos_ids: tuple[int, ...] | None = None,
    on_progress: Progress | None = None,
) -> Tuned:
    """Search the settings with the highest modelled speed-up, and judge them on sessions they were not tuned on.

    One choice of settings for all batch sizes, by the geometric mean of their speed-ups. First every setting is varied
    alone, which shows those without effect; then Optuna proposes `trials` points; then every setting is varied alone
    around the best, until that gains nothing. A grid of at most `trials` points is searched whole. A setting leaves its
    default only where that gains 0.1 %.

    Parameters
    ----------
    trace : Trace
        Recorded requests.
    cost : CostModel
        Step times.
    engine : {"ngramspec", "ngramspec-sglang", "sglang", "vllm"}
        What is tuned: our drafter, ours inside SGLang, or the n-gram drafts that come with an engine.
    shape : {"ideal", "vllm", "sglang"}, optional
        For our drafter, what the engine around it verifies. None: any draft as it is.
    batches : sequence of int
        Requests at a time.
    settings : mapping, optional
        Values to try instead of the usual ones, by setting; a single value fixes it.
    trials : int
        Points that Optuna proposes.
    held_out : float
        Share of the requests that is only judged by.
    min_gain : float
        Gain, 0.01 for 1 %, that must be within the interval for speculation to be worth enabling.
    seed : int
        Of the split, the search and the intervals.
    n_workers : int
        Processes; the result does not depend on it. With more than one, a script needs its
        `if __name__ == "__main__":`.
    storage : str, optional
        Database of a study that machines share, `sqlite:///tune.db` say; then the result depends on who joins.
    ray : bool
        Replay on a Ray cluster instead of processes.
    eos_ids : tuple of int, optional
        Ids that end an output. None: those that the trace records.
    on_progress : callable, optional
        Called with what is being done, how many points of it are done, and how many there are.

    Returns
    -------
    Tuned
        What to set and what it is worth.

    Raises
    ------
    ConfigError
        A setting is unknown, not allowed, or has no effect on this trace although it was asked to be varied.
    TraceError
        The trace is too small to be split, or holds nothing to draft for.

    Examples
    --------
    >>> from ngramspec.drafting.profiles import profile
    >>> from ngramspec.replay import Trace, tune
    >>> text = [[i % 7, i % 11, i % 13, i % 7, i % 11] * 4 for i in range(40)]
    >>> trace = Trace.of(prompts=[t[:6] for t in text], outputs=[t[6:] for t in text])
    >>> few = {"num_draft_tokens": [4, 8], "max_bytes": [2**24]}
    >>> found = tune(trace, profile("dense-8b-h100"), engine="ngramspec-sglang", batches=[1], settings=few, trials=2)
    >>> found.verdict, found.advice["config"]["topology"]
    ('enable', 'chain')
    """
    from .study import Study, quiet  # Optuna takes half a second to import, which only this needs

    _check(batches, trials, n_workers, seed, min_gain)
    if eos_ids is not None:
        as_tokens(eos_ids, "eos_ids")
    for what, value, kind in (("trace", trace, Trace), ("cost", cost, CostModel)):
        if not isinstance(value, kind):
            raise ConfigError(f"{what}: got {value!r}, must be a {kind.__name__}")
    if settings is not None and not isinstance(settings, Mapping):
        raise ConfigError(f"settings: got {settings!r}, must be an object of values by setting")
    task = _task(trace, cost, engine, shape, held_out, seed, eos_ids)
    space = known(engine).space(task.shape).with_values(settings or {})
    with workers(task, n_workers, ray) as replay:
        search = Search(tuple(batches), replay, on_progress)
        base = space.base()
        idle = search.without_effect(space)
        if asked := [name for name in idle if name in (settings or {})]:
            raise ConfigError(f"set: {', '.join(asked)} changes no draft on {trace.name}; leave it out")
        left_out = {name: value for name, value in space.values(base).items() if name in idle}
        space = search.hold(space, idle, base)
        with quiet():
            study = Study(space, seed=seed, storage=storage, name=_name(task, space, search.batches))
            chosen = search.run(space, study, trials)
        found = _judge(space, search, chosen, replay, min_gain)
    return Tuned(
        task=task,
        settings=space.values(chosen),
        batches=found,
        sensitivity=sensitivities(space, search, chosen),
        left_out=left_out,
        n_points=len(search.scores),
        whole_grid=space.size <= trials,
    )


def _check(batches: Sequence[int], trials: int, n_workers: int, seed: int, min_gain: float) -> None:
    whole = isinstance(batches, Sequence) and batches and all(isinstance(batch, int) for batch in batches)
    if not whole or list(batches) != sorted(set(batches)) or not 1 <= batches[0] <= batches[-1] <= 65_536:
        raise ConfigError(f"batches: got {batches!r}, allowed batch sizes from 1 to 65,536, ascending")
    for name, value, low, high in (
        ("trials", trials, 0, 1_000_000), ("n_workers", n_workers, 1, 1024), ("seed", seed, 0, 2**32 - 1),
        ("min_gain", min_gain, 0, 1_000),
    ):  # fmt: skip
        if not isinstance(value, int if name != "min_gain" else (int, float)) or not low <= value <= high:
            raise ConfigError(f"{name}: got {value!r}, allowed {low} to {high}")


def _task(
    trace: Trace,
    cost: CostModel,
    engine: str,
    shape: Shape | None,
    held_out: float,
    seed: int,
    eos_ids: tuple[int, ...] | None,
) -> Task:
    found = known(engine)
    if shape is not None and not found.any_shape:
        raise ConfigError(f"shape: engine {engine!r} verifies its own, {found.shape!r}; leave it out")
    if shape not in (None, *get_args(Shape)):
        raise ConfigError(f"shape: got {shape!r}, allowed {', '.join(get_args(Shape))}")
    if not isinstance(held_out, float) or not 0 < held_out < 1:
        raise ConfigError(f"held_out: got {held_out!r}, allowed between 0 and 1, neither of them")
    parts = split(trace, 1 - held_out, "session", seed)
    for part in parts:
        n_tokens = output_ends(part, eos_ids, None) - part.output.offsets[:-1]
        if (n_tokens < 2).all():
            raise TraceError(f"{trace.name}: half of it has no output of two tokens; take a larger trace")
    return Task(engine, shape or found.shape, cost, parts, eos_ids, seed)


def _judge(space: Space, search: Search, chosen: Point, replay: Workers, min_gain: float) -> tuple[AtBatch, ...]:
    """Replay what is recommended, the defaults, and what did best at one batch size, on the sessions held out."""
    default = space.base()
    points: list[tuple[Point, ...]] = []
    for i, batch in enumerate(search.batches):
        best = search.best(space, batch)
        better = search.scores[best][i].speedup > (1 + TOLD) * search.scores[chosen][i].speedup
        points.append((chosen, default, best) if better else (chosen, default))
    jobs = [
        Job(space.values(point), batch, HELD_OUT)
        for batch, here in zip(search.batches, points, strict=True)
        for point in here
    ]
    scores = replay(jobs)
    found = []
    for i, here in enumerate(points):
        ours, usual, *rest = (next(scores) for _ in here)
        alone = (space.values(here[2]), rest[0]) if rest else None
        found.append(AtBatch(search.batches[i], search.scores[chosen][i], ours, usual, alone, min_gain))
    return tuple(found)


def _name(task: Task, space: Space, batches: tuple[int, ...]) -> str:
    """Name of the study: the same only for the same question, so that machines share nothing else."""
    asked = [task.engine, task.shape, batches, task.eos_ids, task.cost.describe(), task.seed]
    seen = hashlib.blake2b(repr(asked + [(s.name, s.values) for s in space.settings]).encode(), digest_size=8)
    for part in task.parts:
        for tokens in (part.prompt, part.output):
            seen.update(tokens.tokens.tobytes())
            seen.update(tokens.offsets.tobytes())
    return f"ngramspec {task.engine} {seen.hexdigest()}"
