/* Whether every number in texts and table of requests is one that the other functions may follow; see check.h. */
#ifndef NGS_CHECK_TEXT_H
#define NGS_CHECK_TEXT_H

#include "cache.h"
#include "layout.h"

#define COUNTER_MAX ((i64)1 << 62) /* counters of any life stay far below; what is added to them cannot overflow */

/* Whether `n` fields are zero. */
static inline int all_zero(const i32 *fields, i64 n) {
    i32 any = 0;
    for (i64 i = 0; i < n; i++) any |= fields[i];
    return any == 0;
}

/* Whether `n` fields lie between two bounds. */
static inline int all_within(const i32 *fields, i64 n, i64 low, i64 high) {
    i32 least = 0, most = 0;
    if (n) least = most = fields[0];
    for (i64 i = 1; i < n; i++) {
        least = fields[i] < least ? fields[i] : least;
        most = fields[i] > most ? fields[i] : most;
    }
    return n == 0 || (low <= least && most <= high);
}

/* A block's text and links, and its neighbours. */
static inline int good_block(const i64 *h, const i32 *m, i64 b, i64 vocab_size) {
    const i32 *meta = m + meta_at(h, b), *text = m + h[S_TEXT] + b * BLOCK;
    i64 n = h[S_BLOCKS], fill = meta[M_FILL], next = meta[M_NEXT], prev = meta[M_PREV], width = 1 + h[S_ORDERS];
    if (!within(fill, 0, BLOCK) || !within(next, 0, n) || !within(prev, 0, n)) return 0;
    if (next && (m[meta_at(h, next - 1) + M_PREV] != b + 1 || fill != BLOCK)) return 0;
    if (prev && m[meta_at(h, prev - 1) + M_NEXT] != b + 1) return 0;
    if (!all_within(text, fill, -1, vocab_size) || !all_zero(text + fill, BLOCK - fill)) return 0;
    for (i64 i = 0; i < fill; i++)
        if (text[i] == 0) return 0;
    if (h[S_ORDERS] == 0) return 1;
    const i32 *links = m + h[S_LINKS] + b * BLOCK * width;
    return all_within(links, fill * width, 0, INT32_MAX) && all_zero(links + fill * width, (BLOCK - fill) * width);
}

/* What both texts keep: blocks, chains, counters. */
static inline int good_store(const i64 *h, const i32 *m, i64 vocab_size) {
    i64 n_tokens = 0, n_positions = h[S_BLOCKS] * BLOCK, width = 1 + h[S_ORDERS];
    if (!within(h[S_CLOCK], 0, CLOCK_MASK) || !within(h[S_EVICTED], 0, COUNTER_MAX)) return 0;
    for (i64 b = 0; b < h[S_BLOCKS]; b++) {
        if (!good_block(h, m, b, vocab_size)) return 0;
        n_tokens += m[meta_at(h, b) + M_FILL];
    }
    if (n_tokens != h[S_TOKENS]) return 0;
    if (h[S_ORDERS] == 0) return 1;
    for (i64 p = 0; p < n_positions; p++)
        if (!all_within(m + h[S_LINKS] + p * width + 1, h[S_ORDERS], 0, n_positions)) return 0;
    return all_within(m + h[S_HEAD], n_positions * h[S_ORDERS], 0, n_positions);
}

/* A ring of shared text: a block without text is wholly empty, and none is ever free. */
static inline int good_ring(const i64 *h, const i32 *m, i64 vocab_size) {
    if (!good_store(h, m, vocab_size) || h[S_FREE] || h[S_N_FREE] || !within(h[S_CURSOR], 0, COUNTER_MAX)) return 0;
    for (i64 b = 0; b < h[S_BLOCKS]; b++) {
        const i32 *meta = m + meta_at(h, b);
        if (meta[M_FREE] || (meta[M_FILL] == 0 && !all_zero(meta, META))) return 0;
    }
    return 1;
}

/* The free list, and blocks never used: all wholly empty but for the list's own links. Returns how many, or -1. */
static inline i64 n_empty_blocks(const i64 *h, const i32 *m) {
    i64 n = 0, b = h[S_FREE], cursor = h[S_CURSOR];
    if (!within(cursor, 0, h[S_BLOCKS]) || !within(h[S_N_FREE], 0, cursor)) return -1;
    for (; b; b = m[meta_at(h, b - 1) + M_FREE]) {
        if (!within(b, 1, cursor) || ++n > h[S_N_FREE] || !all_zero(m + meta_at(h, b - 1), M_FREE)) return -1;
    }
    if (n != h[S_N_FREE] || !all_zero(m + meta_at(h, cursor), (h[S_BLOCKS] - cursor) * META)) return -1;
    return n + h[S_BLOCKS] - cursor;
}

