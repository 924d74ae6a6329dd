"""What followed this context before: candidates from the chains, grouped by the token that followed.

A candidate is an earlier position whose text matches the context; at a tree node it stands for "the text from here
on". At a node's expansion each of its candidates names a follower and moves on to it, so that the lists of a tree are
cut ever smaller and the whole tree costs little more than its root. Counts are kept by level: evidence class (own
text, or the tenant's shared text) times tier of match length.

`w` is scratch int32[W_SIZE], rows of W_COLUMNS; `g` is scratch int32[G_SIZE], a row of G_COLUMNS for each follower.
"""

import numpy as np

from .._jit import highest_bit, inline, kernel, prefetch, unsigned
from ..arena import (
    S_BLOCKS,
    S_CLOCK,
    S_HEAD,
    S_HEADS,
    S_LINKS,
    S_ORDER0,
    S_ORDERS,
    S_TEXT,
    S_TOP,
    T_OWNER_HI,
    T_OWNER_LO,
    T_SERIAL,
    T_TENANT_HI,
    T_TENANT_LO,
)
from .requests import own_context, own_tail, row_at
from .store import CLOCK_MASK, fetch, heads_of, newer, walk
from .tree import N_DEPTH, path_value

N_TIERS = 12
N_LEVELS = 2 * N_TIERS
N_COUNTED = 4  # counted orders, see counts.py
N_INPUTS = N_LEVELS + N_COUNTED
N_GROUPS = 16  # followers told apart at a node
N_SEEN = 32  # places of the table that finds a follower's row
PER_CLASS = 48  # candidates kept a class

# A walk may overshoot PER_CLASS by what one more look-up gathers: 6 orders of 64 hops.
W_COLUMNS = 448
N_W_ROWS, KEPT_ROWS = 22, 4  # the first four make up a candidate
# Where the rows of `w` start; flat, since a row's width then is a constant to the compiler.
(C_POS, C_LENGTH, C_CLASS, C_AGE, C_NEXT, W_CONTEXT, W_STARTS, V_TOTAL, V_AGE, V_LATEST, L_LEVEL, L_TOTAL, L_LATEST,
 L_BASE, L_WEIGHT, L_SCALE, W_KEYS, W_CHECKS, W_SHORT, W_HISTORY, W_SEEN, W_FROZEN_STARTS) = range(
    0, N_W_ROWS * W_COLUMNS, W_COLUMNS
)  # fmt: skip
W_SIZE = N_W_ROWS * W_COLUMNS

# Columns of `g`: counts by level and counted order first.
G_VALUE, G_HEAD, G_TAIL, G_PROB, G_SOURCE, G_OWN, G_SHARED = range(N_INPUTS, N_INPUTS + 7)
G_COLUMNS = N_INPUTS + 8
G_SIZE = N_GROUPS * G_COLUMNS

OWN, SHARED, FROZEN = 0, 1, 2
PER_FROZEN = 16  # candidates kept of frozen text, which counts as shared and as older than all of it
FROZEN_AGE = 1 << 30


#: Tier of a match length (64 stands for more): 1, 2, 3, 4, 5-6, 7-8, 9-11, 12-15, 16-19, 20-25, 26-31, 32 and more.
TIER = (np.searchsorted([2, 3, 4, 5, 7, 9, 12, 16, 20, 26, 32], np.arange(65), side="right")).astype(np.int32)


@inline
def note(h, m, w, first, last, kind, age):
    """Class and age of the candidates from `first` up to `last`."""
    width = 1 + h[S_ORDERS]
    for i in range(first, last):
        w[C_CLASS + i] = kind
        w[C_AGE + i] = ((h[S_CLOCK] - m[h[S_LINKS] + int(w[C_POS + i]) * width]) & (CLOCK_MASK >> 1)) | age


@inline
def find_starts(h, m, lo, hi, n_context, w, starts):
    """Where each order's chain hangs in its head table, into row `starts` of `w`, -1 where the context is too short.

    They are asked for here and read by `look_up`, which should come later.
    """
    heads_of(h, lo, hi, w[W_CONTEXT:], n_context, w[starts:])
    for o in range(h[S_ORDERS]):
        prefetch(m, h[S_HEAD] + o * h[S_HEADS] + int(w[starts + o]))


