"""CPU time of a scheduler's step behind SGLang, ours and its corpus: `python -m benchmarks.sglang_step --json FILE`.

Ours is everything that the plugin does in a step: catching up with the engine's records, drafting, rows and masks,
learning. SGLang's is its corpus calls alone, as its worker makes them (wait for the inserting thread, get, put, wait),
without the lists that the worker builds for them. Time of all threads of the process counts, so that work which one of
the two gives to a thread counts. All serve the bundled sample's text, three tokens a request and step, with nothing in
the cache and beside a million tokens of finished outputs. Prompts are read, and requests end, outside what is timed.

`exposed` is what the model waits for, with the drafter's look-ups and beside them. The last figures are of requests
that arrive with a prompt of 100,000 tokens beside others that run, a forward pass taking 10 ms.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

from benchmarks import drafters, workloads
from benchmarks.machine import machine
from ngramspec import Drafter
from ngramspec.engines.sglang.config import EngineConfig
from ngramspec.engines.sglang.drafts import Drafts
from ngramspec.native.build import build
from ngramspec.replay import write_json

BATCHES = (1, 8, 32, 64, 128)
N_ROWS, DEPTH, EMITTED, PROMPT, STEPS = 12, 18, 3, 600, 100
CACHED = (0, 1_000_000)
OUTPUT = 400  #: tokens of a finished output that fills the cache
ARRIVING = 100_000  #: prompt tokens of a request that arrives
CYCLE = 16  #: steps from one of them to the next; in half of them its prompt is read to the end
FORWARD = 0.01  #: seconds that the model takes

clock = time.process_time_ns


@dataclass
class Request:
    """What the plugin reads of an engine's request."""

    rid: str
    origin_input_ids_unpadded: list[int]
    output_ids: list[int] = field(default_factory=list)
    ended: bool = False
    sampling_params: Any = field(default_factory=lambda: SimpleNamespace(max_new_tokens=100_000, custom_params=None))
    extra_key: str | None = None
    cache_salt: str | None = None
    lora_id: str | None = None
    session_id: str | None = None

    @property
    def output_ids_through_stop(self) -> list[int]:
        return self.output_ids

    def finished(self) -> bool:
        return self.ended


def texts(batch: int, steps: int, run: int) -> list[tuple[list[int], list[int]]]:
    """Prompts and outputs for so many steps: the sample's text piece by piece, in ids of this run's own."""
    need = PROMPT + EMITTED * (steps + 2)
    stream = workloads.text(batch * need, shift=1000 + 20 * run).tolist()
    pieces = [stream[need * i : need * (i + 1)] for i in range(batch)]
    return [(piece[:PROMPT], piece[PROMPT:]) for piece in pieces]


def filling(n_tokens: int) -> Iterator[list[int]]:
    """Finished outputs of so many tokens."""
    text = workloads.text(n_tokens or 1, shift=100)
    for at in range(0, n_tokens, OUTPUT):
        yield text[at : at + OUTPUT].tolist()


