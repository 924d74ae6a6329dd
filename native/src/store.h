/* Text in blocks, and chains of earlier positions with the same last k tokens; see kernels/store.py. */
#ifndef NGS_STORE_H
#define NGS_STORE_H

#include "arena.h"

enum { CLOCK_MASK = 0x7FFFFFFF, HALF_CLOCK = 0x40000000, MAX_UNLINK_HOPS = 64 };

/* Ask for memory that is read soon, so that cache misses overlap. */
#ifdef __GNUC__
#define PREFETCH(address) __builtin_prefetch(address)
#else
#define PREFETCH(address) ((void)(address))
#endif

static inline i64 least_of(i64 a, i64 b) { return a < b ? a : b; }
static inline i64 most_of(i64 a, i64 b) { return a > b ? a : b; }

/* Next state of a 32-bit hash; the product stays below 2**63 for values below 2**32. */
static inline i64 mix(i64 x, i64 value) {
    uint64_t y = (uint64_t)(x ^ value) * UINT64_C(0x6A09E667);
    return (i64)((y ^ (y >> 29)) & UINT64_C(0xFFFFFFFF));
}

/* Start value of the hash of an owner's contexts. */
static inline i64 owner_seed(i64 lo, i64 hi) { return mix(mix(0x243F6A88, lo & 0xFFFFFFFF), hi & 0xFFFFFFFF); }

/* Offset of a block's fields. */
static inline i64 meta_at(const i64 *h, i64 b) { return h[S_META] + b * META; }

/* Position of the token before `p`, -1 at the start of the text. */
static inline i64 older(const i64 *h, const i32 *m, i64 p) {
    if (p & (BLOCK - 1)) return p - 1;
    i64 prev = m[meta_at(h, p / BLOCK) + M_PREV];
    return prev ? (prev - 1) * BLOCK + BLOCK - 1 : -1;
}

/* Position of the token after `p`, -1 at the end of the text. */
static inline i64 newer(const i64 *h, const i32 *m, i64 p) {
    i64 meta = meta_at(h, p / BLOCK), q = p + 1;
    if (q & (BLOCK - 1)) return (q & (BLOCK - 1)) < m[meta + M_FILL] ? q : -1;
    i64 following = m[meta + M_NEXT];
    return following ? (following - 1) * BLOCK : -1;
}

/* Slot of the head of one order's chain. */
static inline i64 head_at(const i64 *h, i64 order, i64 x) {
    return h[S_HEAD] + order * h[S_HEADS] + ((x * h[S_HEADS]) >> 32);
}

/* Put position `p`, whose text is written, at the head of its chains. */
static inline void insert(i64 *h, i32 *m, i64 p, i64 lo, i64 hi) {
    i64 n = h[S_ORDERS], row = h[S_LINKS] + p * (1 + n), x = owner_seed(lo, hi), q = p, o = 0, depth = 0;
    h[S_CLOCK] = most_of((h[S_CLOCK] + 1) & CLOCK_MASK, 1); /* 0 is no position's */
    m[row] = (i32)h[S_CLOCK];
    while (o < n && q >= 0) {
        i64 value = m[h[S_TEXT] + q];
        if (value <= 0) break;
        x = mix(x, value);
        if (++depth == h[S_ORDER0 + o]) {
            i64 head = head_at(h, o, x);
            m[row + 1 + o] = m[head];
            m[head] = (i32)(p + 1);
            o++;
        }
        q = older(h, m, q);
    }
    while (o < n) m[row + 1 + o++] = 0;
}

