"""From evidence to a calibrated probability, by context mixing in fixed-point integers.

Every piece of evidence (how often a follower was seen at a level, out of how many, and whether it was the latest)
selects an adaptive probability learned from outcomes. Their logits are mixed by online logistic regression; the
weights are the sum of three sets, chosen by the longest matches at the node, by the last token, and by the longest
matches of the follower itself. A last correction, keyed by the follower's token, maps the result to the frequency
observed. This is the scheme of the PAQ family of compressors (M. Mahoney, "Adaptive weighing of context models for
lossless data compression", 2005), with one binary event a follower.

Logits have 8 fractional bits and lie within +-2047; probabilities have 16 bits outside, 20 in tables, whose entries
hold probability << 10 | number of events seen. No float: the same on every machine.
"""

import numpy as np

from .._jit import inline, kernel, prefetch, unsigned
from ..arena import B_FINAL, B_GROUP, B_NODE, B_TABLES, B_TOKEN
from .counts import K_COUNT, K_TOTAL, K_VALUE, N_FOLLOWERS, N_ORDERS, find
from .evidence import (
    G_COLUMNS,
    G_OWN,
    G_PROB,
    G_SHARED,
    G_VALUE,
    L_BASE,
    L_LATEST,
    L_LEVEL,
    L_SCALE,
    L_TOTAL,
    L_WEIGHT,
    N_GROUPS,
    N_INPUTS,
    N_LEVELS,
    N_TIERS,
    W_CHECKS,
    W_KEYS,
    group_of,
)

BIAS = N_INPUTS
SET = 32  # weights a set: one an input, one for the bias
ONE = 65536
N_BUCKETS = 8
TABLE = N_BUCKETS * N_BUCKETS * 2  # entries an input: how often x out of how many x is it the latest
N_TABLES = N_INPUTS * TABLE
N_MATCHES = N_TIERS + 1
N_NODE_SETS = N_MATCHES * N_MATCHES
N_TOKEN_SETS = 1024
N_FINAL, FINAL_STEPS = 4096, 24
COUNTED_SOURCE = 3

LEARNING_RATE = 12
WEIGHT_LIMIT = 1 << 24
TERM_BITS = 12  # dropped from each term of a sum: 29 terms at their limits then stay within 32 bits
TABLE_LIMIT = 255  # events after which an adaptive probability stops slowing down

# Columns of `x`, scratch int32[X_SIZE], a row a follower: what a follower's probability was made of, for learning.
# Offsets there and in `w` count from their section's start: beyond 8 GiB of buffer others need more than 32 bits.
X_GROUP_SET, X_LOGIT, X_STEP, X_COLUMNS = range(4)
X_SIZE = N_GROUPS * X_COLUMNS


def _stretch_table() -> np.ndarray:
    p = (np.arange(4096) + 0.5) / 4096
    return np.clip(np.round(np.log(p / (1 - p)) * 256), -2047, 2047).astype(np.int32)


def _squash_table() -> np.ndarray:
    logits = (np.arange(4096) - 2048) / 256.0
    return np.clip(np.round(ONE / (1 + np.exp(-logits))), 16, ONE - 16).astype(np.int32)


def _bucket_table(edges: list[int], size: int) -> np.ndarray:
    return np.searchsorted(np.array(edges), np.arange(size), side="right").astype(np.int32)


STRETCH = _stretch_table()
SQUASH = _squash_table()
STEP = (ONE / (np.arange(1024) + 1.5)).astype(np.int32)  # how far an entry moves after n events
TOTAL_BUCKET = _bucket_table([2, 3, 4, 6, 10, 16, 32], 64)
# Bucket of a count; from 64 on, of a share in 32nds, rounded up.
BUCKET = np.concatenate([_bucket_table([1, 2, 3, 4, 6, 10, 20], 64), _bucket_table([1, 2, 3, 6, 11, 18, 27], 64)])


