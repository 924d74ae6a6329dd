/* Drafts of the suffix trie alone: what usually followed; see kernels/trie_draft.py. */
#ifndef NGS_TRIE_DRAFT_H
#define NGS_TRIE_DRAFT_H

#include "hash_draft.h"
#include "trie_rows.h"

enum {
    CANDIDATES = 64,
    UNIT = 32,               /* parts of one count */
    LATEST = 16,             /* parts that the latest own follower counts more */
    ENOUGH = (1 << 30) / 16, /* when less is left, shorter contexts are not asked */
    WORTH = (1 << 30) / 128  /* nor when no more is left of the whole path, once one knew a follower */
};

/* Where a token stands in both trees: a context that ends in it, and its length. The text's end is number 0. */
typedef struct {
    i32 own, own_length, shared, shared_length;
} Stand;

/* A follower gathered for one drafted node: for each tree the count so far, and where it was first seen. */
typedef struct {
    i64 token, prob, source;
    struct {
        i64 count;
        Place place;
    } seen[2]; /* own, shared */
} Follower;

/* What is gathered at one node. */
typedef struct {
    i64 n, left; /* followers, and the probability that is left for shorter contexts */
    Follower followers[CANDIDATES];
} Gathered;

/* Number of a follower, added when new; -1 when there is no room. */
static inline i64 follower_of(Gathered *f, i64 token, i64 source) {
    i64 i = 0;
    while (i < f->n && f->followers[i].token != token) i++;
    if (i < f->n) return i;
    if (f->n == CANDIDATES) return -1;
    f->followers[f->n++] = (Follower){token, 0, source, {{0, {0, 0}}, {0, {0, 0}}}};
    return i;
}

/* Share out what a context of this length claims among its fresh followers. */
static inline void claim(Gathered *f, i64 length, i64 whole, i64 latest, const i64 *fresh, const i64 *parts, i64 n) {
    /* Most of 256 that a context claims, and parts a different follower, by length. */
    static const i32 claims[] = {0, 50, 80, 110, 140, 170, 200, 220};
    static const i32 kept_back[] = {0, 96, 48, 32, 24, 18, 14, 12};
    i64 tier = least_of(length, 7);
    whole = whole * UNIT + latest + kept_back[tier] * n;
    i64 scale = (((f->left * claims[tier]) >> 8) << 20) / whole;
    for (i64 j = 0; j < n; j++) {
        i64 given = (parts[j] * scale) >> 20;
        f->followers[fresh[j]].prob += given;
        f->left -= given;
    }
}

/* Add what one context says that longer ones of its tree, which occurred `before` times, did not.
 *
 * `n_now` of its occurrences are the text's end and have no follower yet. Tokens refused as `first` ones count as never
 * seen. Returns how often this context occurred. */
static inline i64 ask_context(const ngs_cache *c, i64 row, Place p, i64 n_now, i64 source, int first, i64 before,
                              Gathered *f) {
    const i64 *x = c->trie;
    const i32 *m = c->mem;
    i64 fresh[CANDIDATES], parts[CANDIDATES], seen = 0, more_seen = 0, n_fresh = 0, latest = 0;
    i64 total = m[node_at(x, p.node) + C_COUNT] - n_now, child = m[node_at(x, p.node) + C_CHILD];
    if (before && total <= before) return before;
    for (i64 hop = 0; hop < x[X_FOLLOWERS] && child; hop++) {
        const i32 *k = m + node_at(x, child);
        i64 here = child, token = k[C_TOKEN], count_here = k[C_COUNT];
        child = k[C_OLDER];
        if (first && is_banned(c->requests, m, row, token)) {
            total -= count_here;
            continue;
        }
        i64 i = follower_of(f, token, source);
        if (i < 0) continue;
        i64 tree = source == 1 ? 0 : 1, *counted_here = &f->followers[i].seen[tree].count;
        if (*counted_here == 0) f->followers[i].seen[tree].place = (Place){here, p.length + 1};
        seen += count_here;
        i64 more = count_here - *counted_here;
        *counted_here = count_here;
        if (more <= 0) continue;
        if (hop == 0 && source == 1) latest = LATEST;
        fresh[n_fresh] = i;
        parts[n_fresh] = more * UNIT + (hop == 0 ? latest : 0);
        more_seen += more;
        n_fresh++;
    }
    total = most_of(total, seen);
    if (n_fresh) claim(f, p.length, most_of(total - before, more_seen), latest, fresh, parts, n_fresh);
    return total;
}

