"""Children of tree nodes by parent and token: an open-addressing table of node numbers.

The key is not stored: it is read from the node, whose first two columns are `TOKEN` and `PARENT`. Node 0 is
the root and is nobody's child, so that 0 means empty. The table's length is a power of two, and some of it
is always empty.
"""

from .._jit import inline, kernel

TOKEN, PARENT = range(2)


@inline
def slot_of(table, parent, token):
    """Where the search for a child begins."""
    x = (parent * 0x9E3779B1 + token * 0x85EBCA77) & 0xFFFFFFFF
    x = ((x ^ (x >> 15)) * 0x2C1B3C6D) & 0xFFFFFFFF
    return (x ^ (x >> 13)) & (len(table) - 1)


@kernel
def find(nodes, table, parent, token):
    """Child of `parent` whose label starts with `token`, 0 where there is none."""
    at = slot_of(table, parent, token)
    while table[at]:
        child = table[at]
        if nodes[child, PARENT] == parent and nodes[child, TOKEN] == token:
            return int(child)
        at = (at + 1) & (len(table) - 1)
    return 0


@kernel
def table_put(nodes, table, child):
    """Enter a child under its parent and first token; the entry of another under the same key is replaced."""
    parent, token = int(nodes[child, PARENT]), int(nodes[child, TOKEN])
    at = slot_of(table, parent, token)
    while table[at]:
        other = table[at]
        if nodes[other, PARENT] == parent and nodes[other, TOKEN] == token:
            break
        at = (at + 1) & (len(table) - 1)
    table[at] = child


@kernel
def table_drop(nodes, table, child):
    """Remove a child's entry, and move up those that were pushed past it."""
    mask = len(table) - 1
    at = slot_of(table, int(nodes[child, PARENT]), int(nodes[child, TOKEN]))
    while table[at] != child:
        at = (at + 1) & mask
    hole = at
    at = (at + 1) & mask
    while table[at]:
        other = table[at]
        home = slot_of(table, int(nodes[other, PARENT]), int(nodes[other, TOKEN]))
        if (at - home) & mask >= (at - hole) & mask:
            table[hole] = other
            hole = at
        at = (at + 1) & mask
    table[hole] = 0
