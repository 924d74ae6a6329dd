/* Whether every number in a trie is one that the other functions may follow; see check.h and caches/trie_integrity.py.
 *
 * A node is in use when its token is not 0. It is live when it belongs to a tenant's tree or to the own tree of a row
 * that still knows it; the others belong to abandoned trees, which wait to be cleared node by node. */
#ifndef NGS_CHECK_TRIE_H
#define NGS_CHECK_TRIE_H

#include "check_text.h"
#include "trie_rows.h"

static inline const i32 *node_of(const ngs_cache *c, i64 node) { return c->mem + node_at(c->trie, node); }

/* Root and length of a node's path; root 0 when there is none within the depth. */
static inline Place root_of(const ngs_cache *c, i64 node) {
    Place p = {node, 0};
    while (node_of(c, p.node)[C_TOKEN] > 0) {
        p = (Place){node_of(c, p.node)[C_PARENT], p.length + 1};
        if (!within(p.node, 1, c->trie[X_BUMP]) || p.length > c->trie[X_DEPTH]) return (Place){0, 0};
    }
    return node_of(c, p.node)[C_TOKEN] < 0 ? p : (Place){0, 0};
}

/* Whether a root is a tenant's, or the own root of a row that still knows it. */
static inline int is_live_root(const ngs_cache *c, i64 root) {
    const i32 *fields = node_of(c, root);
    if (fields[C_TOKEN] == SHARED_ROOT) return 1;
    return within(fields[C_NEWER], 1, c->requests[R_ROWS]) &&
           own_root(c->trie, c->mem, place_of(c, fields[C_NEWER] - 1)) == root;
}

/* Free nodes are empty but for their link, on the list once, and all nodes without a token. Returns how many, or -1. */
static inline i64 n_free_nodes(const ngs_cache *c) {
    const i64 *x = c->trie;
    i64 on_list = 0, empty = 0, bump = x[X_BUMP];
    if (!within(bump, 0, x[X_NODES]) || !within(x[X_N_FREE], 0, bump)) return -1;
    if (!all_zero(c->mem + node_at(x, bump + 1), (x[X_NODES] - bump) * NODE)) return -1;
    for (i64 node = x[X_FREE]; node; node = node_of(c, node)[C_OLDER]) {
        if (!within(node, 1, bump) || ++on_list > x[X_N_FREE] || node_of(c, node)[C_TOKEN] != 0) return -1;
        for (int i = 0; i < NODE; i++)
            if (i != C_OLDER && node_of(c, node)[i]) return -1;
    }
    for (i64 node = 1; node <= bump; node++) empty += node_of(c, node)[C_TOKEN] == 0;
    return on_list == x[X_N_FREE] && empty == on_list ? on_list : -1;
}

/* Whether a link is 0 or leads to a node in use. */
static inline int leads_on(const ngs_cache *c, i64 node) {
    return node == 0 || (within(node, 1, c->trie[X_BUMP]) && node_of(c, node)[C_TOKEN] != 0);
}

/* A node's place in its parent's list of followers: linked both ways, at its head, or in none. */
static inline int good_list(const ngs_cache *c, i64 node, int live) {
    const i32 *fields = node_of(c, node);
    i64 child = fields[C_CHILD], older_node = fields[C_OLDER], newer_node = fields[C_NEWER];
    if (!leads_on(c, child) || (child && node_of(c, child)[C_PARENT] != node)) return 0;
    if (child) { /* of an abandoned tree's list the first may be gone */
        i64 before = node_of(c, child)[C_NEWER];
        if (live && before) return 0;
        if (before && within(before, 1, c->trie[X_BUMP]) && node_of(c, before)[C_TOKEN] > 0 &&
            node_of(c, before)[C_OLDER] == child)
            return 0;
    }
    if (fields[C_TOKEN] < 0) return 1; /* a root's fields for neighbours say whose it is */
    if (fields[C_COUNT] == 0) return newer_node == 0 && older_node == 0;
    if (!leads_on(c, older_node)) return 0;
    if (older_node) {
        const i32 *next = node_of(c, older_node);
        if (next[C_TOKEN] < 0 || next[C_NEWER] != node || next[C_PARENT] != fields[C_PARENT]) return 0;
    }
    if (!live) return 1;
    if (newer_node == 0) return node_of(c, fields[C_PARENT])[C_CHILD] == node;
    return leads_on(c, newer_node) && node_of(c, newer_node)[C_OLDER] == node &&
           node_of(c, newer_node)[C_TOKEN] > 0 && node_of(c, newer_node)[C_PARENT] == fields[C_PARENT];
}