/* A row's own text, from its first block to its last; returns how many blocks, or -1. */
static inline i64 n_row_blocks(const i64 *h, const i32 *m, const i32 *row) {
    i64 n = 0, n_tokens = 0, before = 0;
    if (!within(row[T_BLOCKS], 0, h[S_CURSOR]) || (row[T_BLOCKS] == 0) != (row[T_FIRST] == 0)) return -1;
    for (i64 b = row[T_FIRST]; b; b = m[meta_at(h, b - 1) + M_NEXT]) {
        if (!within(b, 1, h[S_CURSOR]) || ++n > row[T_BLOCKS]) return -1;
        const i32 *meta = m + meta_at(h, b - 1);
        if (meta[M_PREV] != before || meta[M_FILL] == 0 || meta[M_FREE]) return -1;
        if (meta[M_OWNER_LO] != row[T_OWNER_LO] || meta[M_OWNER_HI] != row[T_OWNER_HI]) return -1;
        n_tokens += meta[M_FILL];
        before = b;
    }
    if (n != row[T_BLOCKS] || before != row[T_TAIL]) return -1;
    return (i64)row[T_LENGTH] - row[T_DROPPED] == n_tokens ? n : -1;
}

/* The fields of one row in use. `n_shared` blocks hold shared text; 0 where there is no such text. */
static inline int good_row(const i64 *hr, const i32 *m, i64 i, i64 n_shared) {
    const i32 *row = m + row_at(hr, i);
    i64 n_rows = hr[R_ROWS];
    if (!within(row[T_STATE], LIVE, IDLE) || !within(row[T_SHARE], SHARE_NONE, SHARE_ALL)) return 0;
    if (row[T_OWNER_LO] != i + 1 || row[T_SERIAL] < 1 || row[T_LENGTH] < 0 || row[T_PROMPT] < 0) return 0;
    if (!within(row[T_DROPPED], 0, row[T_LENGTH]) || !within(row[T_OLDER], 0, n_rows)) return 0;
    if (!within(row[T_NEWER], 0, n_rows) || !within(row[T_SHARED_TAIL], 0, n_shared)) return 0;
    if (!within(row[T_N_BANNED], 0, MAX_BANNED + 1) || row[T_N_ROOTS] < 0 || row[T_SHARED_N] < 0) return 0;
    if (row[T_STATE] == LIVE && row[T_SHARED_N] > row[T_LENGTH]) return 0;
    return within(row[T_CONTEXT_N], 0, SHARED_CONTEXT) &&
           (row[T_STATE] == IDLE || (row[T_OLDER] == 0 && row[T_NEWER] == 0));
}

/* Idle sessions hang together from the one used least recently to the one used last. */
static inline int good_idle_list(const i64 *hr, const i32 *m) {
    i64 n = 0, before = 0;
    if (!within(hr[R_IDLE_OLD], 0, hr[R_ROWS]) || !within(hr[R_N_IDLE], 0, hr[R_ROWS])) return 0;
    for (i64 i = hr[R_IDLE_OLD]; i; i = m[row_at(hr, i - 1) + T_NEWER]) {
        const i32 *row = m + row_at(hr, i - 1);
        if (++n > hr[R_N_IDLE] || row[T_STATE] != IDLE || row[T_OLDER] != before) return 0;
        before = i;
    }
    return n == hr[R_N_IDLE] && before == hr[R_IDLE_NEW];
}

static inline int good_request_words(const i64 *hr) {
    if (!within(hr[R_SERIAL], 0, INT32_MAX)) return 0;
    for (int word = R_DRAFTS; word < R_EOS0; word++)
        if (!within(hr[word], 0, COUNTER_MAX)) return 0;
    return 1;
}

/* Rows and their text: every block in use belongs to exactly one row, and there is always one to be had. */
static inline int good_rows(const ngs_cache *c) {
    const i64 *hr = c->requests, *ho = c->own;
    i64 n_live = 0, n_idle = 0, n_blocks = n_empty_blocks(ho, c->mem);
    if (n_blocks < 0 || !good_request_words(hr)) return 0;
    for (i64 i = 0; i < hr[R_ROWS]; i++) {
        const i32 *row = c->mem + row_at(hr, i);
        if (row[T_STATE] == FREE) {
            if (!all_zero(row, ROW)) return 0;
            continue;
        }
        if (!good_row(hr, c->mem, i, c->shared ? c->shared[S_BLOCKS] : 0)) return 0;
        i64 n = n_row_blocks(ho, c->mem, row);
        if (n < 0) return 0;
        n_blocks += n;
        n_live += row[T_STATE] == LIVE;
        n_idle += row[T_STATE] == IDLE;
    }
    if (n_blocks != ho[S_BLOCKS] || n_live > c->max_requests || n_idle != hr[R_N_IDLE]) return 0;
    return good_idle_list(hr, c->mem);
}

#endif
