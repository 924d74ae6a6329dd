"""Where replays run: here, in processes of this machine, or on a Ray cluster. Results come in the order of the jobs."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Any

from ...errors import ConfigError
from .objective import Job, Score, Task, evaluate

Workers = Callable[[Sequence[Job]], Iterator[Score]]

#: What this process works on, if it is a worker.
_task: list[Task] = []


def _begin(task: Task) -> None:
    _task[:] = [task]


def _work(job: Job) -> Score:
    return evaluate(_task[0], job)


@contextmanager
def workers(task: Task, n: int, ray: bool = False) -> Iterator[Workers]:
    """Something that turns jobs into scores, closed at the end.

    Parameters
    ----------
    task : Task
        Sent to every worker once.
    n : int
        Processes; 1 works in this one. Has no effect with `ray`, where the cluster's CPUs decide.
    ray : bool
        Run on the Ray cluster that `RAY_ADDRESS` names, or on one of this machine.

    Raises
    ------
    ConfigError
        `ray` is not installed.
    """
    if ray:
        with _on_ray(task) as replay:
            yield replay
    elif n == 1:
        yield lambda jobs: (evaluate(task, job) for job in jobs)
    else:
        # Spawned, not forked: a fork would copy the state of threads that no longer run.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(n, mp_context=context, initializer=_begin, initargs=(task,)) as pool:
            try:
                yield lambda jobs: pool.map(_work, jobs)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


@contextmanager
def _on_ray(task: Task) -> Iterator[Workers]:
    try:
        import ray
    except ModuleNotFoundError:
        raise ConfigError("--ray needs the package ray: pip install 'ngramspec[ray]', or leave it out") from None
    ours = not ray.is_initialized()
    if ours:
        ray.init(logging_level="warning")
    try:
        shared = ray.put(task)
        remote: Any = ray.remote(evaluate)
        yield lambda jobs: iter(ray.get([remote.remote(shared, job) for job in jobs]))
    finally:
        if ours:
            ray.shutdown()
