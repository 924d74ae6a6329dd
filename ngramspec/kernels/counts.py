"""Counted short contexts: what usually follows the last 1 to 4 tokens, in what the model itself emitted.

One row of 64 bytes a context: a check word, how often the context was seen, and its followers with their counts, most
recent first. A look-up reads one or two cache lines where a tree of nodes would chase pointers. Rows lie in a table of
fixed size; a new context takes the less used of two rows.

Row: check, total, value (token + 1) of each follower, count of each follower.
"""

from .._jit import inline, kernel, prefetch, unsigned
from ..arena import K_OFF, K_ROWS, K_TOKENS
from .store import mix

N_ORDERS = 4
N_FOLLOWERS = 7
K_CHECK, K_TOTAL, K_VALUE, K_COUNT, K_WIDTH = 0, 1, 2, 9, 16
MAX_COUNT = 60_000  # halved beyond it
PROTECTED = 3  # most recent followers that a new one never displaces


@inline
def keys(hk, seed, context, n_context, rows, checks):
    """First row and check word for each order's context, all computed before any is read."""
    x = seed
    for order in range(1, min(N_ORDERS, n_context) + 1):
        x = mix(x, int(context[order - 1]))
        y = mix(x, order)
        rows[order - 1] = (y * hk[K_ROWS]) >> 32
        checks[order - 1] = (mix(y, 0x13198A2E) & 0x7FFFFFFF) | 1


@inline
def fetch(hk, m, n_orders, rows):
    """Ask for both rows that may hold each order's context before they are needed."""
    for i in range(n_orders):
        prefetch(m, hk[K_OFF] + int(rows[i]) * K_WIDTH)
        prefetch(m, hk[K_OFF] + (int(rows[i]) ^ 1) * K_WIDTH)


@inline
def find(hk, m, row, check):
    """Offset in the buffer of the context's row, -1 when it is unknown; rows are tried in pairs."""
    at = hk[K_OFF] + row * K_WIDTH
    if m[unsigned(at + K_CHECK)] == check:
        return at
    at = hk[K_OFF] + (row ^ 1) * K_WIDTH
    return at if m[unsigned(at + K_CHECK)] == check else -1


@kernel
def place(hk, m, row, check):
    """Offset of a row for a new context: the less used of two, emptied."""
    at = hk[K_OFF] + row * K_WIDTH
    other = hk[K_OFF] + (row ^ 1) * K_WIDTH
    if m[at + K_CHECK] != 0 and m[other + K_TOTAL] < m[at + K_TOTAL]:
        at = other
    for i in range(K_WIDTH):
        m[at + i] = 0
    m[at + K_CHECK] = check
    return at


@inline
def count_one(m, at, value):
    """Count a follower in the row at `at` and make it the most recent."""
    values, counts = at + K_VALUE, at + K_COUNT
    i = 0
    while i < N_FOLLOWERS and m[values + i] != value and m[values + i] != 0:
        i += 1
    count = 1
    if i == N_FOLLOWERS:  # full: the rarest of the older ones goes, the oldest of equals
        i = N_FOLLOWERS - 1
        for j in range(N_FOLLOWERS - 2, PROTECTED - 1, -1):
            if m[counts + j] < m[counts + i]:
                i = j
    elif m[values + i] == value:
        count = int(m[counts + i]) + 1
    for j in range(i, 0, -1):
        m[values + j], m[counts + j] = m[values + j - 1], m[counts + j - 1]
    m[values], m[counts] = value, count
    m[at + K_TOTAL] += 1
    if m[at + K_TOTAL] >= MAX_COUNT:
        m[at + K_TOTAL] >>= 1
        for j in range(N_FOLLOWERS):
            m[counts + j] = (int(m[counts + j]) + 1) >> 1


@kernel
def count(hk, m, seed, context, n_context, value, rows, checks):
    """Count an emitted token after each of its contexts; `rows` and `checks` are scratch."""
    keys(hk, seed, context, n_context, rows, checks)
    for i in range(min(N_ORDERS, n_context)):
        at = find(hk, m, int(rows[i]), int(checks[i]))
        if at < 0:
            at = place(hk, m, int(rows[i]), int(checks[i]))
        count_one(m, at, value)
    hk[K_TOKENS] += 1


@kernel
def uncount(hk, m, seed, context, n_context, value, rows, checks):
    """Take back what `count` added for a token that turned out not to be emitted, as far as it is still there."""
    keys(hk, seed, context, n_context, rows, checks)
    for i in range(min(N_ORDERS, n_context)):
        at = find(hk, m, int(rows[i]), int(checks[i]))
        if at < 0:
            continue
        for j in range(N_FOLLOWERS):
            if m[at + K_VALUE + j] == value:
                m[at + K_COUNT + j] -= 1
                m[at + K_TOTAL] -= 1
                if m[at + K_COUNT + j] == 0:
                    for k in range(j, N_FOLLOWERS - 1):
                        m[at + K_VALUE + k], m[at + K_COUNT + k] = m[at + K_VALUE + k + 1], m[at + K_COUNT + k + 1]
                    m[at + K_VALUE + N_FOLLOWERS - 1], m[at + K_COUNT + N_FOLLOWERS - 1] = 0, 0
                break
        if m[at + K_VALUE] == 0:
            for k in range(K_WIDTH):
                m[at + k] = 0
    hk[K_TOKENS] -= 1
