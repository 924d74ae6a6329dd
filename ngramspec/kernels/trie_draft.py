"""Drafts of the suffix trie alone: what usually followed, from the longest known context to the shortest.

Each context gives away a part of the probability that is left, among its followers by their counts, and passes the rest
on to the next shorter one; own contexts come before the tenant's of the same length. A context keeps the less back the
longer it is, the more often it was seen and the fewer different followers it had. The constants are fixed: this cache
does not learn them.
"""

import numpy as np

from .._jit import kernel
from ..arena import C_CHILD, C_COUNT, C_OLDER, C_SUFFIX, C_TOKEN, T_SHARED_N, X_FOLLOWERS
from .limits import BELOW_MIN, DRAFTED, NO_MATCH, empty_reason, remember
from .requests import is_banned, is_eos, own_tail, row_at
from .tree import N_DEPTH, N_PARENT, N_PATH, N_TOKEN, O_PATH, draft_best, hand_out, offer, plant
from .trie import at
from .trie_count import step
from .trie_rows import own_place, place_of, shared_place

OWN, SHARED = 1, 2  # as draft.Source

# Where a drafted node stands in both trees: longest context and its length, one row of scratch each.
K_OWN, K_OWN_LENGTH, K_SHARED, K_SHARED_LENGTH, K_ROWS = range(5)

# Followers gathered for one drafted node.
F_TOKEN, F_PROB, F_SOURCE, F_SEEN_TOKEN, F_SEEN_COUNT, F_ROWS = range(6)
CANDIDATES = 64

UNIT = 32  # parts of one count
LATEST = 16  # parts that the latest follower counts more
KEPT_BACK = np.array([0, 48, 24, 16, 12, 9, 7, 6], np.int32)  # parts a different follower, by context length
ENOUGH = (1 << 30) // 32  # what is left when shorter contexts are not asked any more


@kernel
def blend(x, hr, m, row, node, length, n_now, source, left, first, f, n):
    """Give away a part of `left` among the followers of one context; `n_now` of its occurrences have none yet.

    Tokens refused as `first` ones count as never seen. Returns the number of followers gathered, and what is left.
    """
    c = at(x, node)
    total, seen, n_seen = int(m[c + C_COUNT]) - n_now, 0, 0
    child, hops = int(m[c + C_CHILD]), x[X_FOLLOWERS]
    while child and hops:
        k = at(x, child)
        if first and is_banned(hr, m, row, m[k + C_TOKEN]):
            total -= int(m[k + C_COUNT])
        else:
            f[F_SEEN_TOKEN, n_seen], f[F_SEEN_COUNT, n_seen] = m[k + C_TOKEN], int(m[k + C_COUNT]) * UNIT
            seen += int(m[k + C_COUNT])
            n_seen += 1
        child, hops = int(m[k + C_OLDER]), hops - 1
    if n_seen == 0:
        return n, left
    f[F_SEEN_COUNT, 0] += LATEST
    kept_back = int(KEPT_BACK[min(length, len(KEPT_BACK) - 1)]) * n_seen
    scale = (left << 20) // (max(total, seen) * UNIT + LATEST + kept_back)
    for j in range(n_seen):
        token, given = f[F_SEEN_TOKEN, j], (f[F_SEEN_COUNT, j] * scale) >> 20
        i = 0
        while i < n and f[F_TOKEN, i] != token:
            i += 1
        if i == n:
            if n == CANDIDATES:
                continue
            f[F_TOKEN, n], f[F_PROB, n], f[F_SOURCE, n] = token, 0, source
            n += 1
        f[F_PROB, i] += given
        left -= given
    return n, left


