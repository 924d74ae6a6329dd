"""Serve a workload with one drafter and take the CPU time of everything that is the drafter's own.

CPU time of the whole process, so that work which a drafter leaves to a thread counts. What the engine does itself, and
the comparison with the record, stand outside. The clock costs a fraction of a µs a call, two calls a step and part.
"""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.rivals.base import Rival, accepted
from benchmarks.workloads import PACE, Workload

clock = time.process_time_ns


@dataclass
class Costs:
    """CPU time by part."""

    n_steps: int = 0  #: request-steps
    n_prompt: int = 0  #: prompt tokens taken in
    n_accepted: int = 0  #: drafted tokens that the record goes on with
    n_drafted: int = 0
    propose_ns: list[int] = field(default_factory=list)  #: one entry a batch step
    learn_ns: list[int] = field(default_factory=list)
    ingest_ns: int = 0  #: prompts and their first tokens
    finish_ns: int = 0
    batch: int = 1

    def describe(self) -> dict[str, Any]:
        """µs a request-step by part, and of everything together (`whole_us`); ingest also a prompt token."""
        steps = np.add(self.propose_ns, self.learn_ns)
        total = int(steps.sum()) + self.ingest_ns + self.finish_ns
        return {
            "draft_us": sum(self.propose_ns) / 1000 / self.n_steps,
            "learn_us": sum(self.learn_ns) / 1000 / self.n_steps,
            "step_us": int(steps.sum()) / 1000 / self.n_steps,
            "step_p99_us": float(np.percentile(steps, 99)) / 1000 / self.batch,
            "whole_us": total / 1000 / self.n_steps,
            "ingest_us_per_prompt_token": self.ingest_ns / 1000 / max(1, self.n_prompt),
        }


def serve(rival: Rival, workload: Workload) -> Costs:
    """Serve `workload` until its batch cannot be filled any more."""
    costs = Costs(batch=workload.batch)
    waiting = list(enumerate(workload.requests))[::-1]
    running: dict[str, tuple[list[int], int]] = {}  # what is emitted, and how much of it was
    gc.collect()
    gc.disable()
    try:
        while True:
            while waiting and len(running) < workload.batch:
                i, request = waiting.pop()
                name, first = str(i), [request.output[:1]]
                rival.hold(name, request.prompt)
                start = clock()
                rival.ingest(name, request.prompt)
                rival.learn([name], first)
                costs.ingest_ns += clock() - start
                rival.append([name], first)
                costs.n_prompt += len(request.prompt)
                running[name] = (request.output, 1)
            if len(running) < workload.batch:
                return costs
            step(rival, running, costs)
    finally:
        gc.enable()


def step(rival: Rival, running: dict[str, tuple[list[int], int]], costs: Costs) -> None:
    """One step of the batch; requests whose record ends are finished."""
    names = list(running)
    start = clock()
    proposed = rival.propose(names)
    costs.propose_ns.append(clock() - start)
    emitted = []
    for name, draft in zip(names, rival.read(proposed), strict=True):
        output, at = running[name]
        costs.n_accepted += accepted(draft, output[at:])
        costs.n_drafted += len(draft[0])
        emitted.append(output[at : at + PACE])
        running[name] = (output, at + PACE)
    start = clock()
    rival.learn(names, emitted)
    costs.learn_ns.append(clock() - start)
    rival.append(names, emitted)
    costs.n_steps += len(names)
    for name in names:
        output, at = running[name]
        if at >= len(output):
            start = clock()
            rival.finish(name)
            costs.finish_ns += clock() - start
            del running[name]