@kernel
def counted(hk, m, n_context, w, g, n, n_levels):
    """Add what the counted contexts, whose keys are in `w`, say: followers, and one level an order known.

    Returns (followers, levels); inputs N_LEVELS.. of `g` hold the counts.
    """
    for i in range(min(N_ORDERS, n_context) - 1, -1, -1):
        at = find(hk, m, int(w[W_KEYS + i]), int(w[W_CHECKS + i]))
        if at < 0:
            continue
        latest = -1
        for j in range(N_FOLLOWERS):
            value = int(m[unsigned(at + K_VALUE + j)])
            if value == 0:
                break
            k, n = group_of(w, g, n, value, COUNTED_SOURCE)
            if k < N_GROUPS:
                g[unsigned(k * G_COLUMNS + N_LEVELS + i)] = m[unsigned(at + K_COUNT + j)]
                if j == 0:
                    latest = k
        w[L_LEVEL + n_levels], w[L_TOTAL + n_levels], w[L_LATEST + n_levels] = N_LEVELS + i, m[at + K_TOTAL], latest
        n_levels += 1
    return n, n_levels


@inline
def prepare(m, w, n_levels, node_set, token_set):
    """Per level of a node: the start of its table entries and the node's and token's weight together."""
    for j in range(n_levels):
        level, total = int(w[L_LEVEL + j]), int(w[L_TOTAL + j])
        w[L_BASE + j] = level * TABLE + int(TOTAL_BUCKET[min(total, 63)]) * 2 * N_BUCKETS
        w[L_WEIGHT + j] = m[node_set + level] + m[token_set + level]
        many = level >= N_LEVELS and total > 9  # then the share counts, in 32nds; 0 where the count does
        w[L_SCALE + j] = (32 << 16) // total if many else 0


@inline
def sets_of(hx, top_own, top_shared, last_value):
    """Offsets of the weights chosen by a node's longest matches and by the token before it."""
    node_set = hx[B_NODE] + (top_own * N_MATCHES + top_shared) * SET
    return node_set, hx[B_TOKEN] + ((last_value * 40503) & (N_TOKEN_SETS - 1)) * SET


@inline
def entry_of(base, scale, count, is_latest):
    """Table entry of one piece of evidence: a follower's count at a level, and whether it was the latest there."""
    index = 64 + min((count * scale + 0xFFFF) >> 16, 63) if scale else min(count, 63)
    return base + 2 * int(BUCKET[unsigned(index)]) + (1 if is_latest else 0)


@kernel
def mix_followers(hx, m, w, g, x, n, n_levels, top_own, top_shared, last_value):
    """Probability (16 fractional bits) that each follower is emitted next, into `g`; its logit and sets, into `x`."""
    node_set, token_set = sets_of(hx, top_own, top_shared, last_value)
    prepare(m, w, n_levels, node_set, token_set)
    bias = int(m[node_set + BIAS]) + int(m[token_set + BIAS])
    tables, groups, finals = hx[B_TABLES], hx[B_GROUP], hx[B_FINAL]
    for i in range(n):
        at = i * X_COLUMNS
        group_set = (int(g[i * G_COLUMNS + G_OWN]) * N_MATCHES + int(g[i * G_COLUMNS + G_SHARED])) * SET
        final = (((int(g[i * G_COLUMNS + G_VALUE]) * 0x9E3779B1) >> 8) & (N_FINAL - 1)) * FINAL_STEPS
        prefetch(m, finals + final)
        prefetch(m, finals + final + FINAL_STEPS - 1)
        x[at + X_GROUP_SET], x[at + X_STEP] = group_set, final
        x[at + X_LOGIT] = (bias + int(m[groups + group_set + BIAS])) >> (TERM_BITS - 8)
    for j in range(n_levels):  # level by level: what the followers have in common is read once
        level, latest, weight = int(w[L_LEVEL + j]), int(w[L_LATEST + j]), int(w[L_WEIGHT + j])
        base, scale = tables + int(w[L_BASE + j]), int(w[L_SCALE + j])
        sets = groups + level
        for i in range(n):
            at = i * X_COLUMNS
            entry = entry_of(base, scale, int(g[unsigned(i * G_COLUMNS + level)]), latest == i)
            given = weight + int(m[unsigned(sets + int(x[unsigned(at + X_GROUP_SET)]))])
            x[unsigned(at + X_LOGIT)] += (given * int(STRETCH[unsigned(m[unsigned(entry)] >> 18)])) >> TERM_BITS
    for i in range(n):
        at = i * X_COLUMNS
        logit = min(max((int(x[at + X_LOGIT]) * 21846) >> (32 - TERM_BITS), -2047), 2047)  # the mean of three sums
        z = (logit + 2048) * (FINAL_STEPS - 1)
        step, part = z >> 12, z & 4095
        final = int(x[at + X_STEP]) + step
        low, high = int(m[finals + final]) >> 14, int(m[finals + final + 1]) >> 14
        corrected = (low * (4096 - part) + high * part) >> 12
        x[at + X_LOGIT], x[at + X_STEP] = logit, final + (1 if part >= 2048 else 0)
        g[i * G_COLUMNS + G_PROB] = max((int(SQUASH[logit + 2048]) + 3 * corrected) >> 2, 16)


