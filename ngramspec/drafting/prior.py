"""Start values of the mixer: what it believes before the first token.

Constants by rule, and over them a prior that was trained on half of the sessions of our sample trace (see
`benchmarks/train_prior.py`), shipped as `data/prior.npz`. Only what does not depend on a vocabulary is trained.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

import numpy as np
from numpy.typing import NDArray

from ..arena import B_FINAL, B_GROUP, B_NODE, B_TABLES, B_TOKEN, Arena
from ..kernels.evidence import N_INPUTS, N_LEVELS, N_TIERS
from ..kernels.mixer import BIAS, FINAL_STEPS, N_BUCKETS, SET

Int32 = NDArray[np.int32]

PRIOR = "prior.npz"
START_EVENTS = 6  # a start value weighs as much as so many outcomes
PRIOR_EVENTS = 30  # a trained one at most so many
WEIGHT = 14_000  # of every input in every set, 16 fractional bits

# What a bucket stands for, and how far a level is trusted when every occurrence agrees.
_COUNTS = (0, 1, 2, 3, 4.5, 7, 14, 30)
_TOTALS = (1, 2, 3, 4.5, 7.5, 12, 24, 48)
_SHARES = (0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.65, 0.9)
_TRUST = (0.3, 0.45, 0.55, 0.62, 0.7, 0.76, 0.8, 0.84, 0.88, 0.9, 0.93, 0.96)
_COUNTED_TRUST = (0.25, 0.4, 0.5, 0.6)


@cache
def start_values() -> tuple[Int32, ...]:
    """Sections of the mixer by rule: tables, node weights, token weights, follower weights, final correction.

    Returns
    -------
    tuple of int32 arrays
        Token weights and final correction hold one set; it is repeated.
    """
    tables = np.zeros((N_INPUTS, N_BUCKETS, N_BUCKETS, 2), np.float64)
    for level in range(N_INPUTS):
        is_counted = level >= N_LEVELS
        trust = _COUNTED_TRUST[level - N_LEVELS] if is_counted else _TRUST[level % N_TIERS]
        for c in range(N_BUCKETS):
            for n, total in enumerate(_TOTALS):
                count = _SHARES[c] * total if is_counted and n >= 5 else _COUNTS[c]
                for latest in range(2):
                    bonus = 0.15 if latest else 0.02
                    tables[level, n, c, latest] = (trust * count + bonus) / (max(total, count) + 0.4)
    weights = np.full(SET, WEIGHT, np.int32)
    weights[BIAS] = 0
    logits = (np.arange(FINAL_STEPS) * 4096 / (FINAL_STEPS - 1) - 2048) / 256
    final = 1 / (1 + np.exp(-logits))
    node = np.tile(weights, (N_TIERS + 1) ** 2)
    return _entries(np.clip(tables, 0.002, 0.98).ravel()), node, weights, node, _entries(final)


def _entries(probabilities: NDArray[np.float64]) -> Int32:
    return ((probabilities * 0xFFFFF).astype(np.int32) << 10) | START_EVENTS


@cache
def prior() -> tuple[Int32, ...]:
    """Sections of the mixer from the shipped prior, shaped as `start_values`."""
    with resources.files("ngramspec").joinpath("data", PRIOR).open("rb") as file, np.load(file) as stored:
        return tuple(stored[f"section{i}"].astype(np.int32) for i in range(B_FINAL + 1))


def fill(arena: Arena, sections: tuple[Int32, ...]) -> None:
    """Write start values into a fresh arena's mixer; modifies."""
    for word, values in enumerate(sections):
        section = arena.section("mixer", word)
        section[:] = np.tile(values, len(section) // len(values))


def trained(arena: Arena) -> tuple[Int32, ...]:
    """A prior from a mixer's present state: entries trusted for at most `PRIOR_EVENTS`, token weights averaged."""
    tables, node, token, follower, _ = (
        arena.section("mixer", w) for w in (B_TABLES, B_NODE, B_TOKEN, B_GROUP, B_FINAL)
    )
    capped = (tables >> 10 << 10) | np.minimum(tables & 1023, PRIOR_EVENTS)
    sets = token.reshape(-1, SET)
    start = start_values()[B_TOKEN]
    touched = sets[(sets != sets[0]).any(1)] if (sets != start).any() else sets
    mean = np.round(touched.mean(0)).astype(np.int32)
    return capped, node.copy(), mean, follower.copy(), start_values()[B_FINAL]
