/* A drafter's prior and its frozen corpus; part of ngramspec.c. */
#include "check.h"
#include "rows.h"

_Static_assert(NGS_PRIOR_SIZE == N_TABLES + 2 * N_NODE_SETS * SET + SET + FINAL_STEPS, "one set of each section");

/* One set of start values, repeated over a section of `n` elements; returns where the next set begins. */
static const i32 *fill_section(i32 *section, i64 n, const i32 *values, i64 n_values) {
    for (i64 i = 0; i < n; i++) section[i] = values[i % n_values];
    return values + n_values;
}

int32_t ngs_set_prior(ngs_cache *cache, const int32_t *prior, int64_t n) {
    if (!cache || !prior || n != NGS_PRIOR_SIZE) return NGS_BAD_ARGUMENT;
    if (cache->kind != NGS_DRAFTER) return NGS_UNSUPPORTED;
    const i64 tables = N_TABLES, sets = N_NODE_SETS * SET, weights = 2 * sets + SET;
    if (!all_within(prior, tables, 0, TABLE_MAX) || !all_within(prior + tables + weights, FINAL_STEPS, 0, TABLE_MAX) ||
        !all_within(prior + tables, weights, -WEIGHT_LIMIT, WEIGHT_LIMIT))
        return NGS_BAD_ARGUMENT;
    i32 *m = cache->mem;
    const i64 *hx = cache->mixer;
    prior = fill_section(m + hx[B_TABLES], tables, prior, tables);
    prior = fill_section(m + hx[B_NODE], sets, prior, sets);
    prior = fill_section(m + hx[B_TOKEN], N_TOKEN_SETS * SET, prior, SET);
    prior = fill_section(m + hx[B_GROUP], sets, prior, sets);
    fill_section(m + hx[B_FINAL], N_FINAL * FINAL_STEPS, prior, FINAL_STEPS);
    return NGS_OK;
}

/* Whether a buffer holds a frozen corpus that these requests can be drafted from. */
static int good_corpus(const ngs_cache *cache, void *buffer, i64 nbytes, int trusted) {
    if ((uintptr_t)buffer % 8 || nbytes < 16 * WORDS) return NGS_BAD_BUFFER;
    const i64 *head = header_of(buffer, -1), *h = header_of(buffer, 0), *ho = cache->own;
    if (!within(h[S_BLOCKS], 1, INT32_MAX / BLOCK) || h[S_ORDERS] != ho[S_ORDERS]) return NGS_OTHER_STATE;
    if (!within(h[S_HOPS], 1, 64) || !within(h[S_TOP], ho[S_TOP], 64)) return NGS_OTHER_STATE;
    i32 orders[MAX_ORDERS];
    for (i64 i = 0; i < ho[S_ORDERS]; i++) {
        if (h[S_ORDER0 + i] != ho[S_ORDER0 + i]) return NGS_OTHER_STATE;
        orders[i] = (i32)h[S_ORDER0 + i];
    }
    Layout layout = {0};
    add_store(&layout, NAME_FROZEN, h[S_BLOCKS], orders, (int)h[S_ORDERS], h[S_HOPS], h[S_TOP]);
    if (nbytes != layout_nbytes(&layout)) return NGS_BAD_BUFFER;
    if (!is_formatted(&layout, head[A_DIGEST], buffer)) return NGS_OTHER_STATE;
    if (trusted) return NGS_OK;
    int good = h[S_FREE] == 0 && h[S_N_FREE] == 0 && good_store(h, buffer, cache->requests[R_VOCAB]);
    return good ? NGS_OK : NGS_DAMAGED_TEXT;
}

int32_t ngs_use_corpus(ngs_cache *cache, void *buffer, int64_t nbytes, int32_t flags) {
    if (!cache || flags & ~NGS_TRUSTED || (!buffer && nbytes)) return NGS_BAD_ARGUMENT;
    if (cache->kind != NGS_DRAFTER) return NGS_UNSUPPORTED;
    int status = buffer ? good_corpus(cache, buffer, nbytes, flags & NGS_TRUSTED) : NGS_OK;
    if (status) return status;
    for (i32 row = 0; row < cache->requests[R_ROWS]; row++)
        if (cache->mem[row_at(cache->requests, row) + T_STATE] == LIVE) settle_rows(cache, &row, 1, 0);
    drop_offers(cache); /* they point into the text used until now */
    cache->frozen = buffer ? header_of(buffer, 0) : NULL;
    cache->frozen_mem = buffer;
    return NGS_OK;
}