class Ours:
    """The plugin's part of a scheduler."""

    def __init__(self, engine: str, n_cached: int) -> None:
        config = EngineConfig(max_bytes=256 * 2**20, share="all users")
        sizes = config.drafter(vocab_size=workloads.VOCAB, eos_ids=(), max_requests=2 * max(BATCHES))
        self.drafts = Drafts(config, sizes, max_batch=max(BATCHES), n_rows=N_ROWS, chain=False)
        drafter = self.drafts.requests.drafter = Drafter(sizes, engine=engine)  # type: ignore[arg-type]
        drafter.touch()
        self.looked, self._draft = 0, drafter.draft_batch
        drafter.draft_batch = self._look_up  # type: ignore[method-assign]
        self._named = 0
        for output in filling(n_cached):
            self._serve(output)

    def _look_up(self, *given: Any, **options: Any) -> None:
        began = clock()
        self._draft(*given, **options)
        self.looked += clock() - began

    def _new(self, prompt: list[int]) -> Request:
        self._named += 1
        return Request(f"request {self._named}", prompt)

    def _serve(self, output: list[int]) -> None:
        """One finished output, taken in at once."""
        request = self._new(output[:1])
        self.drafts.prefilled([request])
        request.output_ids += output[1:]
        self.drafts.requests.catch_up([request], None)
        self._end([request])

    def _end(self, requests: list[Request]) -> None:
        for request in requests:
            request.ended = True
            self.drafts.finished(request.rid)

    def steps(self, batch: int, steps: int, run: int) -> dict[str, float]:
        """µs of CPU a step: all of it on average; what the model waits for, with and without look-ups, as medians."""
        pieces = texts(batch, steps, run)
        requests = [self._new(prompt) for prompt, _ in pieces]
        self.drafts.prefilled(requests)
        while any(item.n_unread for item in self.drafts.requests._followed.values()):
            self.drafts.requests.read_prompts()
            self.drafts.requests.wait()
        whole, exposed, beside = 0, [], []
        for step in range(steps + 2):
            for request, (_, output) in zip(requests, pieces, strict=True):
                request.output_ids += output[EMITTED * step : EMITTED * (step + 1)]
            self.looked, began = 0, clock()
            self.drafts.rows(requests)
            drafted = clock()
            self.drafts.decoded(requests)
            if step >= 2:
                whole += clock() - began
                exposed.append(drafted - began)
                beside.append(drafted - began - self.looked)
        if self.drafts.guard.failures:
            raise RuntimeError("a step of ours failed; see the log above")
        self._end(requests)
        waits = {"exposed_us": exposed, "exposed_beside_look_ups_us": beside}
        return {"step_us": whole / steps / 1000} | {name: median(spent) / 1000 for name, spent in waits.items()}

    def arrival(self, batch: int = 8, times: int = 20) -> dict[str, float]:
        """Milliseconds, medians: what the model waits for, as usual and in the steps after a long prompt arrived.

        `beside_ms` is what the arrival costs while the model runs that prompt, which takes it far longer.
        """
        pieces = texts(batch, CYCLE * times, 0)
        requests = [self._new(prompt) for prompt, _ in pieces]
        self.drafts.prefilled(requests)
        long = workloads.text(ARRIVING * times, shift=300)
        found: dict[str, list[float]] = {"usual_ms": [], "arrival_ms": [], "beside_ms": []}
        arrived: list[Request] = []
        for step in range(CYCLE * times):
            for request, (_, output) in zip(requests, pieces, strict=True):
                request.output_ids += output[EMITTED * step : EMITTED * (step + 1)]
            if step % CYCLE == CYCLE // 2:
                arrived = [self._new(long[step // CYCLE * ARRIVING :][:ARRIVING].tolist())]
                began = time.perf_counter()
                self.drafts.prefilled(arrived)
                found["beside_ms"].append(1000 * (time.perf_counter() - began))
                time.sleep(FORWARD)
            began = time.perf_counter()
            self.drafts.rows(requests)
            waited = 1000 * (time.perf_counter() - began)
            self.drafts.decoded(requests)
            time.sleep(FORWARD)
            if step >= CYCLE:
                found["arrival_ms" if arrived else "usual_ms"].append(waited)
            if step % CYCLE == CYCLE - 1:
                self._end(arrived)
                arrived = []
        self._end(requests)
        return {name: median(waits) for name, waits in found.items()}


class SGLangs:
    """SGLang's corpus with the server's defaults."""

    def __init__(self, n_cached: int) -> None:
        from benchmarks.rivals.sglang import corpus_class

        self.corpus = corpus_class()(
            max_trie_depth=DEPTH, min_bfs_breadth=1, max_bfs_breadth=10, draft_token_num=N_ROWS, capacity=10_000_000
        )
        for output in filling(n_cached):
            self.corpus.batch_put([output])
            self.corpus.synchronize()

    def steps(self, batch: int, steps: int, run: int) -> dict[str, float]:
        """µs of CPU a step."""
        pieces, spent = texts(batch, steps, run), 0
        names = [f"request {batch} {run} {i}" for i in range(batch)]
        for step in range(steps + 2):
            histories = [prompt + output[: EMITTED * (step + 1)] for prompt, output in pieces]
            windows, lengths = [history[-DEPTH:] for history in histories], [len(history) for history in histories]
            began = clock()
            self.corpus.synchronize()
            self.corpus.batch_get(names, windows, lengths)
            self.corpus.batch_put(windows)
            self.corpus.synchronize()
            if step >= 2:
                spent += clock() - began
        self.corpus.erase_match_state(names)
        return {"step_us": spent / steps / 1000}


def both(n_cached: int) -> dict[str, Any]:
    """Ours by both engines, and SGLang's, with so many tokens cached."""
    return {"ours": Ours("numba", n_cached), "ours, C core": Ours("native", n_cached), "SGLang": SGLangs(n_cached)}


def measure(n_cached: int, batches: tuple[int, ...], runs: int) -> dict[str, Any]:
    """Both at every batch size, runs interleaved, of each number the least."""
    measured, found = both(n_cached), {}
    gc.collect()
    gc.disable()
    for batch in batches:
        if n_cached == 0 and found:
            measured = both(0)  # what went before stays in the cache
        taken: dict[str, list[dict[str, float]]] = {name: [] for name in measured}
        for run in range(runs):
            for name, one in measured.items():
                taken[name].append(one.steps(batch, STEPS, len(BATCHES) * run + BATCHES.index(batch)))
        here = {
            name: {part: round(min(run[part] for run in all_), 1) for part in all_[0]} for name, all_ in taken.items()
        }
        found[str(batch)] = here
        theirs = here["SGLang"]["step_us"]
        told = ", ".join(
            f"{name} {entry['step_us']:.0f} ({theirs / entry['step_us']:.1f})" for name, entry in here.items()
        )
        waits = here["ours"]["exposed_beside_look_ups_us"]
        print(f"{n_cached:,} cached, batch {batch}: µs a step {told}; exposed beside look-ups {waits:.0f}", flush=True)
    gc.enable()
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="an empty cache and two batch sizes, one run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to FILE")
    asked = parser.parse_args()
    build()
    results: dict[str, Any] = {"kind": "measured-cpu", "machine": machine("sglang"), "tokens_a_step": EMITTED}
    results["version"] = drafters.version("SGLang")
    for n_cached in CACHED[: 1 if asked.quick else None]:
        batches, runs = ((1, 32), 1) if asked.quick else (BATCHES, 3)
        results.setdefault("steps", {})[str(n_cached)] = measure(n_cached, batches, runs)
    results["arrival"] = {"prompt_tokens": ARRIVING}
    for engine in ("numba", "native"):
        results["arrival"][engine] = {name: round(ms, 3) for name, ms in Ours(engine, 0).arrival().items()}
        print(f"a prompt of {ARRIVING:,} arrives, {engine}: {results['arrival'][engine]}", flush=True)
    if asked.json:
        write_json(results, asked.json)


if __name__ == "__main__":
    main()
