/* Rows and the trie: where each row's text ends in its own tree and in its tenant's; see kernels/trie_rows.py. */
#ifndef NGS_TRIE_ROWS_H
#define NGS_TRIE_ROWS_H

#include "cache.h"
#include "limits.h"
#include "trie_count.h"

enum { MAX_DEPTH = 32 }; /* of a trie */

/* Fields of a row's place. */
static inline i32 *place_of(const ngs_cache *c, i64 row) { return c->mem + c->trie[X_PLACE] + row * PLACE; }

/* Whether a node written down with its version is still the same. */
static inline int is_alive(const i64 *x, const i32 *m, i64 node, i64 version) {
    return node && version_of(x, m, node) == version;
}

/* Write down where a text ends, at one slot of a place. */
static inline void keep(const i64 *x, const i32 *m, i32 *slot, Place p) {
    slot[0] = (i32)p.node;
    slot[1] = p.node ? (i32)version_of(x, m, p.node) : 0;
    slot[2] = (i32)p.length;
}

/* A row's own root, 0 when it has none or lost it. */
static inline i64 own_root(const i64 *x, const i32 *m, const i32 *place) {
    return is_alive(x, m, place[P_ROOT], place[P_ROOT_VERSION]) ? place[P_ROOT] : 0;
}

/* The longest context that ends at position `p` of own text, walked from a root. */
static inline Place walk_text(const ngs_cache *c, i64 root, i64 p) {
    i32 context[MAX_DEPTH];
    return walk_from(c->trie, c->mem, root, context, context_at(c->own, c->mem, p, context, c->trie[X_DEPTH] - 1));
}

/* The longest own context that ends at position `p`; node 0 when nothing is counted. */
static inline Place own_place(const ngs_cache *c, i32 *place, i64 p) {
    if (is_alive(c->trie, c->mem, place[P_OWN], place[P_OWN_VERSION]))
        return (Place){place[P_OWN], place[P_OWN_LENGTH]};
    i64 root = own_root(c->trie, c->mem, place);
    if (root == 0) return (Place){0, 0};
    Place end = walk_text(c, root, p);
    keep(c->trie, c->mem, place + P_OWN, end);
    return end;
}

/* Count a token + 1 of a row's own text; `p` is the position before it. */
static inline void count_own(const ngs_cache *c, i32 *place, i64 p, i64 value, i64 lo) {
    place[P_COUNTED] += 1;
    if (value <= 0) { /* nothing is matched across a placeholder */
        place[P_OWN] = 0;
        return;
    }
    Place end = own_place(c, place, p);
    if (end.node == 0) {
        end.node = new_own_root(c->trie, c->mem, lo);
        place[P_ROOT] = (i32)end.node;
        place[P_ROOT_VERSION] = (i32)version_of(c->trie, c->mem, end.node);
    }
    keep(c->trie, c->mem, place + P_OWN, count_token(c->trie, c->mem, end, value, 1));
}

/* Nodes made so far, as places remember it. */
static inline i32 created(const ngs_cache *c) { return (i32)(c->trie[X_CREATED] & 0x7FFFFFFF); }

/* The longest context in the tenant's tree that ends at position `p`; node 0 without a tree. */
static inline Place shared_place(const ngs_cache *c, i64 row, i64 p) {
    i32 *place = place_of(c, row), seen = created(c);
    const i32 *request = c->mem + row_at(c->requests, row);
    if (is_alive(c->trie, c->mem, place[P_SHARED], place[P_SHARED_VERSION])) {
        Place end = {place[P_SHARED], place[P_SHARED_LENGTH]};
        if (end.length == c->trie[X_DEPTH] - 1 || place[P_SEEN] == seen) return end;
    }
    i64 root = find_root(c->trie, c->mem, request[T_TENANT_LO], request[T_TENANT_HI]);
    if (root < 0) {
        place[P_SHARED] = 0;
        return (Place){0, 0};
    }
    Place end = walk_text(c, root, p);
    keep(c->trie, c->mem, place + P_SHARED, end);
    place[P_SEEN] = seen;
    return end;
}

/* Where a row's first shared token is counted: behind the last tokens of its unshared context, nodes of count 0. */
static inline Place shared_start(const ngs_cache *c, i32 *request, i64 p) {
    i32 context[SHARED_CONTEXT];
    i64 n = context_at(c->own, c->mem, p, context, least_of(SHARED_CONTEXT, c->trie[X_DEPTH] - 1));
    request[T_CONTEXT_N] = (i32)n;
    Place end = {shared_root(c->trie, c->mem, request[T_TENANT_LO], request[T_TENANT_HI]), 0};
    for (i64 i = n - 1; i >= 0; i--) end = count_token(c->trie, c->mem, end, context[i], 0);
    return end;
}

/* Count a token + 1 for the row's tenant, before it is appended to the row's own text. */
static inline void count_shared(const ngs_cache *c, i64 row, i64 value) {
    i32 *place = place_of(c, row), *request = c->mem + row_at(c->requests, row);
    int first = request[T_SHARED_N] == 0;
    request[T_SHARED_N] += 1;
    if (value <= 0) {
        place[P_SHARED] = 0;
        return;
    }
    i64 p = own_tail(c->requests, c->own, c->mem, row);
    Place end;
    if (first) {
        end = shared_start(c, request, p);
    } else {
        end = shared_place(c, row, p);
        if (end.node == 0)
            end = (Place){shared_root(c->trie, c->mem, request[T_TENANT_LO], request[T_TENANT_HI]), 0};
        while (end.length >= request[T_CONTEXT_N] + request[T_SHARED_N]) /* no unshared token beyond the first's */
            end = suffix_of(c->trie, c->mem, end);
    }
    keep(c->trie, c->mem, place + P_SHARED, count_token(c->trie, c->mem, end, value, 1));
    place[P_SEEN] = created(c);
}

