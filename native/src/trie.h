/* Nodes of the suffix trie: a token counted once for each context before it; see kernels/trie.py. */
#ifndef NGS_TRIE_H
#define NGS_TRIE_H

#include "store.h"

enum {
    TRIE_MAX_COUNT = 1 << 30, /* counts stay there, so that no server runs long enough to overflow them */
    SPARED = 64               /* leaves that get a second chance in one eviction */
};

/* Offset of a node in the buffer. */
static inline i64 node_at(const i64 *x, i64 node) { return x[X_NODE] + (node - 1) * NODE; }

/* How often a node was freed. */
static inline i64 version_of(const i64 *x, const i32 *m, i64 node) { return m[x[X_VERSION] + node - 1]; }

/* Hashes of an edge and of a tenant's root, 32 bits. */
static inline i64 edge_hash(i64 parent, i64 token) { return mix(mix(0x243F6A88, parent), token); }

static inline i64 root_hash(i64 lo, i64 hi) { return mix(mix(0x13198A2E, lo & 0xFFFFFFFF), hi & 0xFFFFFFFF); }

/* Hash that a node is entered under. */
static inline i64 node_hash(const i64 *x, const i32 *m, i64 node) {
    const i32 *c = m + node_at(x, node);
    return c[C_TOKEN] == SHARED_ROOT ? root_hash(c[C_NEWER], c[C_OLDER]) : edge_hash(c[C_PARENT], c[C_TOKEN]);
}

/* Slot where the search for a node starts. */
static inline i64 home_of(const i64 *x, const i32 *m, i64 node) { return (node_hash(x, m, node) * x[X_EDGES]) >> 32; }

static inline i64 slot_after(const i64 *x, i64 slot) { return slot + 1 < x[X_EDGES] ? slot + 1 : 0; }

static inline i64 node_mask(const i64 *x) { return ((i64)1 << x[X_BITS]) - 1; }

/* The piece of a hash that an entry keeps above its node's number. */
static inline i64 piece_of(const i64 *x, i64 h) { return (h << x[X_BITS]) & 0x7FFFFFFF; }

/* Node of `token` behind `parent`, or -1 - the free slot where its entry belongs. */
static inline i64 trie_find(const i64 *x, const i32 *m, i64 parent, i64 token) {
    i64 h = edge_hash(parent, token), mask = node_mask(x), piece = piece_of(x, h);
    for (i64 slot = (h * x[X_EDGES]) >> 32;; slot = slot_after(x, slot)) {
        i64 entry = m[x[X_EDGE] + slot];
        if (entry == 0) return -1 - slot;
        if ((entry ^ piece) > mask) continue;
        const i32 *c = m + node_at(x, entry & mask);
        if (c[C_PARENT] == parent && c[C_TOKEN] == token) return entry & mask;
    }
}

/* A tenant's root, or -1 - the free slot where its entry belongs. */
static inline i64 find_root(const i64 *x, const i32 *m, i64 lo, i64 hi) {
    i64 mask = node_mask(x);
    for (i64 slot = (root_hash(lo, hi) * x[X_EDGES]) >> 32;; slot = slot_after(x, slot)) {
        i64 entry = m[x[X_EDGE] + slot];
        if (entry == 0) return -1 - slot;
        const i32 *c = m + node_at(x, entry & mask);
        if (c[C_TOKEN] == SHARED_ROOT && c[C_NEWER] == lo && c[C_OLDER] == hi) return entry & mask;
    }
}

/* Enter a node in a free slot. */
static inline void write_entry(const i64 *x, i32 *m, i64 slot, i64 node, i64 h) {
    m[x[X_EDGE] + slot] = (i32)(node | piece_of(x, h));
}

/* Take a node out of the edge table; entries behind it move back, so that no search ends too early. */
static inline void delete_entry(const i64 *x, i32 *m, i64 node) {
    i64 n = x[X_EDGES], edges = x[X_EDGE], mask = node_mask(x), hole = home_of(x, m, node);
    while ((m[edges + hole] & mask) != node) hole = slot_after(x, hole);
    for (i64 slot = slot_after(x, hole); m[edges + slot] != 0; slot = slot_after(x, slot)) {
        i64 moved = slot - home_of(x, m, m[edges + slot] & mask), gap = slot - hole;
        if ((moved >= 0 ? moved : moved + n) >= (gap >= 0 ? gap : gap + n)) {
            m[edges + hole] = m[edges + slot];
            hole = slot;
        }
    }
    m[edges + hole] = 0;
}

/* Put a node that is in no list at the head of its parent's. */
static inline void to_front(const i64 *x, i32 *m, i64 parent, i64 node) {
    i32 *p = m + node_at(x, parent), *c = m + node_at(x, node), head = p[C_CHILD];
    p[C_CHILD] = (i32)node;
    c[C_OLDER] = head;
    c[C_NEWER] = 0;
    if (head) m[node_at(x, head) + C_NEWER] = (i32)node;
}

/* Take a node out of its parent's list. */
static inline void unlist(const i64 *x, i32 *m, i64 node) {
    i32 *c = m + node_at(x, node), newer_node = c[C_NEWER], older_node = c[C_OLDER];
    if (newer_node)
        m[node_at(x, newer_node) + C_OLDER] = older_node;
    else
        m[node_at(x, c[C_PARENT]) + C_CHILD] = older_node;
    if (older_node) m[node_at(x, older_node) + C_NEWER] = newer_node;
    c[C_NEWER] = c[C_OLDER] = 0;
}

