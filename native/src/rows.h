/* What the caches do differently with a row, by kind; scratch, cut into parts. */
#ifndef NGS_ROWS_H
#define NGS_ROWS_H

#include "drafter.h"
#include "trie_draft.h"

/* Elements of scratch for drafts of up to `width` tokens, and the widest drafts for so many elements. */
enum { STAND = 4, FIXED = W_SIZE + G_SIZE + X_SIZE };

static inline i64 scratch_size(i64 kind, i64 width) {
    i64 fixed = kind == NGS_SUFFIX_TRIE ? STAND * (CANDIDATES * width + 1) : FIXED;
    return fixed + TREE_ROWS * (width + 1);
}

static inline i64 width_within(i64 kind, i64 size) {
    i64 a_token = scratch_size(kind, 1) - scratch_size(kind, 0);
    return (size - scratch_size(kind, 0)) / a_token;
}

/* The drafter's tree also holds what it learns from. */
static inline i64 least_width(i64 kind) { return kind == NGS_DRAFTER ? MAX_SETTLE : 1; }

/* The trie's stands are structs of 32-bit numbers over the start of its scratch. */
static inline Stand *stands_of(const ngs_cache *c) { return (Stand *)(void *)c->scratch; }

static inline Tree tree_of(const ngs_cache *c) {
    i64 before = c->kind == NGS_SUFFIX_TRIE ? STAND * (CANDIDATES * (i64)c->width + 1) : FIXED;
    return tree_over(c->scratch + before, c->width);
}

static inline Scratch scratch_of(const ngs_cache *c) {
    i32 *w = c->scratch, *g = w + W_SIZE, *x = g + G_SIZE;
    return (Scratch){w, g, x, tree_of(c)};
}

/* Grow one row's draft; `t` receives the tree that it lies in. */
static inline Drafted draft_row(const ngs_cache *c, i64 row, Ask ask, Tree *t) {
    if (c->kind == NGS_SUFFIX_TRIE) return trie_draft_row(c, row, ask, stands_of(c), t);
    Scratch s = scratch_of(c);
    return c->kind == NGS_DRAFTER ? drafter_draft_row(c, row, ask, &s) : hash_draft_row(c, row, ask, s.w, s.g, t);
}

/* Draft for one slot into row `i` of the caller's arrays. */
static inline void draft_into(const ngs_cache *c, i64 row, i64 most, i64 left, int chain, i64 min_q30, i64 i,
                              const ngs_drafts *out) {
    Tree t = tree_of(c);
    Drafted d = {0, 0, empty_reason(c->requests, c->mem, row, most, left)};
    if (d.stop == DRAFTED) {
        Ask ask = {most, least_of(left >= 0 ? left - 1 : most, most), min_q30, chain};
        d = draft_row(c, row, ask, &t);
    }
    i64 at = i * out->width;
    if (d.n) hand_out(&t, d.n, out->tokens + at, out->parents + at, out->path_q30 + at, out->sources + at);
    out->n_draft[i] = (i32)d.n;
    out->match_length[i] = (i32)d.match;
    out->reason[i] = d.n ? DRAFTED : (i32)d.stop;
    remember(c->requests, c->mem, row, &t, d.n, d.stop);
    if (c->kind == NGS_DRAFTER) mark_drafted(c, row);
}

static inline void settle_rows(const ngs_cache *c, const i32 *slots, i64 n, int only_drafted) {
    Scratch s = scratch_of(c);
    for (i64 i = 0; i < n; i++) settle_row(c, slots[i], only_drafted, &s);
}

/* Append more at once than one settling takes, piece by piece; only the last may wait. */
static inline void append_long(const ngs_cache *c, i32 row, const i32 *tokens, i64 n_tokens) {
    Scratch s = scratch_of(c);
    i64 start = 0;
    do {
        settle_row(c, row, 0, &s);
        append_row(c, row, tokens + start, least_of(n_tokens - start, MAX_SETTLE), &s);
        if (!c->deferred) settle_row(c, row, 0, &s);
        start += MAX_SETTLE;
    } while (start < n_tokens);
}

/* The drafter's accept: what waits from the step before settles first, what comes now settles now or later. */
static inline void drafter_accept(const ngs_cache *c, const i32 *slots, i64 n, const i32 *tokens, const i32 *offsets) {
    Scratch s = scratch_of(c);
    i64 longest = 0;
    if (c->deferred) settle_rows(c, slots, n, 0);
    for (i64 i = 0; i < n; i++) longest = most_of(longest, (i64)offsets[i + 1] - offsets[i]);
    for (i64 i = 0; i < n; i++) {
        i64 n_emitted = (i64)offsets[i + 1] - offsets[i];
        const i32 *emitted = n_emitted ? tokens + offsets[i] : offsets; /* never read when there is none */
        if (longest > MAX_SETTLE)
            append_long(c, slots[i], emitted, n_emitted);
        else
            append_row(c, slots[i], emitted, n_emitted, &s);
    }
    if (!c->deferred && longest <= MAX_SETTLE) settle_rows(c, slots, n, 0);
}

/* Append emitted tokens to every slot. */
static inline void accept_rows(const ngs_cache *c, const i32 *slots, i64 n, const i32 *tokens, const i32 *offsets) {
    if (c->kind == NGS_DRAFTER) {
        drafter_accept(c, slots, n, tokens, offsets);
        return;
    }
    for (i64 i = 0; i < n; i++) {
        i64 n_emitted = (i64)offsets[i + 1] - offsets[i];
        const i32 *emitted = n_emitted ? tokens + offsets[i] : offsets; /* never read when there is none */
        if (c->kind == NGS_SUFFIX_TRIE)
            trie_accept_row(c, slots[i], emitted, n_emitted);
        else
            hash_accept_row(c, slots[i], emitted, n_emitted);
    }
}

/* Shorten a row. */
static inline void truncate_row(const ngs_cache *c, i32 row, i64 n_tokens) {
    if (c->kind == NGS_DRAFTER) {
        settle_rows(c, &row, 1, 0);
        drafter_truncate(c, row, n_tokens);
    } else if (c->kind == NGS_SUFFIX_TRIE) {
        trie_truncate(c, row, n_tokens);
    } else {
        hash_truncate(c, row, n_tokens);
    }
}

/* Append prompt tokens to a row. */
static inline void ingest_row(const ngs_cache *c, i32 row, const i32 *tokens, i64 n_tokens) {
    if (c->kind == NGS_SUFFIX_TRIE)
        trie_ingest(c, row, tokens, n_tokens);
    else
        hash_ingest(c, row, tokens, n_tokens);
}

#endif