@kernel
def look_up(h, m, lo, hi, skip_writer, n_context, w, starts, n, most):
    """Candidates of one text, longest order first, newest first; returns the new count."""
    last = n + most
    for o in range(h[S_ORDERS]):
        w[starts + o] = m[h[S_HEAD] + o * h[S_HEADS] + int(w[starts + o])] if w[starts + o] >= 0 else 0
        fetch(h, m, int(w[starts + o]))
    for o in range(h[S_ORDERS] - 1, -1, -1):
        if w[starts + o] and n < last:
            start = int(w[starts + o])
            n = walk(h, m, start, o, lo, hi, skip_writer, w[W_CONTEXT:], n_context, w[C_POS:], w[C_LENGTH:], n)
    return min(n, last)


@kernel
def gather(hr, ho, hs, hz, m, mz, row, w):
    """Candidates for a row's next token: own text, then shared, then frozen.

    `hz` and `mz` are header and buffer of the frozen text. Fills the candidate rows of `w` and its context row; returns
    (candidates, context tokens).
    """
    r = row_at(hr, row)
    n_context = own_context(hr, ho, m, row, w[W_CONTEXT : W_CONTEXT + ho[S_TOP]])
    if n_context == 0:
        return 0, 0
    tenant_lo, tenant_hi = int(m[r + T_TENANT_LO]), int(m[r + T_TENANT_HI])
    find_starts(hs, m, tenant_lo, tenant_hi, n_context, w, W_STARTS)
    if hz[S_BLOCKS]:
        find_starts(hz, mz, 0, 0, n_context, w, W_FROZEN_STARTS)
    tail, n = own_tail(hr, ho, m, row), 0
    width = 1 + ho[S_ORDERS]
    for o in range(ho[S_ORDERS]):
        fetch(ho, m, int(m[ho[S_LINKS] + tail * width + 1 + o]))
    lo, hi = int(m[r + T_OWNER_LO]), int(m[r + T_OWNER_HI])
    for o in range(ho[S_ORDERS] - 1, -1, -1):
        if ho[S_ORDER0 + o] <= n_context and n < PER_CLASS:  # the tail's own links lead to what came before
            start = int(m[ho[S_LINKS] + tail * width + 1 + o])
            n = walk(ho, m, start, o, lo, hi, -1, w[W_CONTEXT:], n_context, w[C_POS:], w[C_LENGTH:], n)
    n_own = min(n, PER_CLASS)
    note(ho, m, w, 0, n_own, OWN, 0)
    serial = int(m[r + T_SERIAL])
    n_shared = look_up(hs, m, tenant_lo, tenant_hi, serial, n_context, w, W_STARTS, n_own, PER_CLASS)
    note(hs, m, w, n_own, n_shared, SHARED, 0)
    n = n_shared
    if hz[S_BLOCKS]:
        n = look_up(hz, mz, 0, 0, -1, n_context, w, W_FROZEN_STARTS, n_shared, PER_FROZEN)
        note(hz, mz, w, n_shared, n, FROZEN, FROZEN_AGE)
    for i in range(n):
        w[C_NEXT + i] = i + 1
    if n:
        w[C_NEXT + n - 1] = -1
    return n, n_context


@inline
def advance(ho, hs, hz, m, mz, w, c, t, node):
    """Move candidate `c` one token on; returns the token + 1 it moved to, 0 when its text ends or cannot be drafted.

    Own text goes on with the path drafted so far, which is what makes periodic text extend: a position of -(d + 1)
    stands for the path's token at depth d.
    """
    p = int(w[unsigned(C_POS + c)])
    if p >= 0:
        kind = w[unsigned(C_CLASS + c)]
        q = newer(ho, m, p) if kind == OWN else newer(hs, m, p) if kind == SHARED else newer(hz, mz, p)
        if q >= 0:
            w[unsigned(C_POS + c)] = q
            if kind == FROZEN:
                return max(int(mz[unsigned(hz[S_TEXT] + q)]), 0)
            return max(int(m[unsigned((ho[S_TEXT] if kind == OWN else hs[S_TEXT]) + q)]), 0)
        if kind != OWN:
            return 0
        p = -1  # the own text's last token is the path's depth 0
    depth = -p
    if depth > t[N_DEPTH, node]:
        return 0
    w[C_POS + c] = p - 1
    return path_value(t, node, depth)


