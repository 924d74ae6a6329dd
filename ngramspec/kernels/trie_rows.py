"""Rows and the trie: where each row's text ends in its own tree and in its tenant's, kept up token by token.

A row's place holds, for each tree, the node of the longest context that ends as its text does (shorter ones are its
suffixes) and the node's version. A place that was evicted is walked anew from the text; so is one in the tenant's tree
when others made nodes meanwhile and a longer context may have appeared. Where a row shares its outputs, that cannot be.
"""

from .._jit import inline, kernel
from ..arena import (
    BLOCK,
    C_SUFFIX,
    IDLE,
    P_COUNTED,
    P_OWN,
    P_OWN_LENGTH,
    P_OWN_VERSION,
    P_ROOT,
    P_ROOT_VERSION,
    P_SEEN,
    P_SHARED,
    P_SHARED_LENGTH,
    P_SHARED_VERSION,
    PLACE,
    R_TOKENS_OUT,
    S_TEXT,
    SHARE_NONE,
    T_CONTEXT_N,
    T_FIRST,
    T_LENGTH,
    T_OWNER_LO,
    T_SHARE,
    T_SHARED_N,
    T_STATE,
    T_TENANT_HI,
    T_TENANT_LO,
    X_CREATED,
    X_DEPTH,
    X_PLACE,
)
from .limits import progress
from .requests import ban_last, own_append, own_pop, own_tail, row_at, to_value
from .shared_text import SHARED_CONTEXT
from .store import newer, older
from .trie import abandon, at, find_root, new_own_root, shared_root, version
from .trie_count import count_token, step, uncount_token, walk


@inline
def place_of(x, row):
    """Offset of a row's place in the buffer."""
    return x[X_PLACE] + row * PLACE


@inline
def keep(x, m, slot, node, length):
    """Write down a node, its version and its length at `slot` of a place."""
    m[slot], m[slot + 1], m[slot + 2] = node, version(x, m, node) if node else 0, length


@kernel
def context_at(ho, m, p, context):
    """Tokens + 1 up to position `p`, newest first, into `context`, to its length or a placeholder; how many."""
    n = 0
    while p >= 0 and n < len(context):
        value = m[ho[S_TEXT] + p]
        if value <= 0:
            break
        context[n] = value
        n += 1
        p = older(ho, m, p)
    return n


@inline
def own_root(x, m, place):
    """A row's own root, 0 when it has none or lost it."""
    root = int(m[place + P_ROOT])
    return root if root and version(x, m, root) == m[place + P_ROOT_VERSION] else 0


@kernel
def own_place(x, ho, m, place, p, context):
    """Node and length of the longest own context that ends at position `p`; node 0 when nothing is counted."""
    node = int(m[place + P_OWN])
    if node and version(x, m, node) == m[place + P_OWN_VERSION]:
        return node, int(m[place + P_OWN_LENGTH])
    root = own_root(x, m, place)
    if root == 0:
        return 0, 0
    n = context_at(ho, m, p, context[: x[X_DEPTH] - 1])
    node, length = walk(x, m, root, context, n)
    keep(x, m, place + P_OWN, node, length)
    return node, length


@kernel
def count_own(x, ho, m, place, p, value, lo, context):
    """Count a token + 1 of a row's own text; `p` is the position before it."""
    m[place + P_COUNTED] += 1
    if value <= 0:  # nothing is matched across a placeholder
        m[place + P_OWN] = 0
        return
    node, length = own_place(x, ho, m, place, p, context)
    if node == 0:
        node = new_own_root(x, m, lo)
        m[place + P_ROOT], m[place + P_ROOT_VERSION] = node, version(x, m, node)
    node, length = count_token(x, m, node, length, value, 1)
    keep(x, m, place + P_OWN, node, length)


@kernel
def shared_place(x, hr, ho, m, row, p, context):
    """Node and length of the longest context in the tenant's tree that ends at position `p`; node 0 without a tree."""
    place, r = place_of(x, row), row_at(hr, row)
    node, seen = int(m[place + P_SHARED]), x[X_CREATED] & 0x7FFFFFFF
    if node and version(x, m, node) == m[place + P_SHARED_VERSION]:
        length = int(m[place + P_SHARED_LENGTH])
        if length == x[X_DEPTH] - 1 or m[place + P_SEEN] == seen:
            return node, length
    root = find_root(x, m, int(m[r + T_TENANT_LO]), int(m[r + T_TENANT_HI]))
    if root < 0:
        m[place + P_SHARED] = 0
        return 0, 0
    n = context_at(ho, m, p, context[: x[X_DEPTH] - 1])
    node, length = walk(x, m, root, context, n)
    keep(x, m, place + P_SHARED, node, length)
    m[place + P_SEEN] = seen
    return node, length


