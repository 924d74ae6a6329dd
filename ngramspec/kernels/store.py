"""Text in blocks, and chains of earlier positions with the same last k tokens.

A position is `block * BLOCK + offset`. Text holds token + 1; 0 is empty and -1 a placeholder that nothing matches.
Chains run newest first: `head[order][hash]` holds the newest position + 1, the position's link row the next older one.
A link row starts with the insertion clock; a link is only followed to a position with an older clock, so a chain that
runs into a reused block ends there. Every candidate is compared with the context itself: there are no false matches.
"""

from .._jit import inline, kernel, prefetch, unsigned
from ..arena import (
    BLOCK,
    M_FILL,
    M_FREE,
    M_NEXT,
    M_OWNER_HI,
    M_OWNER_LO,
    M_PREV,
    M_WRITER,
    META,
    S_BLOCKS,
    S_CLOCK,
    S_CURSOR,
    S_EVICTED,
    S_FREE,
    S_HEAD,
    S_HEADS,
    S_HOPS,
    S_LINKS,
    S_META,
    S_N_FREE,
    S_ORDER0,
    S_ORDERS,
    S_TEXT,
    S_TOKENS,
    S_TOP,
)

CLOCK_MASK = 0x7FFFFFFF
HALF_CLOCK = 0x40000000
MAX_UNLINK_HOPS = 64


@inline
def mix(x, value):
    """Next state of a 32-bit hash; int64 arithmetic never overflows: 2**32 * 2**31 at most."""
    x = (x ^ value) * 0x6A09E667
    return (x ^ (x >> 29)) & 0xFFFFFFFF


@inline
def owner_seed(lo, hi):
    """Start value of the hash of an owner's contexts."""
    return mix(mix(0x243F6A88, lo & 0xFFFFFFFF), hi & 0xFFFFFFFF)


