"""Rows of running requests and idle sessions: their own text, their part of the shared text, their life.

Own text is exact and private: blocks are linked per row, taken from a free list, and given back emptied. When none is
free the least recently used idle session loses its last block; when none is idle the longest running text loses its
first. Shared text lies in a ring of blocks keyed by tenant; live own text is never evicted by it.
"""

from .._jit import inline, kernel, prefetch
from ..arena import (
    BLOCK,
    FREE,
    IDLE,
    LIVE,
    M_FILL,
    M_NEXT,
    M_PREV,
    MAX_BANNED,
    MAX_ORDERS,
    META,
    R_EOS0,
    R_IDLE_NEW,
    R_IDLE_OLD,
    R_N_EOS,
    R_N_IDLE,
    R_OFF,
    R_ROWS,
    R_SERIAL,
    R_VOCAB,
    ROW,
    S_EVICTED,
    S_HEAD,
    S_HEADS,
    S_META,
    S_ORDER0,
    S_ORDERS,
    S_TEXT,
    S_TOKENS,
    T_BANNED,
    T_BLOCKS,
    T_CONTEXT_N,
    T_DROPPED,
    T_FIRST,
    T_LENGTH,
    T_N_BANNED,
    T_N_ROOTS,
    T_NEWER,
    T_OLDER,
    T_OWNER_HI,
    T_OWNER_LO,
    T_PROMPT,
    T_ROOTS,
    T_SERIAL,
    T_SHARE,
    T_SHARED_N,
    T_SHARED_TAIL,
    T_STATE,
    T_TAIL,
    T_TENANT_HI,
    T_TENANT_LO,
)
from .store import (
    clear_position,
    free_block,
    heads_of,
    insert,
    link,
    mix,
    newer,
    older,
    open_block,
    put,
    take_free_block,
    unlink,
)

AHEAD = 16  # tokens of a prompt whose heads are found at once


@inline
def row_at(hr, row):
    """Offset of a row in the buffer."""
    return hr[R_OFF] + row * ROW


@kernel
def idle_remove(hr, m, row):
    """Take a row out of the list of idle sessions."""
    r = row_at(hr, row)
    old, new = int(m[r + T_OLDER]), int(m[r + T_NEWER])
    if old:
        m[row_at(hr, old - 1) + T_NEWER] = new
    else:
        hr[R_IDLE_OLD] = new
    if new:
        m[row_at(hr, new - 1) + T_OLDER] = old
    else:
        hr[R_IDLE_NEW] = old
    m[r + T_OLDER], m[r + T_NEWER] = 0, 0
    hr[R_N_IDLE] -= 1


@kernel
def idle_append(hr, m, row):
    """Make a row the most recently used idle session."""
    r = row_at(hr, row)
    m[r + T_STATE] = IDLE
    last = int(hr[R_IDLE_NEW])
    m[r + T_OLDER] = last
    if last:
        m[row_at(hr, last - 1) + T_NEWER] = row + 1
    else:
        hr[R_IDLE_OLD] = row + 1
    hr[R_IDLE_NEW] = row + 1
    hr[R_N_IDLE] += 1


@kernel
def clear_row(hr, m, row):
    """Empty a row."""
    r = row_at(hr, row)
    for i in range(ROW):
        m[r + i] = 0


@kernel
def own_pop(hr, ho, m, row, n_tokens):
    """Shorten a row's own text to `n_tokens`, newest first, so that each chain is cut at its head."""
    r = row_at(hr, row)
    while m[r + T_LENGTH] > n_tokens:
        tail = int(m[r + T_TAIL])
        if tail == 0:  # what is left was dropped from the front before
            m[r + T_LENGTH] = n_tokens
            break
        meta = ho[S_META] + (tail - 1) * META
        p = (tail - 1) * BLOCK + int(m[meta + M_FILL]) - 1
        if ho[S_ORDERS]:
            unlink(ho, m, p, int(m[r + T_OWNER_LO]), int(m[r + T_OWNER_HI]))
        clear_position(ho, m, p)
        m[meta + M_FILL] -= 1
        ho[S_TOKENS] -= 1
        m[r + T_LENGTH] -= 1
        if m[meta + M_FILL] == 0:
            prev = int(m[meta + M_PREV])
            free_block(ho, m, tail - 1)
            m[r + T_TAIL] = prev
            m[r + T_BLOCKS] -= 1
            if prev == 0:
                m[r + T_FIRST] = 0
    m[r + T_DROPPED] = min(int(m[r + T_DROPPED]), int(m[r + T_LENGTH]))
    m[r + T_PROMPT] = min(int(m[r + T_PROMPT]), int(m[r + T_LENGTH]))


