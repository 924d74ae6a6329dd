"""Modelled against measured wall-clock on the real SGLang: no speculation, its own n-gram drafts, and ours.

Three engines with the tiny model of the tests stand side by side on this CPU. In turn each serves waves of requests to
calibrate by and one to predict: for every batch size, prompts alone (one token each) give the time of a prefill, and
copies of one prompt, which draft alike and so end together, the time of a decode or verify step. The wave to predict
has other prompts, all different. Its modelled time comes from the serving simulator, with the drafter of each engine
replaying what was written, over those step times; a step's drafting is in them.

Run it by hand in the environment of `make test-sglang`, on an idle machine:

    SGLANG_USE_CPU_ENGINE=1 PYTHONPATH=tests/sglang/stand_in .venv-sglang/bin/python -m benchmarks.prediction
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.machine import machine

BATCHES = (1, 2, 4, 8)
PROMPT, STEPS, OUTPUT = 96, 64, 96  # tokens
ROWS = 12
CHUNK = 8192
ENGINE = {"max_running_requests": 8, "chunked_prefill_size": CHUNK, "disable_radix_cache": True}
ENGINE |= {"sleep_on_idle": True, "log_level": "error"}
VARIANTS = ("none", "built-in", "ours")


def engine(model: str, options: dict[str, Any]) -> None:
    """Serve waves that are read from standard input, a JSON line each, and answer each with one."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the engine prints is no answer
    import sglang

    from tests.sglang import drive

    served = sglang.Engine(model_path=model, **(drive.ENGINE | ENGINE | options))
    for line in sys.stdin:
        prompts, n = json.loads(line)
        drive.flush(served)
        begun = time.perf_counter()
        results = drive.batch(served, prompts, drive.asking(n))
        seconds = time.perf_counter() - begun
        answers.write(json.dumps([seconds, results]) + "\n")
        answers.flush()
    served.shutdown()


