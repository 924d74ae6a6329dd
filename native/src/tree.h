/* Best-first growth of a draft by path probability; see kernels/tree.py.
 *
 * `t` is scratch of TREE_ROWS rows of `width` + 1; node 0 is the last committed token. */
#ifndef NGS_TREE_H
#define NGS_TREE_H

#include "arena.h"

/* Nodes in the order drafted; the open nodes' paths by rising probability and their slots, which are a permutation
 * (those behind the open ones are free); and what each slot holds. */
enum {
    N_TOKEN, N_PARENT, N_DEPTH, N_PATH, N_LIST, N_SOURCE, O_PATH, O_SLOT, O_TOKEN, O_PARENT, O_LIST, O_SOURCE,
    TREE_ROWS
};

typedef struct {
    i32 *row[TREE_ROWS];
} Tree;

/* The rows of a tree of at most `width` nodes in scratch int32[TREE_ROWS * (width + 1)]. */
static inline Tree tree_over(i32 *scratch, i64 width) {
    Tree t;
    for (i64 i = 0; i < TREE_ROWS; i++) t.row[i] = scratch + i * (width + 1);
    return t;
}

/* Start a tree of at most `width` nodes: node 0, probability 1, its candidate list. No node is open yet. */
static inline void plant(const Tree *t, i64 candidates, i64 width) {
    t->row[N_TOKEN][0] = 0;
    t->row[N_PARENT][0] = -1;
    t->row[N_DEPTH][0] = 0;
    t->row[N_PATH][0] = 1 << 30;
    t->row[N_LIST][0] = (i32)candidates;
    for (i64 i = 0; i < width; i++) t->row[O_SLOT][i] = (i32)i;
}

/* Put a node among the open ones if it is among the `room` most probable; ties keep the earlier first.
 *
 * Returns the new number of open nodes. Only the `room` best can still be drafted, so dropping the rest is exact. */
static inline i64 offer(const Tree *t, i64 n_open, i64 room, i64 token, i64 parent, i64 path, i64 candidates,
                        i64 source) {
    i32 *paths = t->row[O_PATH], *slots = t->row[O_SLOT];
    int full = n_open >= room;
    if (full && (room == 0 || paths[0] >= path)) return n_open;
    i32 slot = slots[full ? 0 : n_open];
    t->row[O_TOKEN][slot] = (i32)token;
    t->row[O_PARENT][slot] = (i32)parent;
    t->row[O_LIST][slot] = (i32)candidates;
    t->row[O_SOURCE][slot] = (i32)source;
    i64 i;
    if (full) { /* in the place of the least probable */
        for (i = 0; i + 1 < n_open && paths[i + 1] < path; i++) {
            paths[i] = paths[i + 1];
            slots[i] = slots[i + 1];
        }
    } else {
        for (i = n_open++; i > 0 && paths[i - 1] >= path; i--) {
            paths[i] = paths[i - 1];
            slots[i] = slots[i - 1];
        }
    }
    paths[i] = (i32)path;
    slots[i] = slot;
    return n_open;
}

/* Draft the most probable open node as number `node`; returns the new number of open nodes. */
static inline i64 draft_best(const Tree *t, i64 n_open, i64 node) {
    i32 slot = t->row[O_SLOT][--n_open], parent = t->row[O_PARENT][slot];
    t->row[N_TOKEN][node] = t->row[O_TOKEN][slot];
    t->row[N_PARENT][node] = parent;
    t->row[N_PATH][node] = t->row[O_PATH][n_open];
    t->row[N_LIST][node] = t->row[O_LIST][slot];
    t->row[N_SOURCE][node] = t->row[O_SOURCE][slot];
    t->row[N_DEPTH][node] = t->row[N_DEPTH][parent] + 1;
    return n_open;
}

/* Token + 1 at `depth` on the path to `node` (`depth` from 1 to the node's). */
static inline i64 path_value(const Tree *t, i64 node, i64 depth) {
    for (i64 up = t->row[N_DEPTH][node] - depth; up > 0; up--) node = t->row[N_PARENT][node];
    return t->row[N_TOKEN][node];
}

/* Last tokens + 1 before and including `node`, newest first, into `out`, `most` of them; returns how many. */
static inline i64 path_context(const Tree *t, i64 node, const i32 *context, i64 n_context, i32 *out, i64 most) {
    i64 n = 0;
    for (; n < most && node > 0; node = t->row[N_PARENT][node]) out[n++] = t->row[N_TOKEN][node];
    for (i64 i = 0; n < most && i < n_context; i++) out[n++] = context[i];
    return n;
}

/* Copy `n` drafted nodes into one row of the caller's arrays. */
static inline void hand_out(const Tree *t, i64 n, i32 *tokens, i32 *parents, i32 *path_q30, int8_t *sources) {
    for (i64 i = 0; i < n; i++) {
        tokens[i] = t->row[N_TOKEN][i + 1] - 1;
        parents[i] = t->row[N_PARENT][i + 1] - 1;
        path_q30[i] = t->row[N_PATH][i + 1];
        sources[i] = (int8_t)t->row[N_SOURCE][i + 1];
    }
}

#endif
