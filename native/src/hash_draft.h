/* Drafts of the rolling hash alone, and the life of its rows; see kernels/hash_draft.py. */
#ifndef NGS_HASH_DRAFT_H
#define NGS_HASH_DRAFT_H

#include "evidence.h"
#include "limits.h"

/* What was asked of one row's draft, and what came of it. */
typedef struct {
    i64 max_draft, max_depth, min_q30;
    int chain;
} Ask;

typedef struct {
    i64 n, match, stop;
} Drafted;

/* Probability (16 fractional bits) of each follower of a node, into `g`. */
static inline void blend(const i32 *w, i32 *g, i64 n, i64 n_levels) {
    /* Share of 2**16 that a level claims, by tier of match length, when several occurrences agree on a follower. */
    static const i32 confidence[N_TIERS] = {18000, 26000, 33000, 38000, 43000, 48000,
                                            52000, 55000, 57000, 58500, 60000, 62500};
    i64 left = 65536;
    for (i64 i = 0; i < n; i++) g[i * G_COLUMNS + G_PROB] = 0;
    for (i64 tier = N_TIERS - 1; tier >= 0; tier--)
        for (i64 k = 0; k < n_levels; k++) {
            i64 level = w[L_LEVEL + k], total = w[L_TOTAL + k];
            if (level % N_TIERS != tier) continue;
            i64 claimed = (left * confidence[tier]) >> 16;
            claimed = claimed * (4 * total) / (4 * total + 1);
            for (i64 i = 0; i < n; i++) { /* the latest occurrence counts twice */
                i64 count = g[i * G_COLUMNS + level] + (w[L_LATEST + k] == i ? 1 : 0);
                g[i * G_COLUMNS + G_PROB] += (i32)(claimed * count / (total + 1));
            }
            left -= claimed;
        }
}

/* Grow one row's draft in `t`. */
static inline Drafted hash_draft_row(const ngs_cache *c, i64 row, Ask ask, i32 *w, i32 *g, const Tree *t) {
    i64 n_context, n_open = 0, node = 0, match = 0;
    int refused = 0, cut = 0;
    if (gather(c, row, w, &n_context) == 0) return (Drafted){0, 0, NO_MATCH};
    plant(t, 0, ask.max_draft);
    while (1) {
        i64 room = ask.max_draft - node;
        if (ask.chain) {
            n_open = 0;
            room = 1;
        }
        if (t->row[N_DEPTH][node] >= ask.max_depth) {
            cut = 1;
        } else if (t->row[N_LIST][node] >= 0 && !is_eos(c->requests, t->row[N_TOKEN][node])) {
            Found found;
            i64 n = collect(c, w, g, t, node, t->row[N_LIST][node], &found);
            if (node == 0) match = longest_behind(c, row, w, g, n);
            blend(w, g, n, levels(w, g, n, &found));
            for (i64 i = 0; i < n; i++) {
                const i32 *group = g + i * G_COLUMNS;
                i64 path = ((i64)t->row[N_PATH][node] * group[G_PROB]) >> 16;
                if (path < ask.min_q30)
                    refused = 1;
                else if (node > 0 || !is_banned(c->requests, c->mem, row, group[G_VALUE]))
                    n_open = offer(t, n_open, room, group[G_VALUE], node, path, group[G_HEAD], group[G_SOURCE]);
            }
        }
        if (n_open == 0 || node == ask.max_draft) break;
        node++;
        n_open = draft_best(t, n_open, node);
        if (node == ask.max_draft) break;
    }
    return (Drafted){node, match, stopped_by(node, ask.max_draft, cut, refused)};
}

/* Share one token that is about to be appended to the row's own text. */
static inline void share_next(const ngs_cache *c, i64 row, i64 value) {
    i32 context[SHARED_CONTEXT];
    i64 n_context = 0;
    if (c->mem[row_at(c->requests, row) + T_SHARED_N] == 0)
        n_context = own_context(c->requests, c->own, c->mem, row, context, SHARED_CONTEXT);
    shared_append(c->requests, c->shared, c->mem, row, value, context, n_context);
}

/* Append emitted tokens to a row's own text and, where it shares, to the tenant's. */
static inline void hash_accept_row(const ngs_cache *c, i64 row, const i32 *tokens, i64 n_tokens) {
    if (n_tokens == 0) {
        ban_last(c->requests, c->mem, row);
        return;
    }
    int share = c->mem[row_at(c->requests, row) + T_SHARE] != SHARE_NONE;
    for (i64 j = 0; j < n_tokens; j++) {
        i64 value = to_value(c->requests, tokens[j]);
        if (share) share_next(c, row, value);
        own_append(c->requests, c->own, c->mem, row, value);
    }
    c->requests[R_TOKENS_OUT] += n_tokens;
    progress(c->requests, c->mem, row);
}

/* Append prompt tokens to a row's own text, and to the tenant's when it shares all. */
static inline void hash_ingest(const ngs_cache *c, i64 row, const i32 *tokens, i64 n_tokens) {
    int share_all = c->mem[row_at(c->requests, row) + T_SHARE] == SHARE_ALL;
    for (i64 j = 0; j < n_tokens; j++) {
        i64 value = to_value(c->requests, tokens[j]);
        if (share_all) share_next(c, row, value);
        own_append(c->requests, c->own, c->mem, row, value);
    }
}

/* Shorten a row's own text, and take back what it shared of the rest. */
static inline void hash_truncate(const ngs_cache *c, i64 row, i64 n_tokens) {
    i64 r = row_at(c->requests, row);
    if (c->mem[r + T_SHARE] != SHARE_NONE)
        shared_pop(c->requests, c->shared, c->mem, row, c->mem[r + T_LENGTH] - n_tokens);
    own_pop(c->requests, c->own, c->mem, row, n_tokens);
    progress(c->requests, c->mem, row);
}

#endif
