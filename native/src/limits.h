/* What bounds a draft before its content does, and what is remembered of it; see kernels/limits.py. */
#ifndef NGS_LIMITS_H
#define NGS_LIMITS_H

#include "requests.h"
#include "tree.h"

enum { DRAFTED, TOO_SHORT, NO_MATCH, BELOW_MIN, BUDGET, LENGTH_LIMIT }; /* as draft.Reason */

/* Index of the first slot that no running request has, -1 when all are fine. */
static inline i64 bad_slot(const i64 *hr, const i32 *m, const i32 *slots, i64 n) {
    for (i64 i = 0; i < n; i++)
        if (slots[i] < 0 || slots[i] >= hr[R_ROWS] || m[row_at(hr, slots[i]) + T_STATE] != LIVE) return i;
    return -1;
}

/* Index of the first of `n` spans that does not lie within the tokens, -1 when all do. */
static inline i64 bad_span(const i32 *offsets, i64 n, i64 n_tokens) {
    for (i64 i = 0; i < n; i++)
        if (offsets[i] < 0 || offsets[i + 1] < offsets[i] || offsets[i + 1] > n_tokens) return i;
    return -1;
}

/* Why nothing may be drafted for this row, `DRAFTED` when something may. */
static inline i64 empty_reason(const i64 *hr, const i32 *m, i64 row, i64 max_draft, i64 remaining) {
    if (max_draft <= 0) return BUDGET;
    if (remaining >= 0 && remaining <= 1) return LENGTH_LIMIT;
    i64 r = row_at(hr, row);
    return m[r + T_LENGTH] == 0 || m[r + T_LENGTH] < m[r + T_PROMPT] ? TOO_SHORT : DRAFTED;
}

/* What ended a draft of `n` tokens: the reason of its size, or of its emptiness. */
static inline i64 stopped_by(i64 n, i64 max_draft, int depth_cut, int refused) {
    if (n >= max_draft) return BUDGET;
    if (depth_cut) return LENGTH_LIMIT;
    return refused ? BELOW_MIN : NO_MATCH;
}

/* Keep what ended a draft, and its first tokens, so that a refusal can ban them; of too many, their number. */
static inline void remember(const i64 *hr, i32 *m, i64 row, const Tree *t, i64 n, i64 stop) {
    i64 r = row_at(hr, row), n_roots = 0;
    m[r + T_LAST_N] = (i32)n;
    m[r + T_LAST_STOP] = (i32)stop;
    for (i64 i = 1; i <= n; i++)
        if (t->row[N_PARENT][i] == 0) {
            if (n_roots < MAX_ROOTS) m[r + T_ROOTS + n_roots] = t->row[N_TOKEN][i];
            n_roots++;
        }
    m[r + T_N_ROOTS] = (i32)n_roots;
}

/* Count `n` drafts by reason; apart from drafting, so that look-ups may run on several threads. */
static inline void count_drafts(i64 *hr, const i32 *reason, i64 n) {
    for (i64 i = 0; i < n; i++) {
        hr[R_DRAFTS] += 1;
        hr[R_REASON0 + reason[i]] += 1;
    }
}

/* Tokens were emitted: nothing is banned any more. */
static inline void progress(const i64 *hr, i32 *m, i64 row) {
    i64 r = row_at(hr, row);
    m[r + T_N_BANNED] = m[r + T_N_ROOTS] = 0;
}

#endif