/* Take position `p` out of its chains, where it is found within a bounded walk from the head. */
static inline void unlink_position(i64 *h, i32 *m, i64 p, i64 lo, i64 hi) {
    i64 n = h[S_ORDERS], links = h[S_LINKS], width = 1 + n, x = owner_seed(lo, hi), q = p, o = 0, depth = 0;
    while (o < n && q >= 0) {
        i64 value = m[h[S_TEXT] + q];
        if (value <= 0) break;
        x = mix(x, value);
        if (++depth == h[S_ORDER0 + o]) {
            i64 at = head_at(h, o, x);
            for (int hop = 0; hop < MAX_UNLINK_HOPS; hop++) {
                i64 r = m[at];
                if (r == 0) break;
                if (r == p + 1) {
                    m[at] = m[links + p * width + 1 + o];
                    break;
                }
                at = links + (r - 1) * width + 1 + o;
            }
            o++;
        }
        q = older(h, m, q);
    }
}

/* Empty one position: its text and its link row. */
static inline void clear_position(const i64 *h, i32 *m, i64 p) {
    i64 n = h[S_ORDERS];
    m[h[S_TEXT] + p] = 0;
    if (n)
        for (i64 i = 0; i < 1 + n; i++) m[h[S_LINKS] + p * (1 + n) + i] = 0;
}

/* Empty a block and cut it out of its text. */
static inline void clear_block(i64 *h, i32 *m, i64 b) {
    i64 meta = meta_at(h, b), prev = m[meta + M_PREV], following = m[meta + M_NEXT], fill = m[meta + M_FILL];
    if (prev) m[meta_at(h, prev - 1) + M_NEXT] = 0;
    if (following) m[meta_at(h, following - 1) + M_PREV] = 0;
    for (i64 i = 0; i < fill; i++) clear_position(h, m, b * BLOCK + i);
    h[S_TOKENS] -= fill;
    for (i64 i = 0; i < META; i++) m[meta + i] = 0;
}

/* Empty a block and put it on the free list. */
static inline void free_block(i64 *h, i32 *m, i64 b) {
    clear_block(h, m, b);
    m[meta_at(h, b) + M_FREE] = (i32)h[S_FREE];
    h[S_FREE] = b + 1;
    h[S_N_FREE] += 1;
}

/* A block from the free list or one never used; -1 when all hold text. */
static inline i64 take_free_block(i64 *h, i32 *m) {
    i64 b = h[S_FREE] - 1;
    if (b >= 0) {
        i64 meta = meta_at(h, b);
        h[S_FREE] = m[meta + M_FREE];
        h[S_N_FREE] -= 1;
        m[meta + M_FREE] = 0;
        return b;
    }
    return h[S_CURSOR] < h[S_BLOCKS] ? h[S_CURSOR]++ : -1;
}

/* The oldest block of a ring, emptied. */
static inline i64 take_oldest_block(i64 *h, i32 *m) {
    i64 b = h[S_CURSOR] % h[S_BLOCKS];
    h[S_CURSOR] = b + 1;
    h[S_EVICTED] += m[meta_at(h, b) + M_FILL];
    clear_block(h, m, b);
    return b;
}

/* Start a block after block `prev` (-1: none). */
static inline void open_block(const i64 *h, i32 *m, i64 b, i64 prev, i64 lo, i64 hi, i64 writer) {
    i64 meta = meta_at(h, b);
    m[meta + M_OWNER_LO] = (i32)lo;
    m[meta + M_OWNER_HI] = (i32)hi;
    m[meta + M_WRITER] = (i32)writer;
    m[meta + M_PREV] = (i32)(prev + 1);
    if (prev >= 0) m[meta_at(h, prev) + M_NEXT] = (i32)(b + 1);
}

/* Write `value` behind the last token of block `b`; returns its position. */
static inline i64 put(i64 *h, i32 *m, i64 b, i64 value) {
    i64 meta = meta_at(h, b), p = b * BLOCK + m[meta + M_FILL];
    m[meta + M_FILL] += 1;
    m[h[S_TEXT] + p] = (i32)value;
    h[S_TOKENS] += 1;
    return p;
}

