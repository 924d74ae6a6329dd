/* Whether every number in a state is one that the other functions may follow: what ngs_attach asks of a stranger.
 *
 * Stricter than caches/integrity.py, which looks for our own mistakes: after these checks no sequence of calls leaves
 * the buffer or fails to end. Headers that the configuration fixes were compared before. */
#ifndef NGS_CHECK_H
#define NGS_CHECK_H

#include "check_trie.h"
#include "drafter.h"

enum { TABLE_MAX = (1 << 30) - 1 }; /* probability of 20 bits, events of 10 */

/* Counted contexts; halving rounds followers up, not the total, so that uncounting may leave a total below 0. */
static inline int good_counts(const ngs_cache *c) {
    const i64 *hk = c->counts;
    i64 vocab_size = c->requests[R_VOCAB];
    if (!within(hk[K_TOKENS], -COUNTER_MAX, COUNTER_MAX)) return 0;
    for (i64 i = 0; i < hk[K_ROWS]; i++) {
        const i32 *row = c->mem + count_row_at(hk, i);
        if (row[K_CHECK] < 0 || !within(row[K_TOTAL], -N_FOLLOWERS, MAX_COUNT)) return 0;
        if (!all_within(row + K_VALUE, N_FOLLOWERS, 0, vocab_size)) return 0;
        if (!all_within(row + K_COUNT, N_FOLLOWERS, 0, MAX_COUNT)) return 0;
    }
    return 1;
}

static inline int good_mixer(const ngs_cache *c) {
    const i64 *hx = c->mixer;
    const i32 *m = c->mem;
    i64 sets = N_NODE_SETS * SET;
    return all_within(m + hx[B_TABLES], N_TABLES, 0, TABLE_MAX) &&
           all_within(m + hx[B_FINAL], N_FINAL * FINAL_STEPS, 0, TABLE_MAX) &&
           all_within(m + hx[B_NODE], sets, -WEIGHT_LIMIT, WEIGHT_LIMIT) &&
           all_within(m + hx[B_GROUP], sets, -WEIGHT_LIMIT, WEIGHT_LIMIT) &&
           all_within(m + hx[B_TOKEN], N_TOKEN_SETS * SET, -WEIGHT_LIMIT, WEIGHT_LIMIT);
}

/* The candidates of one offer lie in the texts that are there. */
static inline int good_offer(const ngs_cache *c, const i32 *half) {
    if (!within(half[O_N], 0, N_KEPT) || !within(half[O_EMITTED], 0, MAX_SETTLE)) return 0;
    for (i64 i = 0; i < half[O_N]; i++) {
        const i32 *candidate = half + O_HEAD + KEPT_ROWS * i; /* position, length, class, age */
        i64 kind = candidate[2];
        if (!within(kind, OWN, c->frozen ? FROZEN : SHARED) || !within(candidate[1], 0, 64)) return 0;
        if (!within(candidate[0], 0, text_of(c, kind).h[S_BLOCKS] * BLOCK - 1)) return 0;
    }
    return 1;
}

static inline int good_offers(const ngs_cache *c) {
    for (i64 row = 0; row < c->requests[R_ROWS]; row++) {
        if (!within(*turn_of(c, row), 0, 1)) return 0;
        for (i64 half = 0; half < 2; half++)
            if (!good_offer(c, c->mem + offer_at(c, row, half))) return 0;
    }
    return 1;
}

/* Everything; NGS_OK or the first part found damaged. */
static inline int check_all(const ngs_cache *c) {
    i64 vocab_size = c->requests[R_VOCAB];
    if (!good_store(c->own, c->mem, vocab_size)) return NGS_DAMAGED_TEXT;
    if (c->shared && !good_ring(c->shared, c->mem, vocab_size)) return NGS_DAMAGED_TEXT;
    if (!good_rows(c)) return NGS_DAMAGED_ROWS;
    if (c->kind == NGS_SUFFIX_TRIE) return good_trie(c) ? NGS_OK : NGS_DAMAGED_TRIE;
    if (c->kind != NGS_DRAFTER) return NGS_OK;
    if (!good_counts(c)) return NGS_DAMAGED_COUNTS;
    if (!good_mixer(c)) return NGS_DAMAGED_MIXER;
    return good_offers(c) ? NGS_OK : NGS_DAMAGED_OFFERS;
}

#endif
