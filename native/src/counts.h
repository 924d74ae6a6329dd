/* Counted short contexts: what usually follows the last 1 to 4 tokens; see kernels/counts.py. */
#ifndef NGS_COUNTS_H
#define NGS_COUNTS_H

#include "store.h"

enum {
    N_ORDERS = 4, N_FOLLOWERS = 7, K_CHECK = 0, K_TOTAL = 1, K_VALUE = 2, K_COUNT = 9, K_WIDTH = 16,
    MAX_COUNT = 60000, /* halved beyond it */
    PROTECTED = 3      /* most recent followers that a new one never displaces */
};

/* First row and check word for each order's context. */
typedef struct {
    i64 n;
    i64 rows[N_ORDERS], checks[N_ORDERS];
} Keys;

static inline Keys keys_of(const i64 *hk, i64 seed, const i32 *context, i64 n_context) {
    Keys keys;
    i64 x = seed;
    keys.n = least_of(N_ORDERS, n_context);
    for (i64 i = 0; i < keys.n; i++) {
        x = mix(x, context[i]);
        i64 y = mix(x, i + 1);
        keys.rows[i] = (y * hk[K_ROWS]) >> 32;
        keys.checks[i] = (mix(y, 0x13198A2E) & 0x7FFFFFFF) | 1;
    }
    return keys;
}

/* Offset in the buffer of a row. */
static inline i64 count_row_at(const i64 *hk, i64 row) { return hk[K_OFF] + row * K_WIDTH; }

/* Ask for every order's row at once. */
static inline void touch(const i64 *hk, const i32 *m, const Keys *keys) {
    for (i64 i = 0; i < keys->n; i++) PREFETCH(m + count_row_at(hk, keys->rows[i]));
}

/* Offset in the buffer of the context's row, -1 when it is unknown; rows are tried in pairs. */
static inline i64 find_counts(const i64 *hk, const i32 *m, i64 row, i64 check) {
    i64 at = count_row_at(hk, row);
    if (m[at + K_CHECK] == check) return at;
    at = count_row_at(hk, row ^ 1);
    return m[at + K_CHECK] == check ? at : -1;
}

/* Offset of a row for a new context: the less used of two, emptied. */
static inline i64 place_counts(const i64 *hk, i32 *m, i64 row, i64 check) {
    i64 at = count_row_at(hk, row), other = count_row_at(hk, row ^ 1);
    if (m[at + K_CHECK] != 0 && m[other + K_TOTAL] < m[at + K_TOTAL]) at = other;
    for (i64 i = 0; i < K_WIDTH; i++) m[at + i] = 0;
    m[at + K_CHECK] = (i32)check;
    return at;
}

/* Count a follower in the row at `at` and make it the most recent. */
static inline void count_one(i32 *m, i64 at, i64 value) {
    i32 *values = m + at + K_VALUE, *counts = m + at + K_COUNT, count = 1;
    i64 i = 0;
    while (i < N_FOLLOWERS && values[i] != value && values[i] != 0) i++;
    if (i == N_FOLLOWERS) { /* full: the rarest of the older ones goes, the oldest of equals */
        i = N_FOLLOWERS - 1;
        for (i64 j = N_FOLLOWERS - 2; j >= PROTECTED; j--)
            if (counts[j] < counts[i]) i = j;
    } else if (values[i] == value) {
        count = counts[i] + 1;
    }
    for (; i > 0; i--) {
        values[i] = values[i - 1];
        counts[i] = counts[i - 1];
    }
    values[0] = (i32)value;
    counts[0] = count;
    m[at + K_TOTAL] += 1;
    if (m[at + K_TOTAL] >= MAX_COUNT) {
        m[at + K_TOTAL] >>= 1;
        for (i64 j = 0; j < N_FOLLOWERS; j++) counts[j] = (counts[j] + 1) >> 1;
    }
}

/* Count an emitted token after each of its contexts. */
static inline void count(i64 *hk, i32 *m, i64 seed, const i32 *context, i64 n_context, i64 value) {
    Keys keys = keys_of(hk, seed, context, n_context);
    for (i64 i = 0; i < keys.n; i++) {
        i64 at = find_counts(hk, m, keys.rows[i], keys.checks[i]);
        if (at < 0) at = place_counts(hk, m, keys.rows[i], keys.checks[i]);
        count_one(m, at, value);
    }
    hk[K_TOKENS] += 1;
}

/* Take back one count of a follower in the row at `at`, as far as it is still there. */
static inline void uncount_one(i32 *m, i64 at, i64 value) {
    i32 *values = m + at + K_VALUE, *counts = m + at + K_COUNT;
    for (i64 j = 0; j < N_FOLLOWERS; j++) {
        if (values[j] != value) continue;
        counts[j] -= 1;
        m[at + K_TOTAL] -= 1;
        if (counts[j] == 0) {
            for (i64 k = j; k < N_FOLLOWERS - 1; k++) {
                values[k] = values[k + 1];
                counts[k] = counts[k + 1];
            }
            values[N_FOLLOWERS - 1] = counts[N_FOLLOWERS - 1] = 0;
        }
        break;
    }
    if (values[0] == 0)
        for (i64 k = 0; k < K_WIDTH; k++) m[at + k] = 0;
}

/* Take back what `count` added for a token that turned out not to be emitted. */
static inline void uncount(i64 *hk, i32 *m, i64 seed, const i32 *context, i64 n_context, i64 value) {
    Keys keys = keys_of(hk, seed, context, n_context);
    for (i64 i = 0; i < keys.n; i++) {
        i64 at = find_counts(hk, m, keys.rows[i], keys.checks[i]);
        if (at >= 0) uncount_one(m, at, value);
    }
    hk[K_TOKENS] -= 1;
}

#endif