/* Empty a node that nothing refers to and put it on the free list. */
static inline void free_node(i64 *x, i32 *m, i64 node) {
    i32 *c = m + node_at(x, node), *version = m + x[X_VERSION] + node - 1;
    if (c[C_TOKEN] != OWN_ROOT) delete_entry(x, m, node);
    *version = (i32)(((i64)*version + 1) & 0x7FFFFFFF);
    for (i64 i = 0; i < NODE; i++) c[i] = 0;
    c[C_OLDER] = (i32)x[X_FREE];
    x[X_FREE] = node;
    x[X_N_FREE] += 1;
    x[X_FREED] += 1;
}

/* Free a leaf, and what never occurred itself and only led to it. */
static inline void remove_leaf(i64 *x, i32 *m, i64 node) {
    const i32 *first = m + node_at(x, node);
    if (first[C_TOKEN] > 0 && first[C_COUNT] > 0) unlist(x, m, node);
    i64 work = node; /* a stack, linked by the field for followers, of which leaves have none */
    while (work) {
        i64 leaf = work;
        const i32 *c = m + node_at(x, leaf);
        i64 ups[2] = {c[C_PARENT], c[C_SUFFIX]};
        work = c[C_CHILD];
        for (int i = 0; i < 2; i++) {
            if (ups[i] == 0) continue;
            i32 *u = m + node_at(x, ups[i]);
            u[C_USE] -= 2;
            if (u[C_USE] < 2 && u[C_COUNT] == 0) {
                u[C_CHILD] = (i32)work;
                work = ups[i];
            }
        }
        free_node(x, m, leaf);
    }
}

/* Free the first leaf at or behind the clock hand that was not counted again since the hand came by. */
static inline void evict(i64 *x, i32 *m) {
    i64 hand = x[X_HAND];
    for (i64 spared = 0;;) {
        hand = hand < x[X_NODES] ? hand + 1 : 1;
        i32 *use = m + node_at(x, hand) + C_USE;
        if (*use == 0 || (*use == 1 && spared == SPARED)) break;
        if (*use == 1) {
            *use = 0;
            spared++;
        }
    }
    x[X_HAND] = hand;
    x[X_EVICTED] += 1;
    remove_leaf(x, m, hand);
}

/* Free one node of an abandoned own tree, leaves first. */
static inline void clear_waste(i64 *x, i32 *m) {
    i64 node = x[X_WASTE];
    const i32 *c = m + node_at(x, node);
    while (c[C_CHILD]) {
        node = c[C_CHILD];
        c = m + node_at(x, node);
    }
    if (c[C_TOKEN] == OWN_ROOT) {
        x[X_WASTE] = c[C_SUFFIX];
    } else {
        m[node_at(x, c[C_PARENT]) + C_CHILD] = c[C_OLDER];
        x[X_WASTE] = c[C_PARENT];
    }
    free_node(x, m, node);
}

/* Give up an own tree: nobody looks at it again, and new nodes are taken from it first. */
static inline void abandon(i64 *x, i32 *m, i64 root) {
    m[node_at(x, root) + C_SUFFIX] = (i32)x[X_WASTE];
    x[X_WASTE] = root;
}

/* An empty node; there is always one: abandoned trees yield first, leaves last. */
static inline i64 new_node(i64 *x, i32 *m) {
    if (x[X_FREE] == 0) {
        if (x[X_WASTE])
            clear_waste(x, m);
        else if (x[X_BUMP] < x[X_NODES])
            return ++x[X_BUMP];
        else
            evict(x, m);
    }
    i64 node = x[X_FREE];
    i32 *c = m + node_at(x, node);
    x[X_FREE] = c[C_OLDER];
    c[C_OLDER] = 0;
    x[X_N_FREE] -= 1;
    return node;
}

/* Root of an own tree; only its row knows it. */
static inline i64 new_own_root(i64 *x, i32 *m, i64 lo) {
    i64 root = new_node(x, m);
    m[node_at(x, root) + C_TOKEN] = OWN_ROOT;
    m[node_at(x, root) + C_NEWER] = (i32)lo;
    return root;
}

/* A tenant's root, made where there is none. */
static inline i64 shared_root(i64 *x, i32 *m, i64 lo, i64 hi) {
    i64 root = find_root(x, m, lo, hi);
    if (root >= 0) return root;
    root = new_node(x, m);
    i64 slot = -1 - find_root(x, m, lo, hi); /* making room may have moved entries */
    i32 *c = m + node_at(x, root);
    c[C_TOKEN] = SHARED_ROOT;
    c[C_NEWER] = (i32)lo;
    c[C_OLDER] = (i32)hi;
    write_entry(x, m, slot, root, root_hash(lo, hi));
    return root;
}

/* Keep a node from being freed while it is worked on (`n` = 2), or let it go again (-2). */
static inline void hold(const i64 *x, i32 *m, i64 node, i32 n) {
    if (node) m[node_at(x, node) + C_USE] += n;
}

/* Make the node of `token` behind `parent`; `longer` is the node whose suffix it becomes (0: none). */
static inline i64 new_child(i64 *x, i32 *m, i64 parent, i64 longer, i64 token, i64 slot) {
    hold(x, m, parent, 2);
    hold(x, m, longer, 2);
    i64 freed = x[X_FREED], node = new_node(x, m);
    if (x[X_FREED] != freed) slot = -1 - trie_find(x, m, parent, token);
    hold(x, m, longer, -2);
    i32 *c = m + node_at(x, node);
    c[C_TOKEN] = (i32)token;
    c[C_PARENT] = (i32)parent; /* the parent stays held: this is the reference */
    write_entry(x, m, slot, node, edge_hash(parent, token));
    x[X_CREATED] += 1;
    return node;
}

#endif
