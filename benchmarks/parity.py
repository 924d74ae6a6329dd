"""Compare each rival rule with the released package it describes, draft by draft, on recorded traces.

Needs the environment that `make bench` makes; a rule whose package is missing is listed with the reason. Without
`--trace` the bundled sample is replayed.

Requests run `--concurrency` at a time, in the order of the file, and advance by what the record says of each draft. Two
drafts are equal when they hold the same paths; the order of siblings, which decides nothing, is left out.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import importlib
import importlib.metadata
import itertools
import json
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.rivals.base import Drafted, Rival, Variant, accepted
from ngramspec.baselines import BASELINES
from ngramspec.baselines.base import Baseline
from ngramspec.draft import DraftBatch

SAMPLE = Path(__file__).parent.parent / "ngramspec" / "data" / "sample.jsonl.gz"
EXAMPLE = """\
example:
  make bench BENCH=quick
  export LLAMA_CPP_PYTHON_SDIST=.venv-bench/sdist
  .venv-bench/bin/python -m benchmarks.parity --rule suffix-decoding --trace FILE.jsonl.gz --json out.json
"""


class Check(NamedTuple):
    """What a rule is compared with."""

    package: str  #: distribution whose version is recorded
    rival: str  #: "module:class", constructed with a `Variant`
    variants: tuple[Variant, ...]


CHECKS = {
    "suffix-decoding": Check(
        "arctic-inference",
        "benchmarks.rivals.arctic:Arctic",
        (
            Variant({"max_tree_depth": 24}, "chain", 24),
            Variant({"max_tree_depth": 64}, "chain", 64),
            Variant({"max_tree_depth": 64, "max_spec_factor": 2.0, "max_spec_offset": 1.0}, "tree", 32),
        ),
    ),
    "prompt-lookup": Check(
        "transformers",
        "benchmarks.rivals.transformers:PromptLookup",
        (
            Variant({}, "chain", 10),
            Variant({"max_ngram": 5, "num_tokens": 24}, "chain", 24, (198, 151645)),  # a line end, and Qwen's EOS
        ),
    ),
    "vllm-ngram": Check(
        "vllm",
        "benchmarks.rivals.vllm:Ngram",
        (Variant({}, "chain", 5), Variant({"min_n": 2, "max_n": 5}, "chain", 16)),
    ),
    "ngram-mod": Check(
        "llama-cpp-python",
        "benchmarks.rivals.llama:NgramMod",
        (
            Variant({}, "chain", 64),
            Variant({"n_match": 3, "n_min": 2, "n_max": 16}, "chain", 16),
        ),
    ),
    "sglang-ngram": Check(
        "sglang",
        "benchmarks.rivals.sglang:Ngram",
        (
            Variant({"capacity_nodes": 2_000_000}, "tree", 11),
            Variant({"capacity_nodes": 2_000_000, "match_type": "PROB"}, "tree", 11),
            Variant({"capacity_nodes": 20_000, "index_prompts": True}, "tree", 11),
            Variant({"capacity_nodes": 20_000, "num_draft_tokens": 64, "match_type": "PROB"}, "tree", 63),
        ),
    ),
}


def read(path: Path, n_rows: int | None) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        return [json.loads(line) for line in itertools.islice(lines, n_rows)]


def paths(draft: Drafted) -> list[tuple[int, ...]]:
    """Every path from the last committed token, sorted."""
    found: list[tuple[int, ...]] = []
    for token, parent in zip(*draft, strict=True):
        found.append((*(found[parent] if parent >= 0 else ()), token))
    return sorted(found)


def emitted(draft: Drafted, record: list[int]) -> list[int]:
    return record[: accepted(draft, record) + 1]


def steps(
    ours: Baseline, rival: Rival, rows: list[dict[str, Any]], variant: Variant, concurrency: int
) -> Iterator[tuple[str, int, Drafted, Drafted]]:
    """Replay, and yield request, tokens emitted so far, our draft and the rival's at every step."""
    waiting = list(reversed(rows))
    running: dict[str, tuple[int, list[int]]] = {}  # slot, record yet to emit
    out = DraftBatch.allocate(concurrency, variant.max_draft)
    while waiting or running:
        while waiting and len(running) < concurrency:
            row = waiting.pop()
            name, output = row["id"], row["output_ids"]
            if len(output) < 2:
                continue
            slot = ours.begin(name, row["prompt_ids"])
            prompt = np.array(row["prompt_ids"], np.int32)
            rival.hold(name, prompt)
            rival.ingest(name, prompt)
            ours.accept(name, output[:1])  # from prefill
            rival.learn([name], [output[:1]])
            rival.append([name], [output[:1]])
            running[name] = (slot, output[1:])
        names = list(running)
        slots = np.array([running[name][0] for name in names], np.int32)
        ours.draft_batch(slots, out, max_draft=variant.max_draft, topology=variant.topology)
        theirs = rival.read(rival.propose(names))
        new: list[list[int]] = []
        for i, name in enumerate(names):
            n = int(out.n_draft[i])
            draft = (out.tokens[i, :n].tolist(), out.parents[i, :n].tolist())
            record = running[name][1]
            yield name, len(record), draft, theirs[i]
            new.append(emitted(theirs[i], record))
            running[name] = (running[name][0], record[len(new[-1]) :])
        offsets = np.cumsum([0, *map(len, new)]).astype(np.int32)
        ours.accept_batch(slots, np.concatenate(new).astype(np.int32), offsets)
        rival.learn(names, new)
        rival.append(names, new)
        for name in names:
            if not running[name][1]:
                ours.finish(name)
                rival.finish(name)
                del running[name]


