"""What the cost benchmarks serve: requests of a recorded trace, so many at a time, at a pace that all drafters share.

Every step emits `PACE` recorded tokens whatever was drafted, so that all drafters see the same texts at the same steps
and learn the same tokens. How many drafted tokens agree with the record is counted, and has to be what
`expected.json` says.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from ngramspec.replay import Trace
from ngramspec.replay.sample import sample

#: Tokens that a step emits: one accepted draft and the bonus token, as on traffic that gains twofold.
PACE = 2

VOCAB = 262_144


@dataclass(frozen=True)
class Served:
    """One request: int32 prompt and what is emitted, the token of prefill the first."""

    prompt: np.ndarray
    output: list[int]


@dataclass(frozen=True)
class Workload:
    """Requests, `batch` at a time."""

    name: str
    batch: int
    requests: tuple[Served, ...]

    @property
    def digest(self) -> str:
        """Name of the content, by which expectations are found."""
        state = hashlib.blake2b(f"{self.batch} {PACE}".encode(), digest_size=8)
        for one in self.requests:
            state.update(one.prompt.tobytes() + b"/" + np.array(one.output, np.int32).tobytes())
        return state.hexdigest()


def served(trace: Trace, rows: list[int], n_output: int = 200) -> tuple[Served, ...]:
    """Requests of a trace whose output is long enough for two steps; of longer ones the first `n_output` tokens."""
    prompts = (np.array(trace.prompt[row], np.int32) for row in rows)
    found = (Served(prompt, trace.output[row][:n_output].tolist()) for prompt, row in zip(prompts, rows, strict=True))
    return tuple(one for one in found if len(one.output) > 2 * PACE)


def batches(name: str, trace: Trace, sizes: tuple[int, ...], limit: int | None = None) -> list[Workload]:
    """The trace in its order, at several batch sizes; those that it cannot fill are left out."""
    requests = served(trace, list(range(min(len(trace), limit or len(trace)))))
    return [Workload(f"{name}, batch {n}", n, requests) for n in sizes if n <= len(requests)]


def text(n_tokens: int, shift: int = 0) -> np.ndarray:
    """Tokens of the sample, prompts and outputs in file order; every further pass over it uses other ids."""
    trace = sample("test")
    once = np.concatenate([np.concatenate([trace.prompt[i], trace.output[i]]) for i in range(len(trace))])
    passes = [(once + 7919 * (shift + k)) % (VOCAB - 1) for k in range(-(-n_tokens // len(once)))]
    return np.concatenate(passes)[:n_tokens].astype(np.int32)


def context(n_tokens: int, n_requests: int, n_output: int = 90) -> Workload:
    """One request at a time whose prompt is filled up from the front to `n_tokens` with other text."""
    trace = sample("test")
    rows = np.argsort(-trace.output.lengths, kind="stable")[:n_requests].tolist()
    long = []
    for one in served(trace, rows, n_output):
        prompt = one.prompt[-n_tokens:]
        filler = text(n_tokens - len(prompt), shift=1)
        long.append(Served(np.concatenate([filler, prompt]), one.output))
    return Workload(f"context {n_tokens}", 1, tuple(long))