/* Followers of what ends where `stand` says, own contexts before the tenant's of the same length.
 *
 * `path` is the path probability there, and `floor` one up to which nothing more is drafted: once there is a follower,
 * contexts that could not bring in another are not asked. `now_shared` says whether the text's last token is counted in
 * the tenant's tree too. `stand` then holds the contexts to be asked next. Returns the length of the longest context
 * with any follower. */
static inline i64 gather_contexts(const ngs_cache *c, i64 row, Stand *stand, int first, i64 path, i64 floor,
                                  i64 now_shared, Gathered *f) {
    Place own = {stand->own, stand->own_length}, shared = {stand->shared, stand->shared_length};
    i64 own_total = 0, shared_total = 0, match = 0;
    f->n = 0;
    f->left = 1 << 30;
    for (i64 length = most_of(own.length, shared.length); length > 0; length--) {
        if (own.length == length) {
            own_total = ask_context(c, row, own, first ? 1 : 0, 1, first, own_total, f);
            own = suffix_of(c->trie, c->mem, own);
        }
        if (shared.length == length) {
            shared_total = ask_context(c, row, shared, first ? now_shared : 0, 2, first, shared_total, f);
            shared = suffix_of(c->trie, c->mem, shared);
        }
        if (match == 0 && f->n) match = length;
        if (f->left < ENOUGH || (f->n && (f->left * path) >> 30 <= floor)) break;
    }
    *stand = (Stand){(i32)own.node, (i32)own.length, (i32)shared.node, (i32)shared.length};
    return match;
}

/* Where a drafted token stands in one tree: where it was first seen, or one step from what was to be asked above it. */
static inline Place stand_in(const ngs_cache *c, Place p, Place above, i64 token) {
    if (p.node == 0) return above.node ? step_on(c->trie, c->mem, above, token) : above;
    return p.length == c->trie[X_DEPTH] ? suffix_of(c->trie, c->mem, p) : p;
}

static inline void stand_on(const ngs_cache *c, Stand *s, const Stand *above, i64 token) {
    Place own = stand_in(c, (Place){s->own, s->own_length}, (Place){above->own, above->own_length}, token);
    Place up = {above->shared, above->shared_length};
    Place shared = stand_in(c, (Place){s->shared, s->shared_length}, up, token);
    *s = (Stand){(i32)own.node, (i32)own.length, (i32)shared.node, (i32)shared.length};
}

/* Grow one row's draft in `t`; `stands` is scratch for CANDIDATES a token, and one. */
static inline Drafted trie_draft_row(const ngs_cache *c, i64 row, Ask ask, Stand *stands, const Tree *t) {
    i64 p = own_tail(c->requests, c->own, c->mem, row), n_open = 0, node = 0, match = 0, n_stands = 1;
    int refused = 0, cut = 0;
    Place own = own_place(c, place_of(c, row), p), shared = shared_place(c, row, p);
    stands[0] = (Stand){(i32)own.node, (i32)own.length, (i32)shared.node, (i32)shared.length};
    i64 now_shared = c->mem[row_at(c->requests, row) + T_SHARED_N] ? 1 : 0;
    plant(t, 0, ask.max_draft);
    while (node < ask.max_draft) {
        i64 room = ask.max_draft - node, path = t->row[N_PATH][node];
        if (ask.chain) {
            n_open = 0;
            room = 1;
        }
        i64 least = n_open >= room ? t->row[O_PATH][0] : 0; /* what enters is more probable */
        if (t->row[N_DEPTH][node] >= ask.max_depth) {
            cut = 1;
        } else if (path > least && !is_eos(c->requests, t->row[N_TOKEN][node])) {
            Gathered f;
            Stand *here = stands + t->row[N_LIST][node];
            if (node) stand_on(c, here, stands + t->row[N_LIST][t->row[N_PARENT][node]], t->row[N_TOKEN][node]);
            i64 length = gather_contexts(c, row, here, node == 0, path, most_of(least, WORTH), now_shared, &f);
            if (node == 0) match = length;
            for (i64 i = 0; i < f.n; i++) {
                const Follower *g = &f.followers[i];
                i64 below = (path * g->prob) >> 30;
                if (below < most_of(ask.min_q30, 1)) {
                    refused = 1;
                    continue;
                }
                stands[n_stands] = (Stand){(i32)g->seen[0].place.node, (i32)g->seen[0].place.length,
                                           (i32)g->seen[1].place.node, (i32)g->seen[1].place.length};
                n_open = offer(t, n_open, room, g->token, node, below, n_stands++, g->source);
            }
        }
        if (n_open == 0) break;
        node++;
        n_open = draft_best(t, n_open, node);
    }
    return (Drafted){node, match, stopped_by(node, ask.max_draft, cut, refused)};
}

#endif
