/* What requests of a tenant share: a ring of blocks; see kernels/shared_text.py. */
#ifndef NGS_SHARED_TEXT_H
#define NGS_SHARED_TEXT_H

#include "requests.h"

enum { SHARED_CONTEXT = 8 }; /* tokens of unshared prompt kept ahead of a shared output: matched, never drafted */

/* Append one token to the row's shared text; chained positions can be found. */
static inline void shared_put(const i64 *hr, i64 *hs, i32 *m, i64 row, i64 value, int chained) {
    i64 r = row_at(hr, row), lo = m[r + T_TENANT_LO], hi = m[r + T_TENANT_HI], serial = m[r + T_SERIAL];
    i64 tail = m[r + T_SHARED_TAIL];
    if (tail && m[meta_at(hs, tail - 1) + M_WRITER] != serial) tail = 0; /* evicted meanwhile */
    if (tail == 0 || m[meta_at(hs, tail - 1) + M_FILL] == BLOCK) {
        i64 b = take_oldest_block(hs, m);
        if (b == tail - 1) tail = 0;
        open_block(hs, m, b, tail - 1, lo, hi, serial);
        tail = b + 1;
        m[r + T_SHARED_TAIL] = (i32)tail;
    }
    i64 p = put(hs, m, tail - 1, value);
    if (chained) insert(hs, m, p, lo, hi);
}

/* Share one token; `context` holds the tokens + 1 ahead of it, newest first, in the row's own text. */
static inline void shared_append(const i64 *hr, i64 *hs, i32 *m, i64 row, i64 value, const i32 *context,
                                 i64 n_context) {
    i64 r = row_at(hr, row);
    if (m[r + T_SHARED_N] == 0) {
        i64 n = least_of(n_context, SHARED_CONTEXT);
        for (i64 i = n - 1; i >= 0; i--) shared_put(hr, hs, m, row, context[i], i == 0);
        m[r + T_CONTEXT_N] = (i32)n;
    }
    shared_put(hr, hs, m, row, value, 1);
    m[r + T_SHARED_N] += 1;
}

/* Take back the newest token of the row's shared text, unless it was evicted meanwhile. */
static inline void shared_pop_one(const i64 *hr, i64 *hs, i32 *m, i64 row) {
    i64 r = row_at(hr, row), tail = m[r + T_SHARED_TAIL];
    if (tail == 0 || m[meta_at(hs, tail - 1) + M_WRITER] != m[r + T_SERIAL]) {
        m[r + T_SHARED_TAIL] = 0;
        return;
    }
    i64 meta = meta_at(hs, tail - 1), p = (tail - 1) * BLOCK + m[meta + M_FILL] - 1;
    unlink_position(hs, m, p, m[r + T_TENANT_LO], m[r + T_TENANT_HI]);
    clear_position(hs, m, p);
    m[meta + M_FILL] -= 1;
    hs[S_TOKENS] -= 1;
    if (m[meta + M_FILL] == 0) { /* stays in the ring, empty, until its turn comes */
        i64 prev = m[meta + M_PREV];
        m[r + T_SHARED_TAIL] = (i32)prev;
        if (prev) m[meta_at(hs, prev - 1) + M_NEXT] = 0;
        for (i64 i = 0; i < META; i++) m[meta + i] = 0;
    }
}

/* Take back the newest `n_tokens` shared tokens, and the context ahead of them when none is left. */
static inline void shared_pop(const i64 *hr, i64 *hs, i32 *m, i64 row, i64 n_tokens) {
    i64 r = row_at(hr, row);
    for (i64 left = least_of(n_tokens, m[r + T_SHARED_N]); left > 0; left--) {
        shared_pop_one(hr, hs, m, row);
        m[r + T_SHARED_N] -= 1;
        if (m[r + T_SHARED_N] == 0) {
            for (i64 n = m[r + T_CONTEXT_N]; n > 0; n--) shared_pop_one(hr, hs, m, row);
            m[r + T_CONTEXT_N] = 0;
        }
    }
}

#endif