@kernel
def drop_first_block(hr, ho, m, row):
    """A running text loses its oldest block; chains that reach it end there."""
    r = row_at(hr, row)
    first = int(m[r + T_FIRST])
    meta = ho[S_META] + (first - 1) * META
    m[r + T_FIRST] = m[meta + M_NEXT]
    m[r + T_BLOCKS] -= 1
    m[r + T_DROPPED] += m[meta + M_FILL]
    ho[S_EVICTED] += m[meta + M_FILL]
    free_block(ho, m, first - 1)


@kernel
def take_own_block(hr, ho, m):
    """A block for own text; there is always one: idle sessions yield first, then the longest running text."""
    b = take_free_block(ho, m)
    while b < 0:
        oldest = int(hr[R_IDLE_OLD])
        if oldest:
            r = row_at(hr, oldest - 1)
            tail = int(m[r + T_TAIL])
            fill = int(m[ho[S_META] + (tail - 1) * META + M_FILL]) if tail else 0
            ho[S_EVICTED] += fill
            own_pop(hr, ho, m, oldest - 1, int(m[r + T_LENGTH]) - fill)
            if m[r + T_TAIL] == 0:
                idle_remove(hr, m, oldest - 1)
                clear_row(hr, m, oldest - 1)
        else:
            longest, row = 0, -1
            for i in range(hr[R_ROWS]):
                r = row_at(hr, i)
                if m[r + T_STATE] == LIVE and m[r + T_BLOCKS] > longest:
                    longest, row = int(m[r + T_BLOCKS]), i
            drop_first_block(hr, ho, m, row)
        b = take_free_block(ho, m)
    return b


@inline
def own_put(hr, ho, m, row, value):
    """Write one token behind a row's own text, in no chain yet; returns its position."""
    r = row_at(hr, row)
    tail = int(m[r + T_TAIL])
    lo, hi = int(m[r + T_OWNER_LO]), int(m[r + T_OWNER_HI])
    if tail == 0 or m[ho[S_META] + (tail - 1) * META + M_FILL] == BLOCK:
        b = take_own_block(hr, ho, m)
        tail = int(m[r + T_TAIL])  # may have changed: its first block can be its only one
        open_block(ho, m, b, tail - 1, lo, hi, 0)
        m[r + T_BLOCKS] += 1
        if tail == 0:
            m[r + T_FIRST] = b + 1
        tail = b + 1
        m[r + T_TAIL] = tail
    m[r + T_LENGTH] += 1
    return put(ho, m, tail - 1, value)


@kernel
def own_append(hr, ho, m, row, value):
    """Append one token to a row's own text; `value` is token + 1, -1 for a placeholder."""
    p, r = own_put(hr, ho, m, row, value), row_at(hr, row)
    if ho[S_ORDERS]:
        insert(ho, m, p, int(m[r + T_OWNER_LO]), int(m[r + T_OWNER_HI]))


@kernel
def own_extend(hr, ho, m, row, tokens, values, heads):
    """Append many tokens to a row's own text, which has chains; with the outcome of appending one after the other.

    The heads of AHEAD tokens are found, and asked for, before the first of them is entered, so that cache misses of
    different tokens overlap. Scratch: `values` for AHEAD tokens and the longest order, `heads` for AHEAD * MAX_ORDERS.
    """
    r, top = row_at(hr, row), int(ho[S_ORDER0 + ho[S_ORDERS] - 1])
    lo, hi = int(m[r + T_OWNER_LO]), int(m[r + T_OWNER_HI])
    for start in range(0, len(tokens), AHEAD):
        n, dropped = min(AHEAD, len(tokens) - start), m[r + T_DROPPED]
        known = own_context(hr, ho, m, row, values[AHEAD : AHEAD + top])
        for j in range(n):  # newest first, as contexts are
            first = AHEAD - 1 - j
            values[first] = to_value(hr, int(tokens[start + j]))
            heads_of(ho, lo, hi, values[first:], min(j + 1 + known, top), heads[MAX_ORDERS * j :])
            for o in range(ho[S_ORDERS]):
                prefetch(m, ho[S_HEAD] + o * ho[S_HEADS] + int(heads[MAX_ORDERS * j + o]))
        for j in range(n):
            p = own_put(hr, ho, m, row, int(values[AHEAD - 1 - j]))
            if m[r + T_DROPPED] == dropped:
                link(ho, m, p, heads[MAX_ORDERS * j :])
            else:  # space ran out, and the text lost its beginning: contexts may be shorter than they were
                insert(ho, m, p, lo, hi)


@inline
def own_tail(hr, ho, m, row):
    """Position of a row's last token, -1 when it has none."""
    r = row_at(hr, row)
    tail = int(m[r + T_TAIL])
    return (tail - 1) * BLOCK + int(m[ho[S_META] + (tail - 1) * META + M_FILL]) - 1 if tail else -1