def load(place: str) -> Any:
    module, name = place.split(":")
    return getattr(importlib.import_module(module), name)


def version_of(check: Check) -> str:
    """Version of the released package; raises `ImportError` where it is missing."""
    module = importlib.import_module(check.rival.split(":")[0])
    return module.version() if hasattr(module, "version") else importlib.metadata.version(check.package)


def compare(
    rule: str, variant: Variant, rows: list[dict[str, Any]], concurrency: int, max_steps: int, show: int
) -> dict[str, Any]:
    """Counts of equal and different drafts of one rule, set up one way."""
    check = CHECKS[rule]
    ours = load(BASELINES[rule])(vocab_size=1 << 20, eos_ids=variant.eos_ids, **variant.options)
    rival = load(check.rival)(variant)
    equal = different = with_draft = 0
    for name, left, draft, theirs in itertools.islice(steps(ours, rival, rows, variant, concurrency), max_steps):
        same = paths(draft) == paths(theirs)
        equal += same
        different += not same
        with_draft += bool(theirs[0])
        if not same and different <= show:
            print(f"  {rule} {name}, {left} tokens before the end:\n    {draft}\n    {theirs}", file=sys.stderr)
    return {
        "steps": equal + different,
        "steps_with_draft": with_draft,
        "equal": equal,
        "different": different,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rule", choices=list(CHECKS), action="append", help="default: every rule")
    parser.add_argument("--trace", type=Path, action="append", help="JSONL with prompt_ids and output_ids")
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8], help="requests at a time")
    parser.add_argument("--max-steps", type=int, default=20_000, help="stop after so many compared drafts")
    parser.add_argument("--rows", type=int, help="read so many rows of each trace")
    parser.add_argument("--show", type=int, default=3, help="print so many differing drafts")
    parser.add_argument("--json", type=Path, help="write the counts there")
    args = parser.parse_args()
    results: list[dict[str, Any]] = []
    missing: dict[str, str] = {}
    for rule, trace in itertools.product(args.rule or list(CHECKS), args.trace or [SAMPLE]):
        check = CHECKS[rule]
        try:
            version = version_of(check)
            load(check.rival)(check.variants[0])
        except Exception as error:  # whatever keeps a stranger's package from being built here
            missing[rule] = f"{type(error).__name__}: {error}"
            print(f"{rule}: not compared, {missing[rule]}")
            continue
        rows = read(trace, args.rows)
        for variant, concurrency in itertools.product(check.variants, args.concurrency):
            counts = compare(rule, variant, rows, concurrency, args.max_steps, args.show)
            print(f"{rule} {variant} {trace.name} at {concurrency}: {counts}", flush=True)
            about = {"rule": rule, "package": check.package, "version": version, **variant._asdict()}
            results.append({**about, "trace": trace.name, "concurrency": concurrency, **counts})
    if args.json:
        document = {
            "kind": "measured-cpu",
            "date": datetime.date.today().isoformat(),
            "python": platform.python_version(),
            "numpy": np.__version__,
            "missing": missing,
            "results": results,
        }
        args.json.write_text(json.dumps(document, indent=1) + "\n")
    if any(result["different"] for result in results):
        sys.exit("some drafts differ")


if __name__ == "__main__":
    main()