/* Tokens, counted back from position `q`, that equal `context` (newest first). */
static inline i64 match_length(const i64 *h, const i32 *m, i64 q, const i32 *context, i64 n_context) {
    i64 text = h[S_TEXT], length = 0;
    while (length < n_context && q >= 0 && m[text + q] == context[length]) {
        length++;
        q = older(h, m, q);
    }
    return length;
}

/* Ask for what a walk reads of position `q1` - 1 before it gets there: link row, text, block. */
static inline void fetch(const i64 *h, const i32 *m, i64 q1) {
    if (q1 == 0) return;
    PREFETCH(m + h[S_LINKS] + (q1 - 1) * (1 + h[S_ORDERS]));
    PREFETCH(m + h[S_TEXT] + q1 - 1);
    PREFETCH(m + meta_at(h, (q1 - 1) / BLOCK));
}

/* Gather positions of one chain whose text matches the context for at least the order, newest first.
 *
 * Positions that match the next order too were gathered from its chain already. Returns the new count; `positions` and
 * `lengths` are filled from `n` on. */
static inline i64 walk_chain(const i64 *h, const i32 *m, i64 start, i64 o, i64 lo, i64 hi, i64 skip_writer,
                             const i32 *context, i64 n_context, i32 *positions, i32 *lengths, i64 n) {
    i64 order = h[S_ORDER0 + o], above = o + 1 < h[S_ORDERS] ? h[S_ORDER0 + o + 1] : h[S_TOP] + 1;
    i64 links = h[S_LINKS], width = 1 + h[S_ORDERS], clock = h[S_CLOCK] + 1, q1 = start;
    for (i64 hop = 0; hop < h[S_HOPS] && q1 != 0; hop++) {
        i64 q = q1 - 1, row = links + q * width, stamp = m[row], age = (clock - stamp) & CLOCK_MASK;
        i64 meta = meta_at(h, q / BLOCK);
        q1 = m[row + 1 + o];
        fetch(h, m, q1);
        if (stamp == 0 || age == 0 || age >= HALF_CLOCK) break; /* 0: reused for text that only matches */
        clock = stamp;
        if (m[meta + M_OWNER_LO] == lo && m[meta + M_OWNER_HI] == hi && m[meta + M_WRITER] != skip_writer) {
            i64 length = match_length(h, m, q, context, n_context);
            if (order <= length && length < above) {
                positions[n] = (i32)q;
                lengths[n] = (i32)length;
                n++;
            }
        }
    }
    return n;
}

/* Where the head tables hold the contexts of the first `n` orders. */
typedef struct {
    i64 n;
    i64 at[MAX_ORDERS];
} Heads;

/* The heads of every order that a context is long enough for, asked for here and read later. */
static inline Heads heads_of(const i64 *h, const i32 *m, i64 lo, i64 hi, const i32 *context, i64 n_context) {
    Heads heads = {0, {0}};
    i64 x = owner_seed(lo, hi);
    for (i64 depth = 0; depth < n_context && heads.n < h[S_ORDERS] && context[depth] > 0; depth++) {
        x = mix(x, context[depth]);
        if (depth + 1 == h[S_ORDER0 + heads.n]) {
            i64 at = head_at(h, heads.n, x);
            PREFETCH(m + at);
            heads.at[heads.n++] = at;
        }
    }
    return heads;
}

/* As `insert`, where `heads_of` has found the heads already. */
static inline void link_position(i64 *h, i32 *m, i64 p, const Heads *heads) {
    i64 n = h[S_ORDERS], row = h[S_LINKS] + p * (1 + n);
    h[S_CLOCK] = most_of((h[S_CLOCK] + 1) & CLOCK_MASK, 1); /* 0 is no position's */
    m[row] = (i32)h[S_CLOCK];
    for (i64 o = 0; o < heads->n; o++) {
        m[row + 1 + o] = m[heads->at[o]];
        m[heads->at[o]] = (i32)(p + 1);
    }
    for (i64 o = heads->n; o < n; o++) m[row + 1 + o] = 0;
}

#endif
