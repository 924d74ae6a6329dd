/* Counting a token behind every context, taking it back, finding where a text ends; see kernels/trie_count.py. */
#ifndef NGS_TRIE_COUNT_H
#define NGS_TRIE_COUNT_H

#include "trie.h"

/* The end of a text in a tree: the node of the longest known context, and its length in tokens; node 0: none. */
typedef struct {
    i64 node, length;
} Place;

/* The context without its first token. */
static inline Place suffix_of(const i64 *x, const i32 *m, Place p) {
    return (Place){m[node_at(x, p.node) + C_SUFFIX], p.length - 1};
}

/* Count a follower once more and make it the most recent of its list. */
static inline void count_child(const i64 *x, i32 *m, i64 parent, i64 length, i64 child) {
    i32 *c = m + node_at(x, child), seen = c[C_COUNT];
    if (seen == 0) {
        to_front(x, m, parent, child);
    } else {
        c[C_USE] |= 1;
        if (length > 0 && c[C_NEWER]) {
            unlist(x, m, child);
            to_front(x, m, parent, child);
        }
    }
    if (seen < TRIE_MAX_COUNT) c[C_COUNT] = seen + 1;
}

/* Make one node the suffix of another. */
static inline void link_suffix(const i64 *x, i32 *m, i64 longer, i64 shorter) {
    m[node_at(x, longer) + C_SUFFIX] = (i32)shorter;
    m[node_at(x, shorter) + C_USE] += 2;
}

/* Count `token` behind a context, and behind each of its suffixes.
 *
 * Without `add` nodes are made but nothing is counted. Returns the longest context that ends in `token`. */
static inline Place count_token(i64 *x, i32 *m, Place p, i64 token, int add) {
    i64 depth = x[X_DEPTH], longer = 0;
    int made = 0, found = 0;
    Place top = {0, 0};
    if (!add && p.length == depth - 1) p = suffix_of(x, m, p);
    while (1) {
        i64 child;
        if (found) {
            child = m[node_at(x, longer) + C_SUFFIX];
        } else {
            child = trie_find(x, m, p.node, token);
            found = child > 0;
            if (!found) child = new_child(x, m, p.node, longer, token, -1 - child);
            if (made) link_suffix(x, m, longer, child);
            made = !found;
        }
        if (add) count_child(x, m, p.node, p.length, child);
        if (top.node == 0 && p.length + 1 < depth) {
            top = (Place){child, p.length + 1};
            hold(x, m, child, 2);
        }
        longer = child;
        if (p.length == 0) break;
        p = suffix_of(x, m, p);
    }
    if (made) link_suffix(x, m, longer, p.node);
    i32 *root = m + node_at(x, p.node);
    if (add && root[C_COUNT] < TRIE_MAX_COUNT) root[C_COUNT] += 1;
    hold(x, m, top.node, -2);
    return top;
}

/* Take back one count of `token` behind a context and each of its suffixes, as far as they are still counted. */
static inline void uncount_token(i64 *x, i32 *m, Place p, i64 token) {
    i64 child = trie_find(x, m, p.node, token);
    while (child < 0 && p.length > 0) {
        p = suffix_of(x, m, p);
        child = trie_find(x, m, p.node, token);
    }
    while (child > 0) { /* down to the root, whose suffix is none */
        i32 *c = m + node_at(x, child), shorter = c[C_SUFFIX], seen = c[C_COUNT];
        hold(x, m, shorter, 2);
        if (seen) c[C_COUNT] = seen - 1;
        if (seen == 1 && c[C_TOKEN] > 0) unlist(x, m, child);
        if (seen <= 1 && c[C_USE] < 2) remove_leaf(x, m, child);
        hold(x, m, shorter, -2);
        child = shorter;
    }
}

/* The longest context that ends in `token`, when `p` is the longest one before it. */
static inline Place step_on(const i64 *x, const i32 *m, Place p, i64 token) {
    if (p.length == x[X_DEPTH] - 1) p = suffix_of(x, m, p);
    while (1) {
        i64 child = trie_find(x, m, p.node, token);
        if (child > 0) return (Place){child, p.length + 1};
        if (p.length == 0) return p;
        p = suffix_of(x, m, p);
    }
}

/* The longest context that ends as `context` does (tokens + 1, newest first), walked from the root. */
static inline Place walk_from(const i64 *x, const i32 *m, i64 root, const i32 *context, i64 n_context) {
    Place p = {root, 0};
    for (i64 i = n_context - 1; i >= 0; i--) p = step_on(x, m, p, context[i]);
    return p;
}

#endif
