"""Train the mixer's prior on one half of the sample trace: `python -m benchmarks.train_prior --out FILE`.

The trained half is replayed by a drafter that starts from the constants of `drafting/prior.py`; its mixer's tables and
weights, without anything that depends on the vocabulary, become `ngramspec/data/prior.npz`. With `--compare` the other
half is replayed from the constants and from the new prior, side by side.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from ngramspec.config import DrafterConfig
from ngramspec.drafting.drafter import Drafter
from ngramspec.drafting.prior import fill, start_values, trained
from ngramspec.replay import Facts, Options, Trace, read, simulate
from ngramspec.replay.files import replacing
from ngramspec.replay.sample import sample


def replay(
    trace: Trace, values: tuple[np.ndarray, ...], topology: str, min_prob: float
) -> tuple[Drafter, float, float]:
    """Replay from the given start values; returns (drafter, accept length, drafted tokens a step)."""
    facts = Facts.of([trace], eos_ids=None, concurrency=1, capacity_tokens=400_000)
    drafter = Drafter(DrafterConfig(**facts.settings()))
    fill(drafter.arena, values)
    max_draft = 11 if topology == "tree" else 31
    counts = simulate(trace, drafter, Options(topology=topology, max_draft=max_draft, min_prob=min_prob))
    steps, emitted, _, drafted = counts.per_row[:, :4].sum(0)
    return drafter, emitted / steps, drafted / steps


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="where to write the prior (.npz)")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="train on this trace, not on the sample's half")
    parser.add_argument("--compare", action="store_true", help="replay the other half from both start values")
    options = parser.parse_args()
    trace = read(options.trace) if options.trace else sample("train")
    drafter, length, _ = replay(trace, start_values(), "tree", 0.0)
    print(f"trained on {len(trace)} requests, {len(trace.output.tokens)} output tokens; accept length {length:.3f}")
    prior = trained(drafter.arena)
    with replacing(options.out) as file:
        np.savez_compressed(file, **{f"section{i}": values for i, values in enumerate(prior)})
    if options.compare:
        other = sample("test")
        for name, values in (("constants", start_values()), ("prior", prior)):
            for topology, min_prob in (("tree", 0.0), ("chain", 0.1)):
                _, length, drafted = replay(other, values, topology, min_prob)
                print(f"{name:9s} {topology:5s} accept length {length:.3f} at {drafted:.2f} drafted tokens a step")


if __name__ == "__main__":
    main()