@kernel
def own_context(hr, ho, m, row, context):
    """Last tokens + 1 of a row, newest first, into `context`, up to its length or a placeholder; returns how many."""
    q, n = own_tail(hr, ho, m, row), 0
    while q >= 0 and n < len(context):
        value = m[ho[S_TEXT] + q]
        if value <= 0:
            break
        context[n] = value
        n += 1
        q = older(ho, m, q)
    return n


@inline
def to_value(hr, token):
    """Stored form of a token id: id + 1, or -1 for a placeholder."""
    return token + 1 if 0 <= token < hr[R_VOCAB] else -1


@kernel
def common_prefix(hr, ho, m, row, tokens):
    """Tokens that an idle row's text shares with `tokens` from the start; 0 when its start was dropped."""
    r = row_at(hr, row)
    if m[r + T_DROPPED] or m[r + T_FIRST] == 0:
        return 0
    q, n = (int(m[r + T_FIRST]) - 1) * BLOCK, 0
    while q >= 0 and n < len(tokens) and m[ho[S_TEXT] + q] == to_value(hr, int(tokens[n])):
        n += 1
        q = newer(ho, m, q)
    return n


@kernel
def take_row(hr, ho, m):
    """A free row; the least recently used idle session makes room; -1 when every row runs."""
    for row in range(hr[R_ROWS]):
        if m[row_at(hr, row) + T_STATE] == FREE:
            return row
    oldest = int(hr[R_IDLE_OLD]) - 1
    if oldest >= 0:
        forget_idle(hr, ho, m, oldest)
    return oldest


@kernel
def forget_idle(hr, ho, m, row):
    """Free an idle session's text and row."""
    own_pop(hr, ho, m, row, 0)
    idle_remove(hr, m, row)
    clear_row(hr, m, row)


@kernel
def begin_row(hr, ho, m, row, n_keep, n_prompt, share, tenant_lo, tenant_hi):
    """Start a request in a free row, or in an idle one whose first `n_keep` tokens it repeats."""
    r = row_at(hr, row)
    if m[r + T_STATE] == IDLE:
        idle_remove(hr, m, row)
        own_pop(hr, ho, m, row, n_keep)
    hr[R_SERIAL] = (hr[R_SERIAL] + 1) & 0x7FFFFFFF
    serial = hr[R_SERIAL]
    if m[r + T_STATE] == FREE:
        m[r + T_OWNER_LO], m[r + T_OWNER_HI] = row + 1, serial
    m[r + T_STATE], m[r + T_SHARE], m[r + T_PROMPT], m[r + T_SERIAL] = LIVE, share, n_prompt, serial
    m[r + T_TENANT_LO], m[r + T_TENANT_HI] = tenant_lo, tenant_hi
    m[r + T_SHARED_TAIL], m[r + T_SHARED_N], m[r + T_CONTEXT_N] = 0, 0, 0
    m[r + T_N_BANNED], m[r + T_N_ROOTS] = 0, 0


@kernel
def finish_row(hr, ho, m, row, max_idle):
    """End a request: its text waits as an idle session, or goes at once where none may wait."""
    idle_append(hr, m, row)
    while hr[R_N_IDLE] > max_idle:
        forget_idle(hr, ho, m, int(hr[R_IDLE_OLD]) - 1)


@kernel
def ban_last(hr, m, row):
    """Nothing was emitted: the first tokens of the last draft are not offered again before progress.

    Where there is no room left to remember them, nothing is offered before progress.
    """
    r = row_at(hr, row)
    n, n_roots = int(m[r + T_N_BANNED]), int(m[r + T_N_ROOTS])
    if n + n_roots <= MAX_BANNED:
        for i in range(n_roots):
            m[r + T_BANNED + n + i] = m[r + T_ROOTS + i]
    m[r + T_N_BANNED] = min(n + n_roots, MAX_BANNED + 1)
    m[r + T_N_ROOTS] = 0


@inline
def is_banned(hr, m, row, value):
    """Whether a token + 1 was offered first and refused since the last progress."""
    r = row_at(hr, row)
    if m[r + T_N_BANNED] > MAX_BANNED:
        return True
    for i in range(m[r + T_N_BANNED]):
        if m[r + T_BANNED + i] == value:
            return True
    return False


@inline
def is_eos(hr, value):
    """Whether a token + 1 ends a request."""
    for i in range(hr[R_N_EOS]):
        if hr[R_EOS0 + i] + 1 == value:
            return True
    return False


@kernel
def block_hashes(tokens, hashes):
    """Hash of the first 1, 2, ... blocks of `tokens`, two 31-bit lanes each, into `hashes`."""
    a, b = 0x243F6A88, 0x13198A2E
    for i in range(len(hashes)):
        for j in range(i * BLOCK, (i + 1) * BLOCK):
            value = int(tokens[j]) & 0x7FFFFFFF
            a, b = mix(a, value), mix(b, value ^ 0x5A5A5A5)
        hashes[i] = ((a & 0x7FFFFFFF) << 31) | (b & 0x7FFFFFFF)
