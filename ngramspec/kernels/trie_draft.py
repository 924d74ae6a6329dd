"""Drafts of the suffix trie alone: what usually followed, from the longest known context to the shortest.

Each context claims a share of the probability that is left, for its followers by their counts; the shorter ones get
the rest, own contexts before the tenant's of the same length. An occurrence speaks once, for the longest context it
shares with the text: shorter ones add only what they saw more often. A context claims the more the longer it is, the
more often it was seen and the fewer different followers it had. The constants are fixed: this cache does not learn
them.
"""

import numpy as np

from .._jit import inline, kernel, unsigned
from ..arena import C_CHILD, C_COUNT, C_OLDER, C_SUFFIX, C_TOKEN, T_SHARED_N, X_DEPTH, X_FOLLOWERS
from .limits import DRAFTED, empty_reason, remember, stopped_by
from .requests import is_banned, is_eos, own_tail, row_at
from .tree import N_DEPTH, N_LIST, N_PARENT, N_PATH, N_TOKEN, O_PATH, draft_best, hand_out, offer, plant
from .trie import at
from .trie_count import step
from .trie_rows import own_place, place_of, shared_place

OWN, SHARED = 1, 2  # as draft.Source

# Where a token stands in both trees, a column each: a context that ends in it, and its length. Column 0 is the text.
K_OWN, K_OWN_LENGTH, K_SHARED, K_SHARED_LENGTH, K_ROWS = range(5)

# Followers gathered for one drafted node: for each tree the count so far, and where it was first seen; then those fresh
# at one context.
(F_TOKEN, F_PROB, F_SOURCE, F_OWN, F_OWN_NODE, F_OWN_LENGTH, F_SHARED, F_SHARED_NODE, F_SHARED_LENGTH, F_FRESH, F_PARTS,
 F_ROWS) = range(12)  # fmt: skip
CANDIDATES = 64

UNIT = 32  # parts of one count
LATEST = 16  # parts that the latest own follower counts more
CLAIM = np.array([0, 50, 80, 110, 140, 170, 200, 220], np.int32)  # most of 256 that a context claims, by length
KEPT_BACK = np.array([0, 96, 48, 32, 24, 18, 14, 12], np.int32)  # parts a different follower, by length
ENOUGH = (1 << 30) // 16  # when less is left, shorter contexts are not asked
WORTH = (1 << 30) // 128  # nor when no more is left of the whole path, once one knew a follower


@inline
def blend(x, hr, m, row, node, length, n_now, source, first, before, left, f, n):
    """Add what one context says that longer ones of its tree, which occurred `before` times, did not.

    `n_now` of its occurrences are the text's end and have no follower yet. Tokens refused as `first` ones count as
    never seen. Returns the number of followers gathered, what is left, and how often this context occurred.
    """
    c = at(x, node)
    total = int(m[unsigned(c + C_COUNT)]) - n_now
    if before and total <= before:
        return n, left, before
    counted = F_OWN if source == OWN else F_SHARED
    child, seen, fresh, n_fresh, latest = int(m[unsigned(c + C_CHILD)]), 0, 0, 0, 0
    for hop in range(x[X_FOLLOWERS]):
        if child == 0:
            break
        k, follower = at(x, child), child
        token, count = int(m[unsigned(k + C_TOKEN)]), int(m[unsigned(k + C_COUNT)])
        child = int(m[unsigned(k + C_OLDER)])
        if first and is_banned(hr, m, row, token):
            total -= count
            continue
        i = 0
        while i < n and f[F_TOKEN, unsigned(i)] != token:
            i += 1
        if i == n:
            if n == CANDIDATES:
                continue
            f[F_TOKEN, unsigned(n)], f[F_PROB, unsigned(n)], f[F_SOURCE, unsigned(n)] = token, 0, source
            (
                f[F_OWN, unsigned(n)],
                f[F_OWN_NODE, unsigned(n)],
                f[F_SHARED, unsigned(n)],
                f[F_SHARED_NODE, unsigned(n)],
            ) = 0, 0, 0, 0
            n += 1
        if f[counted, unsigned(i)] == 0:
            f[counted + 1, unsigned(i)], f[counted + 2, unsigned(i)] = follower, length + 1
        seen += count
        more = count - int(f[counted, unsigned(i)])
        f[counted, unsigned(i)] = count
        if more > 0:
            if hop == 0 and source == OWN:
                latest = LATEST
            f[F_FRESH, unsigned(n_fresh)], f[F_PARTS, unsigned(n_fresh)] = i, more * UNIT + (latest if hop == 0 else 0)
            fresh += more
            n_fresh += 1
    total = max(total, seen)
    if n_fresh:
        tier = min(length, len(CLAIM) - 1)
        whole = max(total - before, fresh) * UNIT + latest + int(KEPT_BACK[tier]) * n_fresh
        scale = (((left * int(CLAIM[tier])) >> 8) << 20) // whole
        for j in range(n_fresh):
            given = (int(f[F_PARTS, unsigned(j)]) * scale) >> 20
            f[F_PROB, f[F_FRESH, unsigned(j)]] += given
            left -= given
    return n, left, total