class Engine:
    """One engine in a process of its own, since plugins load once a process."""

    def __init__(self, variant: str, folder: Path) -> None:
        from tests.sglang.drive import BUILT_IN
        from tests.sglang.served import EVERYBODY

        environment = {key: value for key, value in os.environ.items() if not key.startswith("NGRAMSPEC")}
        environment["OMP_NUM_THREADS"] = "1"
        if variant == "ours":
            environment["NGRAMSPEC_CONFIG"] = str(folder / "config.json")
            (folder / "config.json").write_text(json.dumps(EVERYBODY))
        options = {} if variant == "none" else BUILT_IN
        command = [sys.executable, "-m", "benchmarks.prediction", "--engine", str(folder / "model")]
        self._process = subprocess.Popen(
            [*command, "--options", json.dumps(options)],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    def wave(self, prompts: list[list[int]], n: int) -> tuple[float, list[dict[str, Any]]]:
        """Seconds of a wave, and what was written."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps([prompts, n]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"an engine ended with status {self._process.wait()}: see what it printed")
        seconds, results = json.loads(answer)
        return seconds, results

    def close(self) -> None:
        """End it, once it has put everything away."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(60)


def prompts(batch: int, first: int) -> list[list[int]]:
    """Prompts that a model which walks along the cycle copies from; other numbers give other ones."""
    from tests.sglang.drive import copying

    return [copying(5 + (first + 37 * i) % 500, PROMPT - 7) for i in range(batch)]


def measure(engines: dict[str, Engine], batch: int) -> dict[str, dict[str, Any]]:
    """One round at one batch size, every engine in turn: seconds, and steps of the wave that calibrates."""
    one = prompts(1, 11) * batch
    found = {}
    for name, served in engines.items():
        prefill, _ = served.wave(prompts(batch, 211), 1)
        before, _ = served.wave(one, 1)
        after, results = served.wave(one, 1 + STEPS)
        n_steps = max(result["verify_steps"] or STEPS for result in results)
        seconds, written = served.wave(prompts(batch, 317), OUTPUT)
        found[name] = {
            "prefill_ms": 1000 * prefill,
            "step_ms": 1000 * (after - before) / n_steps,
            "seconds": seconds,
            "outputs": [result["ids"] for result in written],
            "steps": sum(result["verify_steps"] or 0 for result in written),
        }
    return found


def modelled(name: str, batch: int, steps: dict[int, dict[str, float]], outputs: list[list[int]]) -> tuple[float, int]:
    """Seconds of the wave by the serving simulator, and verify steps over its requests."""
    from ngramspec import Drafter
    from ngramspec.engines.sglang.config import EngineConfig
    from ngramspec.replay import CostModel, Facts, Options, Serving, Trace, build
    from ngramspec.replay.serving.loop import serve
    from tests.sglang.tiny_llama import EOS, VOCAB

    width = 1 if name == "none" else ROWS
    points = []
    for size, at in steps.items():
        points.append({"phase": "verify", "n_tokens": size * PROMPT, "batch": size, "ms": at["prefill_ms"]})
        phase = "decode" if width == 1 else "verify"
        points.append({"phase": phase, "n_tokens": size * width, "batch": size, "ms": at["step_ms"]})
    if width > 1:  # the simulator's other run, without speculation, is not looked at
        points.append({"phase": "decode", "n_tokens": 1, "batch": 1, "ms": 1.0})
    cost = CostModel.from_points(points, kind="measured-cpu")
    trace = Trace.of(prompts=prompts(batch, 317), outputs=outputs)
    options = Options(
        concurrency=batch, eos_ids=(), share="all", shape="sglang", cost=cost,
        serving=Serving(prefill_chunk=CHUNK, prefix_cache=False),
    )  # fmt: skip
    if name == "ours":
        cache = Drafter(EngineConfig().drafter(vocab_size=VOCAB, eos_ids=(EOS,), max_requests=2 * batch))
    else:
        facts = Facts(vocab_size=VOCAB, max_requests=batch, capacity_tokens=10_000)
        cache = build("none" if name == "none" else "sglang-ngram", facts)
    counts = serve(trace, cache, options)
    assert counts.served is not None
    line = counts.served.plain if name == "none" else counts.served.drafting
    return line.end / 1e9, int(counts.per_row[:, 0].sum())


def compare(rounds: list[dict[int, dict[str, dict[str, Any]]]]) -> list[dict[str, Any]]:
    """Modelled over measured for every variant and batch size: each round by its own step times, then the median.

    A machine's speed drifts by more than what is to be seen here, and less within a round than from one to another.
    """
    rows = []
    for name in VARIANTS:
        for batch in BATCHES:
            here = [r[batch][name] for r in rounds]
            times = [{b: r[b][name] for b in BATCHES} for r in rounds]
            model = [modelled(name, batch, at, r["outputs"]) for at, r in zip(times, here, strict=True)]
            ratios = sorted(m[0] / r["seconds"] for m, r in zip(model, here, strict=True))
            each = [r["seconds"] for r in here]
            row: dict[str, Any] = {"variant": name, "batch": batch}
            row |= {key: round(median(r[key] for r in here), 3) for key in ("step_ms", "prefill_ms")}
            row |= {"measured_s": round(median(each), 4), "spread": round(max(each) / min(each) - 1, 3)}
            row["modelled"] = {
                "kind": "modelled",
                "seconds": round(median(m[0] for m in model), 4),
                "ratio": round(median(ratios), 3),
                "ratios": [round(ratio, 3) for ratio in ratios],
            }
            if name != "none":
                row["steps"] = here[0]["steps"]
                row["modelled"]["steps"] = model[0][1]
            rows.append(row)
    return rows


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the results there as JSON")
    parser.add_argument("--rounds", type=int, default=5, help="default 5")
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    parser.add_argument("--options", type=json.loads, default={}, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.engine:
        engine(given.engine, given.options)
        return
    from tests.sglang.tiny_llama import make

    with tempfile.TemporaryDirectory() as folder:
        make(Path(folder) / "model")
        engines = {name: Engine(name, Path(folder)) for name in VARIANTS}
        for batch in BATCHES:  # warm up
            measure(engines, batch)
        where = machine("sglang", "torch")
        rounds = [{batch: measure(engines, batch) for batch in BATCHES} for _ in range(given.rounds)]
        for served in engines.values():
            served.close()
    rows = compare(rounds)
    for row in rows:
        print(json.dumps(row))
    if given.write:
        found = {"kind": "measured-cpu", "machine": where, "model": "tiny Llama of the tests", "rounds": given.rounds}
        given.write.write_text(json.dumps(found | {"waves": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
