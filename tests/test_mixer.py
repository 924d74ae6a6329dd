"""The fixed-point mixer against floats, and its learning against frequencies."""

from __future__ import annotations

import numpy as np
import pytest

import ngramspec as ns
from ngramspec.arena import B_FINAL, B_GROUP, B_NODE, B_TABLES, B_TOKEN, MIXER_SIZES, OFFER_ROW
from ngramspec.drafting.prior import start_values
from ngramspec.kernels import counts, drafter, evidence, mixer


def test_sizes_agree_with_the_arena() -> None:
    weights = mixer.N_NODE_SETS * mixer.SET
    final = mixer.N_FINAL * mixer.FINAL_STEPS
    assert (mixer.N_TABLES, weights, mixer.N_TOKEN_SETS * mixer.SET, weights, final) == MIXER_SIZES
    assert OFFER_ROW > drafter.O_TURN
    assert counts.N_ORDERS == evidence.N_COUNTED


@pytest.fixture
def state():
    """A mixer with random tables and weights, and random evidence for 6 followers at 5 levels."""
    rng = np.random.default_rng(0)
    cache = ns.Drafter(ns.DrafterConfig(capacity_tokens=20_000, max_requests=4, vocab_size=1000))
    arena = cache.arena
    for word in range(B_FINAL + 1):
        section = arena.section("mixer", word)
        if word in (B_TABLES, B_FINAL):
            section[:] = (rng.integers(2000, 0xFFFFF - 2000, len(section)).astype(np.int32) << 10) | 5
        else:
            section[:] = rng.integers(-30_000, 60_000, len(section))
    w = np.zeros(evidence.W_SIZE, np.int32)
    g = np.zeros(evidence.G_SIZE, np.int32)
    x = np.zeros(mixer.X_SIZE, np.int32)
    levels = [7, 2, 15, 24, 27]
    for j, level in enumerate(levels):
        w[evidence.L_LEVEL + j], w[evidence.L_TOTAL + j], w[evidence.L_LATEST + j] = level, rng.integers(6, 40), j
    rows = g.reshape(-1, evidence.G_COLUMNS)
    for i in range(6):
        rows[i, levels] = rng.integers(0, 7, len(levels))
        rows[i, evidence.G_VALUE] = 10 + i
        rows[i, evidence.G_OWN], rows[i, evidence.G_SHARED] = rng.integers(0, 13, 2)
    return cache, w, g, x, levels


def float_mixer(arena, w, g, levels, i, top_own, top_shared, last):
    """Probability of follower `i` in floats, from the same tables."""
    g = g.reshape(-1, evidence.G_COLUMNS)
    tables = (arena.section("mixer", B_TABLES) >> 10) / 2**20
    node = arena.section("mixer", B_NODE)[(top_own * 13 + top_shared) * 32 :]
    token = arena.section("mixer", B_TOKEN)[((last * 40503) & 1023) * 32 :]
    group = arena.section("mixer", B_GROUP)[(g[i, evidence.G_OWN] * 13 + g[i, evidence.G_SHARED]) * 32 :]
    edges, shares, totals = [1, 2, 3, 4, 6, 10, 20], [1, 2, 3, 6, 11, 18, 27], [2, 3, 4, 6, 10, 16, 32]
    logit = float(node[28]) + float(token[28]) + float(group[28])
    for j, level in enumerate(levels):
        count, total = int(g[i, level]), int(w[evidence.L_TOTAL + j])
        if level >= 24 and total > 9:
            bucket = np.searchsorted(shares, int(np.ceil(count * 32 / total)), side="right")
        else:
            bucket = np.searchsorted(edges, count, side="right")
        p = tables[((level * 8 + np.searchsorted(totals, total, side="right")) * 8 + bucket) * 2 + (j == i)]
        logit += (float(node[level]) + float(token[level]) + float(group[level])) * np.log(p / (1 - p))
    logit = float(np.clip(logit / 3 / 65536, -8, 8))
    position = (logit + 8) / 16 * 23
    final = (arena.section("mixer", B_FINAL) >> 10) / 2**20
    base = (((int(g[i, evidence.G_VALUE]) * 0x9E3779B1) >> 8) & 4095) * 24
    corrected = np.interp(position, np.arange(24), final[base : base + 24])
    return (1 / (1 + np.exp(-logit)) + 3 * corrected) / 4


def test_fixed_point_follows_floats_within_a_hundredth(state) -> None:
    cache, w, g, x, levels = state
    header = cache.arena.header("mixer")
    for last in range(40):
        mixer.mix_followers(header, cache.arena.mem, w, g, x, 6, len(levels), last % 13, (3 * last) % 13, last)
        for i in range(6):
            want = float_mixer(cache.arena, w, g, levels, i, last % 13, (3 * last) % 13, last)
            assert g[i * evidence.G_COLUMNS + evidence.G_PROB] / 65536 == pytest.approx(want, abs=0.01)


def test_learning_reaches_the_frequency_of_an_outcome(state) -> None:
    cache, w, g, x, levels = state
    header, mem = cache.arena.header("mixer"), cache.arena.mem
    rng = np.random.default_rng(1)
    for _ in range(6000):
        mixer.mix_followers(header, mem, w, g, x, 2, len(levels), 3, 4, 9)
        mixer.learn(header, mem, w, g, x, 2, len(levels), 3, 4, 9, 10 if rng.random() < 0.7 else 11)
    mixer.mix_followers(header, mem, w, g, x, 2, len(levels), 3, 4, 9)
    assert g[0 * evidence.G_COLUMNS + evidence.G_PROB] / 65536 == pytest.approx(0.7, abs=0.05)
    assert g[1 * evidence.G_COLUMNS + evidence.G_PROB] / 65536 == pytest.approx(0.3, abs=0.05)


def test_weights_stay_within_their_limits_under_one_sided_outcomes(state) -> None:
    cache, w, g, x, levels = state
    header, mem = cache.arena.header("mixer"), cache.arena.mem
    for step in range(20_000):
        mixer.mix_followers(header, mem, w, g, x, 6, len(levels), 0, 0, 1)
        mixer.learn(header, mem, w, g, x, 6, len(levels), 0, 0, 1, 10 + step % 6)
    for word in (B_NODE, B_TOKEN, B_GROUP):
        assert np.abs(cache.arena.section("mixer", word)).max() <= mixer.WEIGHT_LIMIT


def test_start_values_are_probabilities_that_rise_with_the_count() -> None:
    tables = start_values()[B_TABLES].reshape(28, 8, 8, 2) >> 10
    assert tables.min() > 0 and tables.max() < 0xFFFFF
    assert (np.diff(tables[:24, 6, :, 0].astype(np.int64), axis=1) >= 0).all()