@kernel
def gather(x, hr, m, row, k, node, now_shared, f):
    """Followers of what ends at a drafted node (0: the text itself), their probability and source, into `f`.

    `now_shared` says whether the text's last token is counted in the tenant's tree too. Returns the number of followers
    and the length of the longest context that has any.
    """
    own, own_length = int(k[K_OWN, node]), int(k[K_OWN_LENGTH, node])
    shared, shared_length = int(k[K_SHARED, node]), int(k[K_SHARED_LENGTH, node])
    now = 1 if node == 0 else 0
    n, left, match = 0, 1 << 30, 0
    for length in range(max(own_length, shared_length), 0, -1):
        if own_length == length:
            n, left = blend(x, hr, m, row, own, length, now, OWN, left, node == 0, f, n)
            own, own_length = int(m[at(x, own) + C_SUFFIX]), length - 1
        if shared_length == length:
            n, left = blend(x, hr, m, row, shared, length, now * now_shared, SHARED, left, node == 0, f, n)
            shared, shared_length = int(m[at(x, shared) + C_SUFFIX]), length - 1
        if match == 0 and n:
            match = length
        if left < ENOUGH:
            break
    return n, match


@kernel
def stand(x, m, k, t, node):
    """Where a drafted node stands: one step from where its parent does."""
    parent, token = int(t[N_PARENT, node]), int(t[N_TOKEN, node])
    for i in (K_OWN, K_SHARED):
        end, length = int(k[i, parent]), int(k[i + 1, parent])
        if end:
            end, length = step(x, m, end, length, token)
        k[i, node], k[i + 1, node] = end, length


@kernel
def draft_row(x, hr, ho, m, row, max_draft, max_depth, chain, min_q30, context, f, k, t):
    """Grow one row's draft in `t`; returns (tokens drafted, longest match, reason)."""
    p = own_tail(hr, ho, m, row)
    k[K_OWN, 0], k[K_OWN_LENGTH, 0] = own_place(x, ho, m, place_of(x, row), p, context)
    k[K_SHARED, 0], k[K_SHARED_LENGTH, 0] = shared_place(x, hr, ho, m, row, p, context)
    now_shared = 1 if m[row_at(hr, row) + T_SHARED_N] else 0
    plant(t, 0, max_draft)
    n_open, node, refused, match = 0, 0, False, 0
    while node < max_draft:
        room, path = max_draft - node, int(t[N_PATH, node])
        if chain:
            n_open, room = 0, 1
        crowded = n_open >= room and t[O_PATH, room - 1] >= path
        if not crowded and t[N_DEPTH, node] < max_depth and not is_eos(hr, t[N_TOKEN, node]):
            if node:
                stand(x, m, k, t, node)
            n, length = gather(x, hr, m, row, k, node, now_shared, f)
            if node == 0:
                match = length
            for i in range(n):
                below = (path * int(f[F_PROB, i])) >> 30
                if below < max(min_q30, 1):
                    refused = True
                else:
                    n_open = offer(t, n_open, room, f[F_TOKEN, i], node, below, 0, f[F_SOURCE, i])
        if n_open == 0:
            break
        node += 1
        n_open = draft_best(t, n_open, node)
    if node:
        return node, match, DRAFTED
    return 0, match, BELOW_MIN if refused else NO_MATCH


@kernel
def draft_batch(
    x, hr, ho, m, slots, max_draft, remaining, chain, min_q30, context, f, k, t,
    tokens, parents, path_q30, sources, n_draft, match_length, reason,
):  # fmt: skip
    """Draft for every slot into the caller's arrays."""
    for i in range(len(slots)):
        row, most, left = int(slots[i]), min(int(max_draft[i]), tokens.shape[1]), int(remaining[i])
        n, match, why = 0, 0, empty_reason(hr, m, row, most, left)
        if why == DRAFTED:
            depth = left - 1 if left >= 0 else most
            n, match, why = draft_row(x, hr, ho, m, row, most, min(depth, most), chain, min_q30, context, f, k, t)
        hand_out(t, n, i, tokens, parents, path_q30, sources)
        n_draft[i], match_length[i], reason[i] = n, match, why
        remember(hr, m, row, t, n)