/* Move on in the tenant's tree by a token + 1 that is not shared. */
static inline void follow_shared(const ngs_cache *c, i32 *place, i64 value) {
    if (value <= 0 || !is_alive(c->trie, c->mem, place[P_SHARED], place[P_SHARED_VERSION])) {
        place[P_SHARED] = 0;
        return;
    }
    Place end = {place[P_SHARED], place[P_SHARED_LENGTH]};
    keep(c->trie, c->mem, place + P_SHARED, step_on(c->trie, c->mem, end, value));
}

/* Count a token + 1 of a row's own text and append it. */
static inline void trie_append(const ngs_cache *c, i64 row, i64 value) {
    i64 lo = c->mem[row_at(c->requests, row) + T_OWNER_LO];
    count_own(c, place_of(c, row), own_tail(c->requests, c->own, c->mem, row), value, lo);
    own_append(c->requests, c->own, c->mem, row, value);
}

/* Append prompt tokens to a row's own text, and count them for its tenant when it shares all. */
static inline void trie_ingest(const ngs_cache *c, i64 row, const i32 *tokens, i64 n_tokens) {
    int share_all = c->mem[row_at(c->requests, row) + T_SHARE] == SHARE_ALL;
    for (i64 j = 0; j < n_tokens; j++) {
        i64 value = to_value(c->requests, tokens[j]);
        if (share_all) count_shared(c, row, value);
        trie_append(c, row, value);
    }
    if (!share_all) place_of(c, row)[P_SHARED] = 0;
}

/* Append emitted tokens to a row's own text and, where it shares, count them for its tenant. */
static inline void trie_accept_row(const ngs_cache *c, i64 row, const i32 *tokens, i64 n_tokens) {
    if (n_tokens == 0) {
        ban_last(c->requests, c->mem, row);
        return;
    }
    int share = c->mem[row_at(c->requests, row) + T_SHARE] != SHARE_NONE;
    for (i64 j = 0; j < n_tokens; j++) {
        i64 value = to_value(c->requests, tokens[j]);
        if (share)
            count_shared(c, row, value);
        else
            follow_shared(c, place_of(c, row), value);
        trie_append(c, row, value);
    }
    c->requests[R_TOKENS_OUT] += n_tokens;
    progress(c->requests, c->mem, row);
}

/* Abandon a row's own tree and count the first `n_tokens` of its text anew, as for a fresh request. */
static inline void recount(const ngs_cache *c, i64 row, i64 n_tokens) {
    i32 *place = place_of(c, row);
    const i32 *request = c->mem + row_at(c->requests, row);
    i64 root = own_root(c->trie, c->mem, place), before = -1;
    if (root) abandon(c->trie, c->mem, root);
    place[P_ROOT] = place[P_OWN] = place[P_COUNTED] = 0;
    i64 p = request[T_FIRST] ? ((i64)request[T_FIRST] - 1) * BLOCK : -1;
    while (p >= 0 && place[P_COUNTED] < n_tokens) {
        count_own(c, place, before, c->mem[c->own[S_TEXT] + p], request[T_OWNER_LO]);
        before = p;
        p = newer(c->own, c->mem, p);
    }
    place[P_COUNTED] = (i32)n_tokens;
}

/* Make a row's own counts those of the tokens it keeps. */
static inline void before_begin(const ngs_cache *c, i64 row, i64 n_keep) {
    i32 *place = place_of(c, row);
    if (c->mem[row_at(c->requests, row) + T_STATE] != IDLE || place[P_COUNTED] != n_keep) recount(c, row, n_keep);
    place[P_SHARED] = 0;
}

/* Take back the newest shared token of a row, whose position is `p`; returns the position before it. */
static inline i64 uncount_shared(const ngs_cache *c, const i32 *request, i64 root, i64 p) {
    i64 value = c->mem[c->own[S_TEXT] + p];
    i32 context[MAX_DEPTH];
    p = older(c->own, c->mem, p);
    if (value <= 0) return p;
    i64 n = least_of(c->trie[X_DEPTH] - 1, (i64)request[T_CONTEXT_N] + request[T_SHARED_N]);
    n = context_at(c->own, c->mem, p, context, n);
    uncount_token(c->trie, c->mem, walk_from(c->trie, c->mem, root, context, n), value);
    return p;
}

/* Shorten a row's text: take back what it shared of the rest, and count its own anew. */
static inline void trie_truncate(const ngs_cache *c, i64 row, i64 n_tokens) {
    i32 *request = c->mem + row_at(c->requests, row);
    i64 n_gone = request[T_LENGTH] - n_tokens, p = own_tail(c->requests, c->own, c->mem, row);
    progress(c->requests, c->mem, row);
    if (n_gone == 0) return;
    i64 root = find_root(c->trie, c->mem, request[T_TENANT_LO], request[T_TENANT_HI]);
    for (i64 left = least_of(n_gone, request[T_SHARED_N]); left > 0; left--) {
        request[T_SHARED_N] -= 1;
        if (p < 0 || root <= 0) continue;
        p = uncount_shared(c, request, root, p);
        root = find_root(c->trie, c->mem, request[T_TENANT_LO], request[T_TENANT_HI]);
    }
    if (request[T_SHARED_N] == 0) request[T_CONTEXT_N] = 0;
    place_of(c, row)[P_SHARED] = 0;
    own_pop(c->requests, c->own, c->mem, row, n_tokens);
    recount(c, row, n_tokens);
}

#endif
