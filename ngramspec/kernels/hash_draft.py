"""Drafts of the rolling hash alone: fixed confidence by match length, longest match first.

At a node each level of evidence, from the longest match to the shortest, gives away a share of what probability is
left: its confidence, split among followers by their counts. That is prediction by partial matching with constants in
the place of learned escapes; the calibrated drafter learns them.
"""

import numpy as np

from .._jit import kernel
from ..arena import R_TOKENS_OUT, SHARE_NONE, T_LENGTH, T_SHARE, T_SHARED_N
from .evidence import (
    C_LENGTH,
    C_NEXT,
    G_COLUMNS,
    G_HEAD,
    G_PROB,
    G_SOURCE,
    G_VALUE,
    L_LATEST,
    L_LEVEL,
    L_TOTAL,
    N_TIERS,
    collect,
    gather,
    levels,
)
from .limits import DRAFTED, NO_MATCH, empty_reason, progress, remember, stopped_by
from .requests import (
    ban_last,
    is_banned,
    is_eos,
    own_append,
    own_context,
    own_pop,
    row_at,
    to_value,
)
from .shared_text import SHARED_CONTEXT, shared_append, shared_pop
from .tree import N_DEPTH, N_LIST, N_PATH, N_TOKEN, draft_best, hand_out, offer, plant

# Share of 2**16 that a level claims, by tier of match length, when several occurrences agree on a follower.
CONFIDENCE = np.array([18000, 26000, 33000, 38000, 43000, 48000, 52000, 55000, 57000, 58500, 60000, 62500], np.int32)


@kernel
def blend(w, g, n, n_levels):
    """Probability (16 fractional bits) of each follower of a node, into `g`."""
    for i in range(n):
        g[i * G_COLUMNS + G_PROB] = 0
    left = 65536
    for tier in range(N_TIERS - 1, -1, -1):
        for k in range(n_levels):
            level = int(w[L_LEVEL + k])
            if level % N_TIERS != tier:
                continue
            total = int(w[L_TOTAL + k])
            claimed = (left * int(CONFIDENCE[tier])) >> 16
            claimed = claimed * (4 * total) // (4 * total + 1)
            for i in range(n):  # the latest occurrence counts twice
                count = int(g[i * G_COLUMNS + level]) + (1 if w[L_LATEST + k] == i else 0)
                g[i * G_COLUMNS + G_PROB] += claimed * count // (total + 1)
            left -= claimed


@kernel
def longest_behind(hr, m, row, w, g, n):
    """Longest match among candidates whose follower may be drafted first."""
    longest = 0
    for i in range(n):
        c = int(g[i * G_COLUMNS + G_HEAD]) if not is_banned(hr, m, row, g[i * G_COLUMNS + G_VALUE]) else -1
        while c >= 0:
            longest = max(longest, int(w[C_LENGTH + c]))
            c = int(w[C_NEXT + c])
    return longest


@kernel
def draft_row(hr, ho, hs, hz, m, mz, row, max_draft, max_depth, chain, min_q30, w, g, t):
    """Grow one row's draft in `t`; returns (tokens drafted, longest match, what ended it)."""
    n_candidates, _ = gather(hr, ho, hs, hz, m, mz, row, w)
    if n_candidates == 0:
        return 0, 0, NO_MATCH
    plant(t, 0, max_draft)
    n_open, node, match, refused, cut = 0, 0, 0, False, False
    while True:
        room = max_draft - node
        if chain:
            n_open, room = 0, 1
        if t[N_DEPTH, node] >= max_depth:
            cut = True
        elif t[N_LIST, node] >= 0 and not is_eos(hr, t[N_TOKEN, node]):
            n, own, shared = collect(ho, hs, hz, m, mz, w, g, t, node, int(t[N_LIST, node]))
            if node == 0:
                match = longest_behind(hr, m, row, w, g, n)
            blend(w, g, n, levels(w, g, n, own, shared))
            for i in range(n):
                path = (int(t[N_PATH, node]) * int(g[i * G_COLUMNS + G_PROB])) >> 16
                if path < min_q30:
                    refused = True
                elif node > 0 or not is_banned(hr, m, row, g[i * G_COLUMNS + G_VALUE]):
                    n_open = offer(
                        t,
                        n_open,
                        room,
                        g[i * G_COLUMNS + G_VALUE],
                        node,
                        path,
                        g[i * G_COLUMNS + G_HEAD],
                        g[i * G_COLUMNS + G_SOURCE],
                    )
        if n_open == 0 or node == max_draft:
            break
        node += 1
        n_open = draft_best(t, n_open, node)
        if node == max_draft:
            break
    return node, match, stopped_by(node, max_draft, cut, refused)


@kernel
def draft_batch(
    hr, ho, hs, hz, m, mz, slots, max_draft, remaining, chain, min_q30, w, g, t,
    tokens, parents, path_q30, sources, n_draft, match_length, reason,
):  # fmt: skip
    """Draft for every slot into the caller's arrays."""
    for i in range(len(slots)):
        row, most, left = int(slots[i]), min(int(max_draft[i]), tokens.shape[1]), int(remaining[i])
        n, match, stop = 0, 0, empty_reason(hr, m, row, most, left)
        if stop == DRAFTED:
            depth = left - 1 if left >= 0 else most
            n, match, stop = draft_row(hr, ho, hs, hz, m, mz, row, most, min(depth, most), chain, min_q30, w, g, t)
        hand_out(t, n, i, tokens, parents, path_q30, sources)
        n_draft[i], match_length[i], reason[i] = n, match, DRAFTED if n else stop
        remember(hr, m, row, t, n, stop)


@kernel
def share_next(hr, ho, hs, m, row, value, context):
    """Share one token that is about to be appended to the row's own text; `context` is scratch."""
    n_context = 0
    if m[row_at(hr, row) + T_SHARED_N] == 0:
        n_context = own_context(hr, ho, m, row, context[:SHARED_CONTEXT])
    shared_append(hr, hs, m, row, value, context, n_context)


@kernel
def accept_batch(hr, ho, hs, m, slots, tokens, offsets, context):
    """Append emitted tokens to every slot's own text and, where it shares, to the tenant's."""
    for i in range(len(slots)):
        row = int(slots[i])
        start, end = int(offsets[i]), int(offsets[i + 1])
        if end == start:
            ban_last(hr, m, row)
            continue
        share = m[row_at(hr, row) + T_SHARE]
        for j in range(start, end):
            value = to_value(hr, int(tokens[j]))
            if share != SHARE_NONE:
                share_next(hr, ho, hs, m, row, value, context)
            own_append(hr, ho, m, row, value)
        hr[R_TOKENS_OUT] += end - start
        progress(hr, m, row)


@kernel
def ingest(hr, ho, hs, m, row, tokens, share_all, context):
    """Append prompt tokens to a row's own text, and to the tenant's when it shares all."""
    for j in range(len(tokens)):
        value = to_value(hr, int(tokens[j]))
        if share_all:
            share_next(hr, ho, hs, m, row, value, context)
        own_append(hr, ho, m, row, value)


@kernel
def truncate(hr, ho, hs, m, row, n_tokens):
    """Shorten a row's own text, and take back what it shared of the rest."""
    r = row_at(hr, row)
    n_gone = int(m[r + T_LENGTH]) - n_tokens
    if m[r + T_SHARE] != SHARE_NONE:
        shared_pop(hr, hs, m, row, n_gone)
    own_pop(hr, ho, m, row, n_tokens)
    progress(hr, m, row)