/* A live node's suffix is its path without the first token, as far as its parent's is: by induction it is exact. */
static inline int good_suffix(const ngs_cache *c, i64 node, i64 root, i64 length) {
    const i32 *fields = node_of(c, node);
    i64 suffix = fields[C_SUFFIX];
    if (length == 0) return suffix == 0 && fields[C_PARENT] == 0;
    if (length == 1) return suffix == root;
    if (!within(suffix, 1, c->trie[X_BUMP]) || node_of(c, suffix)[C_TOKEN] != fields[C_TOKEN]) return 0;
    return node_of(c, suffix)[C_PARENT] == node_of(c, fields[C_PARENT])[C_SUFFIX];
}

/* Every node by itself; counts those of abandoned trees. Returns how many, or -1. */
static inline i64 n_wasted_nodes(const ngs_cache *c) {
    i64 n = 0;
    for (i64 node = 1; node <= c->trie[X_BUMP]; node++) {
        const i32 *fields = node_of(c, node);
        if (fields[C_TOKEN] == 0) continue;
        if (fields[C_TOKEN] < SHARED_ROOT || fields[C_TOKEN] > c->requests[R_VOCAB]) return -1;
        if (!within(fields[C_COUNT], 0, TRIE_MAX_COUNT) || !within(fields[C_USE], 0, INT32_MAX)) return -1;
        Place root = root_of(c, node);
        if (root.node == 0) return -1;
        int live = is_live_root(c, root.node);
        if (!good_list(c, node, live) || (live && !good_suffix(c, node, root.node, root.length))) return -1;
        n += !live;
    }
    return n;
}

/* Root of the abandoned tree in which clearing goes on at `node`, the first of the first of its followers; or -1. */
static inline i64 waste_root(const ngs_cache *c, i64 node) {
    if (!leads_on(c, node)) return -1;
    while (node && node_of(c, node)[C_TOKEN] > 0) {
        i64 up = node_of(c, node)[C_PARENT];
        if (node_of(c, up)[C_CHILD] != node) return -1;
        node = up;
    }
    return node && node_of(c, node)[C_TOKEN] != OWN_ROOT ? -1 : node;
}

/* Abandoned trees hang together, and nothing else is in them: walked as they will be cleared, without clearing. */
static inline int good_waste(const ngs_cache *c, i64 n_wasted) {
    i64 node = waste_root(c, c->trie[X_WASTE]), n = 0;
    int entered = 1; /* whether `node` was reached from above */
    while (node > 0) {
        const i32 *fields = node_of(c, node);
        if (entered && (++n > n_wasted || is_live_root(c, root_of(c, node).node))) return 0;
        if (entered && fields[C_CHILD]) {
            node = fields[C_CHILD];
        } else if (fields[C_TOKEN] < 0) {
            node = waste_root(c, fields[C_SUFFIX]); /* an abandoned root keeps where clearing goes on after it */
            entered = 1;
        } else {
            entered = fields[C_COUNT] > 0 && fields[C_OLDER];
            node = entered ? fields[C_OLDER] : fields[C_PARENT];
        }
    }
    return node == 0 && n == n_wasted;
}

/* The edge table finds every node but own roots, and holds nothing else. */
static inline int good_edges(const ngs_cache *c) {
    const i64 *x = c->trie;
    i64 n = 0, n_entries = 0;
    if (!all_within(c->mem + x[X_EDGE], x[X_EDGES], 0, INT32_MAX)) return 0;
    for (i64 slot = 0; slot < x[X_EDGES]; slot++) {
        i64 entry = c->mem[x[X_EDGE] + slot];
        n_entries += entry != 0;
        if (entry && !within(entry & node_mask(x), 1, x[X_BUMP])) return 0;
    }
    if (n_entries > x[X_BUMP]) return 0; /* so that every search ends */
    for (i64 node = 1; node <= x[X_BUMP]; node++) {
        const i32 *fields = node_of(c, node);
        if (fields[C_TOKEN] == 0 || fields[C_TOKEN] == OWN_ROOT) continue;
        i64 found = fields[C_TOKEN] == SHARED_ROOT ? find_root(x, c->mem, fields[C_NEWER], fields[C_OLDER])
                                                   : trie_find(x, c->mem, fields[C_PARENT], fields[C_TOKEN]);
        if (found != node) return 0;
        n++;
    }
    return n == n_entries;
}