@inline
def adapt(m, entry, happened):
    """Move an adaptive probability towards an outcome, ever more slowly."""
    entry = unsigned(entry)
    probability, events = int(m[entry]) >> 10, int(m[entry]) & 1023
    goal = 0xFFFFF if happened else 0
    probability += ((goal - probability) * int(STEP[events])) >> 16
    m[entry] = (probability << 10) | min(events + 1, TABLE_LIMIT)


@inline
def nudge(m, weight, change):
    """Change a weight within its limits."""
    weight = unsigned(weight)
    m[weight] = min(max(int(m[weight]) + change, -WEIGHT_LIMIT), WEIGHT_LIMIT)


@kernel
def learn(hx, m, w, g, x, n, n_levels, top_own, top_shared, last_value, value):
    """Teach the mixer that `value` was emitted where `mix_followers` had `n` followers before it."""
    node_set, token_set = sets_of(hx, top_own, top_shared, last_value)
    tables, groups, finals = hx[B_TABLES], hx[B_GROUP], hx[B_FINAL]
    changes = 0
    for i in range(n):
        at = i * X_COLUMNS
        happened = g[i * G_COLUMNS + G_VALUE] == value
        error = ((ONE - 1 if happened else 0) - int(SQUASH[x[at + X_LOGIT] + 2048])) * LEARNING_RATE
        change = (256 * error + 131072) >> 18
        changes += change
        nudge(m, groups + int(x[at + X_GROUP_SET]) + BIAS, change)
        adapt(m, finals + int(x[at + X_STEP]), happened)
        x[at + X_LOGIT] = error
    nudge(m, node_set + BIAS, changes)
    nudge(m, token_set + BIAS, changes)
    for j in range(n_levels):
        level, latest = int(w[L_LEVEL + j]), int(w[L_LATEST + j])
        base, scale = tables + int(w[L_BASE + j]), int(w[L_SCALE + j])
        changes = 0
        for i in range(n):
            at = i * X_COLUMNS
            entry = entry_of(base, scale, int(g[unsigned(i * G_COLUMNS + level)]), latest == i)
            change = (int(STRETCH[unsigned(m[unsigned(entry)] >> 18)]) * int(x[unsigned(at + X_LOGIT)]) + 131072) >> 18
            changes += change
            nudge(m, groups + int(x[at + X_GROUP_SET]) + level, change)
            adapt(m, entry, g[i * G_COLUMNS + G_VALUE] == value)
        nudge(m, node_set + level, changes)
        nudge(m, token_set + level, changes)