@kernel
def count_shared(x, hr, ho, m, row, value, context):
    """Count a token + 1 for the row's tenant, before it is appended to the row's own text.

    The first one brings the last tokens of its unshared context with it as nodes of count 0.
    """
    place, r = place_of(x, row), row_at(hr, row)
    first, lo, hi = m[r + T_SHARED_N] == 0, int(m[r + T_TENANT_LO]), int(m[r + T_TENANT_HI])
    m[r + T_SHARED_N] += 1
    if value <= 0:
        m[place + P_SHARED] = 0
        return
    p = own_tail(hr, ho, m, row)
    if first:
        n = context_at(ho, m, p, context[: min(SHARED_CONTEXT, x[X_DEPTH] - 1)])
        m[r + T_CONTEXT_N] = n
        node, length = shared_root(x, m, lo, hi), 0
        for i in range(n - 1, -1, -1):
            node, length = count_token(x, m, node, length, int(context[i]), 0)
    else:
        node, length = shared_place(x, hr, ho, m, row, p, context)
        if node == 0:
            node, length = shared_root(x, m, lo, hi), 0
        while length >= m[r + T_CONTEXT_N] + m[r + T_SHARED_N]:  # no unshared token beyond those of the first
            node, length = int(m[at(x, node) + C_SUFFIX]), length - 1
    node, length = count_token(x, m, node, length, value, 1)
    keep(x, m, place + P_SHARED, node, length)
    m[place + P_SEEN] = x[X_CREATED] & 0x7FFFFFFF


@kernel
def follow_shared(x, m, place, value):
    """Move on in the tenant's tree by a token + 1 that is not shared."""
    node = int(m[place + P_SHARED])
    if value <= 0 or node == 0 or version(x, m, node) != m[place + P_SHARED_VERSION]:
        m[place + P_SHARED] = 0
        return
    node, length = step(x, m, node, int(m[place + P_SHARED_LENGTH]), value)
    keep(x, m, place + P_SHARED, node, length)


@kernel
def ingest(x, hr, ho, m, row, tokens, share_all, context):
    """Append prompt tokens to a row's own text, and count them for its tenant when it shares all."""
    place, lo = place_of(x, row), int(m[row_at(hr, row) + T_OWNER_LO])
    for j in range(len(tokens)):
        value = to_value(hr, int(tokens[j]))
        if share_all:
            count_shared(x, hr, ho, m, row, value, context)
        count_own(x, ho, m, place, own_tail(hr, ho, m, row), value, lo, context)
        own_append(hr, ho, m, row, value)
    if not share_all:
        m[place + P_SHARED] = 0


@kernel
def accept_batch(x, hr, ho, m, slots, tokens, offsets, context):
    """Append emitted tokens to every slot's own text and, where it shares, count them for its tenant."""
    for i in range(len(slots)):
        row = int(slots[i])
        start, end = int(offsets[i]), int(offsets[i + 1])
        if end == start:
            ban_last(hr, m, row)
            continue
        place, r = place_of(x, row), row_at(hr, row)
        lo = int(m[r + T_OWNER_LO])
        for j in range(start, end):
            value = to_value(hr, int(tokens[j]))
            if m[r + T_SHARE] != SHARE_NONE:
                count_shared(x, hr, ho, m, row, value, context)
            else:
                follow_shared(x, m, place, value)
            count_own(x, ho, m, place, own_tail(hr, ho, m, row), value, lo, context)
            own_append(hr, ho, m, row, value)
        hr[R_TOKENS_OUT] += end - start
        progress(hr, m, row)


@kernel
def recount(x, hr, ho, m, row, n_tokens, context):
    """Abandon a row's own tree and count the first `n_tokens` of its text anew, as for a fresh request."""
    place, r = place_of(x, row), row_at(hr, row)
    root = own_root(x, m, place)
    if root:
        abandon(x, m, root)
    m[place + P_ROOT], m[place + P_OWN], m[place + P_COUNTED] = 0, 0, 0
    lo, first = int(m[r + T_OWNER_LO]), int(m[r + T_FIRST])
    before, p = -1, (first - 1) * BLOCK if first else -1
    while p >= 0 and m[place + P_COUNTED] < n_tokens:
        count_own(x, ho, m, place, before, int(m[ho[S_TEXT] + p]), lo, context)
        before, p = p, newer(ho, m, p)
    m[place + P_COUNTED] = n_tokens


@kernel
def before_begin(x, hr, ho, m, row, n_keep, context):
    """Make a row's own counts those of the tokens it keeps."""
    place = place_of(x, row)
    if m[row_at(hr, row) + T_STATE] != IDLE or m[place + P_COUNTED] != n_keep:
        recount(x, hr, ho, m, row, n_keep, context)
    m[place + P_SHARED] = 0


@kernel
def truncate(x, hr, ho, m, row, n_tokens, context):
    """Shorten a row's text: take back what it shared of the rest, and count its own anew."""
    place, r = place_of(x, row), row_at(hr, row)
    n_gone = int(m[r + T_LENGTH]) - n_tokens
    progress(hr, m, row)
    if n_gone == 0:
        return
    root = find_root(x, m, int(m[r + T_TENANT_LO]), int(m[r + T_TENANT_HI]))
    p = own_tail(hr, ho, m, row)
    for _ in range(min(n_gone, int(m[r + T_SHARED_N]))):
        m[r + T_SHARED_N] -= 1
        if p >= 0 and root > 0:
            value, p = int(m[ho[S_TEXT] + p]), older(ho, m, p)
            if value > 0:
                n = min(x[X_DEPTH] - 1, int(m[r + T_CONTEXT_N]) + int(m[r + T_SHARED_N]))
                node, length = walk(x, m, root, context, context_at(ho, m, p, context[:n]))
                uncount_token(x, m, node, length, value)
                root = find_root(x, m, int(m[r + T_TENANT_LO]), int(m[r + T_TENANT_HI]))
    if m[r + T_SHARED_N] == 0:
        m[r + T_CONTEXT_N] = 0
    m[place + P_SHARED] = 0
    own_pop(hr, ho, m, row, n_tokens)
    recount(x, hr, ho, m, row, n_tokens, context)
