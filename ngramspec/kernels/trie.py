"""Nodes of the suffix trie: a token counted once for each context before it, within a hard limit.

A node is a context (the path from its root) and knows how often it occurred, its parent (the context without its last
token), its suffix (without its first), and its followers, most recent first. Every context's suffix is a node too, so a
walk from the longest context to shorter ones is a chain of links, and one node says where a text ends.

An edge table of open addressing maps (parent, token) to a node. An entry is the node's number; the bits above it keep a
piece of the hash, so that most foreign entries are passed without touching their nodes. A deleted entry is closed by
shifting its successors back.

`C_USE` is twice the number of nodes that have this one as parent or suffix, plus a bit: counted again since the clock
hand came by. A node that none refers to is a leaf and may be evicted; a freed node gets a new version, so whoever kept
its number sees that it is gone. Nodes of count 0 are contexts ahead of shared text: matched, never followers, unlisted.
"""

from .._jit import inline, kernel, unsigned
from ..arena import (
    C_CHILD,
    C_COUNT,
    C_NEWER,
    C_OLDER,
    C_PARENT,
    C_SUFFIX,
    C_TOKEN,
    C_USE,
    NODE,
    OWN_ROOT,
    SHARED_ROOT,
    X_BITS,
    X_BUMP,
    X_CREATED,
    X_EDGE,
    X_EDGES,
    X_EVICTED,
    X_FREE,
    X_FREED,
    X_HAND,
    X_N_FREE,
    X_NODE,
    X_NODES,
    X_VERSION,
    X_WASTE,
)
from .store import mix

MAX_COUNT = 1 << 30  # counts stay there, so that no server runs long enough to overflow them
SPARED = 64  # leaves that get a second chance in one eviction


@inline
def at(x, node):
    """Offset of a node in the buffer."""
    return x[X_NODE] + (node - 1) * NODE


@inline
def version(x, m, node):
    """How often a node was freed."""
    return int(m[unsigned(x[X_VERSION] + node - 1)])


@inline
def edge_hash(parent, token):
    """Hash of an edge, 32 bits."""
    return mix(mix(0x243F6A88, parent), token)


@inline
def root_hash(lo, hi):
    """Hash of a tenant's root, 32 bits."""
    return mix(mix(0x13198A2E, lo & 0xFFFFFFFF), hi & 0xFFFFFFFF)


@kernel
def home(x, m, node):
    """Slot where the search for a node starts."""
    c = at(x, node)
    if m[c + C_TOKEN] == SHARED_ROOT:
        h = root_hash(int(m[c + C_NEWER]), int(m[c + C_OLDER]))
    else:
        h = edge_hash(int(m[c + C_PARENT]), int(m[c + C_TOKEN]))
    return (h * x[X_EDGES]) >> 32


@inline
def find(x, m, parent, token):
    """Node of `token` behind `parent`, or -1 - the free slot where its entry belongs."""
    n, edges, mask = x[X_EDGES], x[X_EDGE], (1 << x[X_BITS]) - 1
    h = edge_hash(parent, token)
    piece = (h << x[X_BITS]) & 0x7FFFFFFF
    slot = (h * n) >> 32
    while True:
        entry = int(m[unsigned(edges + slot)])
        if entry == 0:
            return -1 - slot
        if entry ^ piece <= mask:
            node = entry & mask
            c = at(x, node)
            if m[unsigned(c + C_PARENT)] == parent and m[unsigned(c + C_TOKEN)] == token:
                return node
        slot = slot + 1 if slot + 1 < n else 0


@kernel
def find_root(x, m, lo, hi):
    """A tenant's root, or -1 - the free slot where its entry belongs."""
    n, edges, mask = x[X_EDGES], x[X_EDGE], (1 << x[X_BITS]) - 1
    slot = (root_hash(lo, hi) * n) >> 32
    while True:
        entry = int(m[edges + slot])
        if entry == 0:
            return -1 - slot
        node = entry & mask
        c = at(x, node)
        if m[c + C_TOKEN] == SHARED_ROOT and m[c + C_NEWER] == lo and m[c + C_OLDER] == hi:
            return node
        slot = slot + 1 if slot + 1 < n else 0


@inline
def write_entry(x, m, slot, node, h):
    """Enter a node in a free slot."""
    m[unsigned(x[X_EDGE] + slot)] = node | ((h << x[X_BITS]) & 0x7FFFFFFF)


@kernel
def delete_entry(x, m, node):
    """Take a node out of the edge table; entries behind it move back, so that no search ends too early."""
    n, edges, mask = x[X_EDGES], x[X_EDGE], (1 << x[X_BITS]) - 1
    hole = home(x, m, node)
    while int(m[edges + hole]) & mask != node:
        hole = hole + 1 if hole + 1 < n else 0
    slot = hole
    while True:
        slot = slot + 1 if slot + 1 < n else 0
        entry = int(m[edges + slot])
        if entry == 0:
            break
        moved = slot - home(x, m, entry & mask)
        gap = slot - hole
        if (moved if moved >= 0 else moved + n) >= (gap if gap >= 0 else gap + n):
            m[edges + hole] = entry
            hole = slot
    m[edges + hole] = 0


@inline
def to_front(x, m, parent, node):
    """Put a node that is in no list at the head of its parent's."""
    p, c = at(x, parent), at(x, node)
    head = int(m[unsigned(p + C_CHILD)])
    m[unsigned(p + C_CHILD)], m[unsigned(c + C_OLDER)], m[unsigned(c + C_NEWER)] = node, head, 0
    if head:
        m[unsigned(at(x, head) + C_NEWER)] = node


