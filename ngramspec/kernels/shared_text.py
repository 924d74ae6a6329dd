"""What requests of a tenant share: a row appends to the tenant's ring of blocks, and may take the newest back."""

from .._jit import kernel
from ..arena import (
    BLOCK,
    M_FILL,
    M_NEXT,
    M_PREV,
    M_WRITER,
    META,
    S_META,
    S_TOKENS,
    T_CONTEXT_N,
    T_SERIAL,
    T_SHARED_N,
    T_SHARED_TAIL,
    T_TENANT_HI,
    T_TENANT_LO,
)
from .requests import row_at
from .store import clear_position, insert, open_block, put, take_oldest_block, unlink

SHARED_CONTEXT = 8  # tokens of unshared prompt kept ahead of a shared output: matched, never drafted


@kernel
def shared_put(hr, hs, m, row, value, chained):
    """Append one token to the row's shared text; chained positions can be found."""
    r = row_at(hr, row)
    lo, hi, serial = int(m[r + T_TENANT_LO]), int(m[r + T_TENANT_HI]), int(m[r + T_SERIAL])
    tail = int(m[r + T_SHARED_TAIL])
    if tail and m[hs[S_META] + (tail - 1) * META + M_WRITER] != serial:
        tail = 0  # evicted meanwhile
    if tail == 0 or m[hs[S_META] + (tail - 1) * META + M_FILL] == BLOCK:
        b = take_oldest_block(hs, m)
        if b == tail - 1:
            tail = 0
        open_block(hs, m, b, tail - 1, lo, hi, serial)
        tail = b + 1
        m[r + T_SHARED_TAIL] = tail
    p = put(hs, m, tail - 1, value)
    if chained:
        insert(hs, m, p, lo, hi)


@kernel
def shared_append(hr, hs, m, row, value, context, n_context):
    """Share one token; `context` holds the tokens + 1 ahead of it, newest first, in the row's own text."""
    r = row_at(hr, row)
    if m[r + T_SHARED_N] == 0:
        n = min(n_context, SHARED_CONTEXT)
        for i in range(n - 1, -1, -1):
            shared_put(hr, hs, m, row, int(context[i]), i == 0)
        m[r + T_CONTEXT_N] = n
    shared_put(hr, hs, m, row, value, True)
    m[r + T_SHARED_N] += 1


@kernel
def shared_pop_one(hr, hs, m, row):
    """Take back the newest token of the row's shared text, unless it was evicted meanwhile."""
    r = row_at(hr, row)
    tail = int(m[r + T_SHARED_TAIL])
    if tail == 0 or m[hs[S_META] + (tail - 1) * META + M_WRITER] != m[r + T_SERIAL]:
        m[r + T_SHARED_TAIL] = 0
        return
    meta = hs[S_META] + (tail - 1) * META
    p = (tail - 1) * BLOCK + int(m[meta + M_FILL]) - 1
    unlink(hs, m, p, int(m[r + T_TENANT_LO]), int(m[r + T_TENANT_HI]))
    clear_position(hs, m, p)
    m[meta + M_FILL] -= 1
    hs[S_TOKENS] -= 1
    if m[meta + M_FILL] == 0:  # stays in the ring, empty, until its turn comes
        prev = int(m[meta + M_PREV])
        m[r + T_SHARED_TAIL] = prev
        if prev:
            m[hs[S_META] + (prev - 1) * META + M_NEXT] = 0
        for i in range(META):
            m[meta + i] = 0


@kernel
def shared_pop(hr, hs, m, row, n_tokens):
    """Take back the newest `n_tokens` shared tokens, and the context ahead of them when none is left."""
    r = row_at(hr, row)
    for _ in range(min(n_tokens, int(m[r + T_SHARED_N]))):
        shared_pop_one(hr, hs, m, row)
        m[r + T_SHARED_N] -= 1
        if m[r + T_SHARED_N] == 0:
            for _ in range(m[r + T_CONTEXT_N]):
                shared_pop_one(hr, hs, m, row)
            m[r + T_CONTEXT_N] = 0