/* Add `change` to the use of every node that a live node refers to. */
static inline void change_uses(const ngs_cache *c, i32 change) {
    for (i64 node = 1; node <= c->trie[X_BUMP]; node++) {
        const i32 *fields = node_of(c, node);
        if (fields[C_TOKEN] <= 0 || !is_live_root(c, root_of(c, node).node)) continue;
        i32 *parent = c->mem + node_at(c->trie, fields[C_PARENT]) + C_USE;
        i32 *suffix = c->mem + node_at(c->trie, fields[C_SUFFIX]) + C_USE;
        *parent = (i32)((uint32_t)*parent + (uint32_t)change);
        *suffix = (i32)((uint32_t)*suffix + (uint32_t)change);
    }
}

/* References are counted: with all of them taken off, nothing but the second-chance bit is left; then put back. */
static inline int good_uses(const ngs_cache *c) {
    int good = 1;
    change_uses(c, -2);
    for (i64 node = 1; node <= c->trie[X_BUMP]; node++) {
        const i32 *fields = node_of(c, node);
        if (fields[C_TOKEN] && (fields[C_USE] & ~1) && is_live_root(c, root_of(c, node).node)) good = 0;
    }
    change_uses(c, 2);
    return good;
}

/* Rows stand where their places say, as far as the versions there are still the nodes'. */
static inline int good_place(const ngs_cache *c, i64 row) {
    const i32 *place = place_of(c, row), *request = c->mem + row_at(c->requests, row);
    i64 n = c->trie[X_BUMP], root = own_root(c->trie, c->mem, place);
    if (root && (node_of(c, root)[C_TOKEN] != OWN_ROOT || node_of(c, root)[C_NEWER] != row + 1)) return 0;
    if (is_alive(c->trie, c->mem, place[P_OWN], place[P_OWN_VERSION])) {
        Place end = root_of(c, place[P_OWN]);
        if (root == 0 || end.node != root || end.length != place[P_OWN_LENGTH]) return 0;
        if (end.length >= c->trie[X_DEPTH]) return 0;
    }
    if (request[T_STATE] != LIVE) return place[P_COUNTED] >= 0;
    if (is_alive(c->trie, c->mem, place[P_SHARED], place[P_SHARED_VERSION])) {
        Place end = root_of(c, place[P_SHARED]);
        if (!within(end.node, 1, n) || end.length != place[P_SHARED_LENGTH]) return 0;
        if (end.length >= c->trie[X_DEPTH] || node_of(c, end.node)[C_TOKEN] != SHARED_ROOT) return 0;
        const i32 *tenant = node_of(c, end.node);
        if (tenant[C_NEWER] != request[T_TENANT_LO] || tenant[C_OLDER] != request[T_TENANT_HI]) return 0;
    }
    return place[P_COUNTED] == request[T_LENGTH];
}

/* Numbers of nodes in places, before anything follows them. */
static inline int good_place_numbers(const ngs_cache *c) {
    const i64 *x = c->trie;
    if (!all_within(c->mem + x[X_VERSION], x[X_NODES], 0, INT32_MAX)) return 0;
    for (i64 row = 0; row < c->requests[R_ROWS]; row++) {
        const i32 *place = place_of(c, row);
        if (!within(place[P_ROOT], 0, x[X_NODES]) || !within(place[P_OWN], 0, x[X_NODES])) return 0;
        if (!within(place[P_SHARED], 0, x[X_NODES])) return 0;
    }
    return within(x[X_HAND], 0, x[X_NODES]) && within(x[X_CREATED], 0, COUNTER_MAX) &&
           within(x[X_FREED], 0, COUNTER_MAX) && within(x[X_EVICTED], 0, COUNTER_MAX);
}

static inline int good_trie(const ngs_cache *c) {
    if (!good_place_numbers(c) || n_free_nodes(c) < 0) return 0;
    i64 n_wasted = n_wasted_nodes(c);
    if (n_wasted < 0 || !good_waste(c, n_wasted) || !good_edges(c) || !good_uses(c)) return 0;
    for (i64 row = 0; row < c->requests[R_ROWS]; row++)
        if (!good_place(c, row)) return 0;
    return 1;
}

#endif