@inline
def unlist(x, m, node):
    """Take a node out of its parent's list."""
    c = at(x, node)
    newer, older = int(m[unsigned(c + C_NEWER)]), int(m[unsigned(c + C_OLDER)])
    if newer:
        m[unsigned(at(x, newer) + C_OLDER)] = older
    else:
        m[at(x, int(m[unsigned(c + C_PARENT)])) + C_CHILD] = older
    if older:
        m[unsigned(at(x, older) + C_NEWER)] = newer
    m[unsigned(c + C_NEWER)], m[unsigned(c + C_OLDER)] = 0, 0


@kernel
def free_node(x, m, node):
    """Empty a node that nothing refers to and put it on the free list."""
    c = at(x, node)
    if m[c + C_TOKEN] != OWN_ROOT:
        delete_entry(x, m, node)
    v = x[X_VERSION] + node - 1
    m[v] = (int(m[v]) + 1) & 0x7FFFFFFF
    for i in range(NODE):
        m[c + i] = 0
    m[c + C_OLDER] = x[X_FREE]
    x[X_FREE] = node
    x[X_N_FREE] += 1
    x[X_FREED] += 1


@kernel
def remove(x, m, node):
    """Free a leaf, and what never occurred itself and only led to it."""
    c = at(x, node)
    if m[c + C_TOKEN] > 0 and m[c + C_COUNT] > 0:
        unlist(x, m, node)
    work = node  # a stack, linked by the field for followers, of which leaves have none
    while work:
        leaf = work
        c = at(x, leaf)
        work = int(m[c + C_CHILD])
        for field in (C_PARENT, C_SUFFIX):
            up = int(m[c + field])
            if up:
                u = at(x, up)
                m[u + C_USE] -= 2
                if m[u + C_USE] < 2 and m[u + C_COUNT] == 0:
                    m[u + C_CHILD] = work
                    work = up
        free_node(x, m, leaf)


@kernel
def evict(x, m):
    """Free the first leaf at or behind the clock hand that was not counted again since the hand came by."""
    hand, spared = x[X_HAND], 0
    while True:
        hand = hand + 1 if hand < x[X_NODES] else 1
        c = at(x, hand)
        use = int(m[c + C_USE])
        if use == 0 or (use == 1 and spared == SPARED):
            break
        if use == 1:
            m[c + C_USE] = 0
            spared += 1
    x[X_HAND] = hand
    x[X_EVICTED] += 1
    remove(x, m, hand)


@kernel
def clear_waste(x, m):
    """Free one node of an abandoned own tree, leaves first."""
    node = x[X_WASTE]
    c = at(x, node)
    while m[c + C_CHILD]:
        node = int(m[c + C_CHILD])
        c = at(x, node)
    if m[c + C_TOKEN] == OWN_ROOT:
        x[X_WASTE] = m[c + C_SUFFIX]
    else:
        parent = int(m[c + C_PARENT])
        m[at(x, parent) + C_CHILD] = m[c + C_OLDER]
        x[X_WASTE] = parent
    free_node(x, m, node)


@kernel
def abandon(x, m, root):
    """Give up an own tree: nobody looks at it again, and new nodes are taken from it first."""
    m[at(x, root) + C_SUFFIX] = x[X_WASTE]
    x[X_WASTE] = root


@kernel
def new_node(x, m):
    """An empty node; there is always one: abandoned trees yield first, leaves last."""
    if x[X_FREE] == 0:
        if x[X_WASTE]:
            clear_waste(x, m)
        elif x[X_BUMP] < x[X_NODES]:
            x[X_BUMP] += 1
            return int(x[X_BUMP])
        else:
            evict(x, m)
    node = int(x[X_FREE])
    c = at(x, node)
    x[X_FREE] = m[unsigned(c + C_OLDER)]
    m[unsigned(c + C_OLDER)] = 0
    x[X_N_FREE] -= 1
    return node


@kernel
def new_own_root(x, m, lo):
    """Root of an own tree; only its row knows it."""
    root = new_node(x, m)
    c = at(x, root)
    m[c + C_TOKEN], m[c + C_NEWER] = OWN_ROOT, lo
    return root


@kernel
def shared_root(x, m, lo, hi):
    """A tenant's root, made where there is none."""
    root = find_root(x, m, lo, hi)
    if root < 0:
        root = new_node(x, m)
        slot = -1 - find_root(x, m, lo, hi)  # making room may have moved entries
        c = at(x, root)
        m[c + C_TOKEN], m[c + C_NEWER], m[c + C_OLDER] = SHARED_ROOT, lo, hi
        write_entry(x, m, slot, root, root_hash(lo, hi))
    return root


@inline
def hold(x, m, node, n):
    """Keep a node from being freed while it is worked on (`n` = 2), or let it go again (-2)."""
    if node:
        m[unsigned(at(x, node) + C_USE)] += n


@kernel
def new_child(x, m, parent, longer, token, slot):
    """Make the node of `token` behind `parent`; `longer` is the node whose suffix it becomes (0: none)."""
    hold(x, m, parent, 2)
    hold(x, m, longer, 2)
    freed = x[X_FREED]
    node = new_node(x, m)
    if x[X_FREED] != freed:
        slot = -1 - find(x, m, parent, token)
    hold(x, m, longer, -2)
    c = at(x, node)
    m[unsigned(c + C_TOKEN)], m[unsigned(c + C_PARENT)] = token, parent  # the parent stays held: this is the reference
    write_entry(x, m, slot, node, edge_hash(parent, token))
    x[X_CREATED] += 1
    return node