@inline
def older(h, m, p):
    """Position of the token before `p`, -1 at the start of the text."""
    if p & (BLOCK - 1):
        return p - 1
    prev = int(m[unsigned(h[S_META] + (p // BLOCK) * META + M_PREV)])
    return (prev - 1) * BLOCK + BLOCK - 1 if prev else -1


@inline
def newer(h, m, p):
    """Position of the token after `p`, -1 at the end of the text."""
    meta = h[S_META] + (p // BLOCK) * META
    q = p + 1
    if q & (BLOCK - 1):
        return q if q & (BLOCK - 1) < m[unsigned(meta + M_FILL)] else -1
    following = int(m[unsigned(meta + M_NEXT)])
    return (following - 1) * BLOCK if following else -1


@kernel
def insert(h, m, p, lo, hi):
    """Put position `p`, whose text is written, at the head of its chains."""
    n, n_heads, text = h[S_ORDERS], h[S_HEADS], h[S_TEXT]
    row = h[S_LINKS] + p * (1 + n)
    h[S_CLOCK] = max((h[S_CLOCK] + 1) & CLOCK_MASK, 1)  # 0 is no position's
    m[unsigned(row)] = h[S_CLOCK]
    x = owner_seed(lo, hi)
    q, o, depth = p, 0, 0
    while o < n and q >= 0:
        value = int(m[unsigned(text + q)])
        if value <= 0:
            break
        x = mix(x, value)
        depth += 1
        if depth == h[unsigned(S_ORDER0 + o)]:
            head = h[S_HEAD] + o * n_heads + ((x * n_heads) >> 32)
            m[unsigned(row + 1 + o)] = m[unsigned(head)]
            m[unsigned(head)] = p + 1
            o += 1
        q = older(h, m, q)
    while o < n:
        m[unsigned(row + 1 + o)] = 0
        o += 1


@inline
def link(h, m, p, heads):
    """As `insert`, where `heads_of` has found the heads already."""
    n, n_heads = h[S_ORDERS], h[S_HEADS]
    row = h[S_LINKS] + p * (1 + n)
    h[S_CLOCK] = max((h[S_CLOCK] + 1) & CLOCK_MASK, 1)  # 0 is no position's
    m[unsigned(row)] = h[S_CLOCK]
    for o in range(n):
        older_one = 0
        if heads[unsigned(o)] >= 0:
            head = h[S_HEAD] + o * n_heads + int(heads[unsigned(o)])
            older_one = int(m[unsigned(head)])
            m[unsigned(head)] = p + 1
        m[unsigned(row + 1 + o)] = older_one


@kernel
def unlink(h, m, p, lo, hi):
    """Take position `p` out of its chains, where it is found within a bounded walk from the head."""
    n, n_heads, text = h[S_ORDERS], h[S_HEADS], h[S_TEXT]
    links, width = h[S_LINKS], 1 + h[S_ORDERS]
    x = owner_seed(lo, hi)
    q, o, depth = p, 0, 0
    while o < n and q >= 0:
        value = int(m[text + q])
        if value <= 0:
            break
        x = mix(x, value)
        depth += 1
        if depth == h[S_ORDER0 + o]:
            at = h[S_HEAD] + o * n_heads + ((x * n_heads) >> 32)
            for _ in range(MAX_UNLINK_HOPS):
                r = int(m[at])
                if r == 0:
                    break
                if r == p + 1:
                    m[at] = m[links + p * width + 1 + o]
                    break
                at = links + (r - 1) * width + 1 + o
            o += 1
        q = older(h, m, q)


@kernel
def clear_position(h, m, p):
    """Empty one position: its text and its link row."""
    m[h[S_TEXT] + p] = 0
    n = h[S_ORDERS]
    if n:
        row = h[S_LINKS] + p * (1 + n)
        for i in range(1 + n):
            m[row + i] = 0


@kernel
def clear_block(h, m, b):
    """Empty a block and cut it out of its text."""
    meta = h[S_META] + b * META
    prev, following = int(m[meta + M_PREV]), int(m[meta + M_NEXT])
    if prev:
        m[h[S_META] + (prev - 1) * META + M_NEXT] = 0
    if following:
        m[h[S_META] + (following - 1) * META + M_PREV] = 0
    fill = int(m[meta + M_FILL])
    for i in range(fill):
        clear_position(h, m, b * BLOCK + i)
    h[S_TOKENS] -= fill
    for i in range(META):
        m[meta + i] = 0


@kernel
def free_block(h, m, b):
    """Empty a block and put it on the free list."""
    clear_block(h, m, b)
    m[h[S_META] + b * META + M_FREE] = h[S_FREE]
    h[S_FREE] = b + 1
    h[S_N_FREE] += 1


@kernel
def take_free_block(h, m):
    """A block from the free list or one never used; -1 when all hold text."""
    b = h[S_FREE] - 1
    if b >= 0:
        meta = h[S_META] + b * META
        h[S_FREE] = m[meta + M_FREE]
        h[S_N_FREE] -= 1
        m[meta + M_FREE] = 0
        return b
    b = h[S_CURSOR]
    if b < h[S_BLOCKS]:
        h[S_CURSOR] = b + 1
        return b
    return -1


@kernel
def take_oldest_block(h, m):
    """The oldest block of a ring, emptied."""
    b = h[S_CURSOR] % h[S_BLOCKS]
    h[S_CURSOR] = b + 1
    h[S_EVICTED] += m[h[S_META] + b * META + M_FILL]
    clear_block(h, m, b)
    return b


@kernel
def open_block(h, m, b, prev, lo, hi, writer):
    """Start a block after block `prev` (-1: none)."""
    meta = h[S_META] + b * META
    m[meta + M_OWNER_LO], m[meta + M_OWNER_HI], m[meta + M_WRITER] = lo, hi, writer
    m[meta + M_PREV] = prev + 1
    if prev >= 0:
        m[h[S_META] + prev * META + M_NEXT] = b + 1


@inline
def put(h, m, b, value):
    """Write `value` behind the last token of block `b`; returns its position."""
    meta = h[S_META] + b * META
    p = b * BLOCK + int(m[unsigned(meta + M_FILL)])
    m[unsigned(meta + M_FILL)] += 1
    m[unsigned(h[S_TEXT] + p)] = value
    h[S_TOKENS] += 1
    return p


@inline
def match_length(h, m, q, context, n_context):
    """Tokens, counted back from position `q`, that equal `context` (newest first)."""
    text, length = h[S_TEXT], 0
    while length < n_context and q >= 0 and m[unsigned(text + q)] == context[unsigned(length)]:
        length += 1
        q = older(h, m, q)
    return length


@inline
def fetch(h, m, q1):
    """Ask for what a walk reads of position `q1` - 1 before it gets there: link row, text, block."""
    prefetch(m, h[S_LINKS] + (q1 - 1) * (1 + h[S_ORDERS]))
    prefetch(m, h[S_TEXT] + q1 - 1)
    prefetch(m, h[S_META] + ((q1 - 1) // BLOCK) * META)


@kernel
def walk(h, m, start, o, lo, hi, skip_writer, context, n_context, positions, lengths, n):
    """Gather positions of one chain whose text matches the context for at least the order, newest first.

    Positions that match the next order too were gathered from its chain already. Returns the new count; `positions` and
    `lengths` are filled from `n` on.
    """
    order = h[S_ORDER0 + o]
    above = h[S_ORDER0 + o + 1] if o + 1 < h[S_ORDERS] else h[S_TOP] + 1
    links, width, n_out = h[S_LINKS], 1 + h[S_ORDERS], n
    clock, q1 = h[S_CLOCK] + 1, start
    for _ in range(h[S_HOPS]):
        if q1 == 0:
            break
        q = q1 - 1
        row = links + q * width
        stamp = int(m[unsigned(row)])
        age = (clock - stamp) & CLOCK_MASK
        q1 = int(m[unsigned(row + 1 + o)])
        fetch(h, m, q1)
        if stamp == 0 or age == 0 or age >= HALF_CLOCK:  # 0: reused for text that only matches ahead of a chained one
            break
        clock = stamp
        meta = h[S_META] + (q // BLOCK) * META
        mine = m[unsigned(meta + M_OWNER_LO)] == lo and m[unsigned(meta + M_OWNER_HI)] == hi
        if mine and m[unsigned(meta + M_WRITER)] != skip_writer:
            length = match_length(h, m, q, context, n_context)
            if order <= length < above:
                positions[unsigned(n_out)] = q
                lengths[unsigned(n_out)] = length
                n_out += 1
    return n_out


@kernel
def expect(h, m, lo, hi, context, n_context):
    """Ask for the heads under which a position with this context, its own token first, will be inserted."""
    n, n_heads = h[S_ORDERS], h[S_HEADS]
    x = owner_seed(lo, hi)
    o = 0
    for depth in range(n_context):
        if o == n or context[unsigned(depth)] <= 0:
            break
        x = mix(x, int(context[unsigned(depth)]))
        if depth + 1 == h[unsigned(S_ORDER0 + o)]:
            prefetch(m, h[S_HEAD] + o * n_heads + ((x * n_heads) >> 32))
            o += 1


@kernel
def heads_of(h, lo, hi, context, n_context, heads):
    """Where in its order's head table each context belongs, into `heads`; -1 where it is too short.

    A context ends at a placeholder. Numbers count from the order's own table, so that they fit in 32 bits.
    """
    n, n_heads = h[S_ORDERS], h[S_HEADS]
    x = owner_seed(lo, hi)
    o = 0
    for i in range(n):
        heads[i] = -1
    for depth in range(n_context):
        if o == n or context[depth] <= 0:
            break
        x = mix(x, int(context[depth]))
        if depth + 1 == h[S_ORDER0 + o]:
            heads[o] = (x * n_heads) >> 32
            o += 1