@kernel
def gather(x, hr, m, row, k, column, path, floor, now_shared, f):
    """Followers of what ends where `column` stands, their probability, source and standing, into `f`.

    `path` is the path probability there, and `floor` one up to which nothing more is drafted: once there is a follower,
    contexts that could not bring in another are not asked. `now_shared` says whether the text's last token is counted
    in the tenant's tree too. The column then holds the contexts to be asked next. Returns the number of followers, and
    the length of the longest context with any.
    """
    own, own_length, own_total = int(k[K_OWN, column]), int(k[K_OWN_LENGTH, column]), 0
    shared, shared_length, shared_total = int(k[K_SHARED, column]), int(k[K_SHARED_LENGTH, column]), 0
    first = column == 0
    now = 1 if first else 0
    now_shared *= now
    n, left, match = 0, 1 << 30, 0
    for length in range(max(own_length, shared_length), 0, -1):
        if own_length == length:
            n, left, own_total = blend(x, hr, m, row, own, length, now, OWN, first, own_total, left, f, n)
            own, own_length = int(m[unsigned(at(x, own) + C_SUFFIX)]), length - 1
        if shared_length == length:
            n, left, shared_total = blend(
                x, hr, m, row, shared, length, now_shared, SHARED, first, shared_total, left, f, n
            )
            shared, shared_length = int(m[unsigned(at(x, shared) + C_SUFFIX)]), length - 1
        if match == 0 and n:
            match = length
        if left < ENOUGH or (n and (left * path) >> 30 <= floor):
            break
    k[K_OWN, column], k[K_OWN_LENGTH, column] = own, own_length
    k[K_SHARED, column], k[K_SHARED_LENGTH, column] = shared, shared_length
    return n, match


@inline
def stand(x, m, k, column, above, token):
    """Where a drafted token stands: where it was first seen, or one step from what was to be asked next `above` it."""
    for i in (K_OWN, K_SHARED):
        end, length = int(k[i, column]), int(k[i + 1, column])
        if end == 0:
            end, length = int(k[i, above]), int(k[i + 1, above])
            if end:
                end, length = step(x, m, end, length, token)
        elif length == x[X_DEPTH]:
            end, length = int(m[unsigned(at(x, end) + C_SUFFIX)]), length - 1
        k[i, column], k[i + 1, column] = end, length


@kernel
def draft_row(x, hr, ho, m, row, max_draft, max_depth, chain, min_q30, context, f, k, t):
    """Grow one row's draft in `t`; returns (tokens drafted, longest match, what ended it)."""
    p = own_tail(hr, ho, m, row)
    k[K_OWN, 0], k[K_OWN_LENGTH, 0] = own_place(x, ho, m, place_of(x, row), p, context)
    k[K_SHARED, 0], k[K_SHARED_LENGTH, 0] = shared_place(x, hr, ho, m, row, p, context)
    now_shared = 1 if m[row_at(hr, row) + T_SHARED_N] else 0
    plant(t, 0, max_draft)
    n_open, node, match, n_columns, refused, cut = 0, 0, 0, 1, False, False
    while node < max_draft:
        room, path, column = max_draft - node, int(t[N_PATH, node]), int(t[N_LIST, node])
        if chain:
            n_open, room = 0, 1
        least = int(t[O_PATH, 0]) if n_open >= room else 0  # what enters is more probable
        if t[N_DEPTH, node] >= max_depth:
            cut = True
        elif path > least and not is_eos(hr, t[N_TOKEN, node]):
            if node:
                stand(x, m, k, column, int(t[N_LIST, t[N_PARENT, node]]), int(t[N_TOKEN, node]))
            n, length = gather(x, hr, m, row, k, column, path, max(least, WORTH), now_shared, f)
            if node == 0:
                match = length
            for i in range(n):
                below = (path * int(f[F_PROB, unsigned(i)])) >> 30
                if below < max(min_q30, 1):
                    refused = True
                    continue
                k[K_OWN, n_columns], k[K_OWN_LENGTH, n_columns] = (
                    f[F_OWN_NODE, unsigned(i)],
                    f[F_OWN_LENGTH, unsigned(i)],
                )
                k[K_SHARED, n_columns], k[K_SHARED_LENGTH, n_columns] = (
                    f[F_SHARED_NODE, unsigned(i)],
                    f[F_SHARED_LENGTH, unsigned(i)],
                )
                n_open = offer(
                    t, n_open, room, f[F_TOKEN, unsigned(i)], node, below, n_columns, f[F_SOURCE, unsigned(i)]
                )
                n_columns += 1
        if n_open == 0:
            break
        node += 1
        n_open = draft_best(t, n_open, node)
    return node, match, stopped_by(node, max_draft, cut, refused)


@kernel
def draft_batch(
    x, hr, ho, m, slots, max_draft, remaining, chain, min_q30, context, f, k, t,
    tokens, parents, path_q30, sources, n_draft, match_length, reason,
):  # fmt: skip
    """Draft for every slot into the caller's arrays."""
    for i in range(len(slots)):
        row, most, left = int(slots[i]), min(int(max_draft[i]), tokens.shape[1]), int(remaining[i])
        n, match, stop = 0, 0, empty_reason(hr, m, row, most, left)
        if stop == DRAFTED:
            depth = left - 1 if left >= 0 else most
            n, match, stop = draft_row(x, hr, ho, m, row, most, min(depth, most), chain, min_q30, context, f, k, t)
        hand_out(t, n, i, tokens, parents, path_q30, sources)
        n_draft[i], match_length[i], reason[i] = n, match, DRAFTED if n else stop
        remember(hr, m, row, t, n, stop)