@inline
def group_of(w, g, n_groups, value, source):
    """Row of a follower in `g`, added when new; returns (row or N_GROUPS when full, new number of rows)."""
    at = value & (N_SEEN - 1)
    i = int(w[W_SEEN + at])
    while i:
        if g[unsigned((i - 1) * G_COLUMNS + G_VALUE)] == value:
            return i - 1, n_groups
        at = (at + 1) & (N_SEEN - 1)
        i = int(w[W_SEEN + at])
    if n_groups < N_GROUPS:
        w[W_SEEN + at] = n_groups + 1
        first = n_groups * G_COLUMNS
        for j in range(N_INPUTS):
            g[unsigned(first + j)] = 0
        g[unsigned(first + G_VALUE)], g[unsigned(first + G_SOURCE)] = value, source
        g[unsigned(first + G_HEAD)], g[unsigned(first + G_TAIL)] = -1, -1
        g[unsigned(first + G_OWN)], g[unsigned(first + G_SHARED)] = 0, 0
        return n_groups, n_groups + 1
    return N_GROUPS, n_groups


@kernel
def collect(ho, hs, hz, m, mz, w, g, t, node, candidates):
    """Group the candidates of a node by follower and count them by level; each moves on to its follower.

    Returns (followers, tiers met in own text, tiers met in shared text), bit t for tier t.
    """
    n, own_tiers, shared_tiers = 0, 0, 0
    for i in range(N_SEEN):
        w[W_SEEN + i] = 0
    c, depth = candidates, int(t[N_DEPTH, node])
    while c >= 0:
        following = int(w[unsigned(C_NEXT + c)])
        value = advance(ho, hs, hz, m, mz, w, c, t, node)
        if value > 0:
            tier = int(TIER[unsigned(min(int(w[unsigned(C_LENGTH + c)]) + depth, 64))])
            kind = int(w[unsigned(C_CLASS + c)])
            shared = kind != OWN
            level = tier + N_TIERS if shared else tier
            i, n = group_of(w, g, n, value, 4 if kind == FROZEN else 1 + kind)
            age, bit = int(w[unsigned(C_AGE + c)]), 1 << tier
            before = int(w[unsigned(V_TOTAL + level)]) if (shared_tiers if shared else own_tiers) & bit else 0
            if before == 0 or age < w[unsigned(V_AGE + level)]:
                w[unsigned(V_AGE + level)], w[unsigned(V_LATEST + level)] = age, i
            w[unsigned(V_TOTAL + level)] = before + 1
            if shared:
                shared_tiers |= bit
            else:
                own_tiers |= bit
            if i < N_GROUPS:
                first = i * G_COLUMNS
                g[unsigned(first + level)] += 1
                longest = first + (G_SHARED if shared else G_OWN)
                g[unsigned(longest)] = max(int(g[unsigned(longest)]), tier + 1)
                w[unsigned(C_NEXT + c)] = -1
                if g[unsigned(first + G_HEAD)] < 0:
                    g[unsigned(first + G_HEAD)] = c
                else:
                    w[unsigned(C_NEXT + g[unsigned(first + G_TAIL)])] = c
                g[unsigned(first + G_TAIL)] = c
        c = following
    return n, own_tiers, shared_tiers


@inline
def levels(w, g, n, own_tiers, shared_tiers):
    """Turn counts by level into counts of "at least this long a match", longest first in each class.

    Returns how many levels hold anything; L_LEVEL, L_TOTAL and L_LATEST of `w` describe them.
    """
    n_levels = 0
    for half in range(2):
        total, latest, age, above = 0, -1, 0, -1
        left = shared_tiers if half else own_tiers
        while left:
            tier = highest_bit(left)
            level = half * N_TIERS + tier
            left ^= 1 << tier
            total += w[V_TOTAL + level]
            if latest < 0 or w[V_AGE + level] < age:
                age, latest = int(w[V_AGE + level]), int(w[V_LATEST + level])
            if above >= 0:
                for i in range(n):
                    g[i * G_COLUMNS + level] += g[i * G_COLUMNS + above]
            w[L_LEVEL + n_levels], w[L_TOTAL + n_levels], w[L_LATEST + n_levels] = level, total, latest
            n_levels += 1
            above = level
    return n_levels
