"""Best-first growth of a draft by path probability.

For a drafter whose tokens are accepted only where they equal the target's, siblings exclude each other, so the
expected number of accepted tokens is the sum of path probabilities over the nodes; taking the most probable open node
next is therefore optimal for every budget at once. `t` is scratch int32[TREE_ROWS, width + 1]; node 0 is the last
committed token.
"""

from .._jit import inline, kernel

# Rows of the tree scratch: nodes in the order drafted; the open nodes' paths by rising probability and their slots,
# which are a permutation (those behind the open ones are free); and what each slot holds.
(N_TOKEN, N_PARENT, N_DEPTH, N_PATH, N_LIST, N_SOURCE, O_PATH, O_SLOT, O_TOKEN, O_PARENT, O_LIST, O_SOURCE) = range(12)
TREE_ROWS = 12


@kernel
def plant(t, candidates, width):
    """Start a tree of at most `width` nodes: node 0, probability 1, its candidate list. No node is open yet."""
    t[N_TOKEN, 0], t[N_PARENT, 0], t[N_DEPTH, 0] = 0, -1, 0
    t[N_PATH, 0], t[N_LIST, 0] = 1 << 30, candidates
    for i in range(width):
        t[O_SLOT, i] = i


@inline
def offer(t, n_open, room, token, parent, path, candidates, source):
    """Put a node among the open ones if it is among the `room` most probable; ties keep the earlier first.

    Returns the new number of open nodes. Only the `room` best can still be drafted, so dropping the rest is exact.
    """
    full = n_open >= room
    if full and (room == 0 or t[O_PATH, 0] >= path):
        return n_open
    slot = int(t[O_SLOT, 0 if full else n_open])
    t[O_TOKEN, slot], t[O_PARENT, slot], t[O_LIST, slot], t[O_SOURCE, slot] = token, parent, candidates, source
    if full:  # in the place of the least probable
        i = 0
        while i + 1 < n_open and t[O_PATH, i + 1] < path:
            t[O_PATH, i], t[O_SLOT, i] = t[O_PATH, i + 1], t[O_SLOT, i + 1]
            i += 1
    else:
        i = n_open
        n_open += 1
        while i > 0 and t[O_PATH, i - 1] >= path:
            t[O_PATH, i], t[O_SLOT, i] = t[O_PATH, i - 1], t[O_SLOT, i - 1]
            i -= 1
    t[O_PATH, i], t[O_SLOT, i] = path, slot
    return n_open


@inline
def draft_best(t, n_open, node):
    """Draft the most probable open node as number `node`; returns the new number of open nodes."""
    n_open -= 1
    slot = int(t[O_SLOT, n_open])
    parent = int(t[O_PARENT, slot])
    t[N_TOKEN, node], t[N_PARENT, node], t[N_PATH, node] = t[O_TOKEN, slot], parent, t[O_PATH, n_open]
    t[N_LIST, node], t[N_SOURCE, node] = t[O_LIST, slot], t[O_SOURCE, slot]
    t[N_DEPTH, node] = t[N_DEPTH, parent] + 1
    return n_open


@inline
def path_value(t, node, depth):
    """Token + 1 at `depth` on the path to `node` (`depth` from 1 to the node's)."""
    for _ in range(t[N_DEPTH, node] - depth):
        node = t[N_PARENT, node]
    return int(t[N_TOKEN, node])


@inline
def path_context(t, node, context, n_context, out):
    """Last tokens + 1 before and including `node`, newest first, into `out`; returns how many."""
    n = 0
    while n < len(out) and node > 0:
        out[n] = t[N_TOKEN, node]
        node = t[N_PARENT, node]
        n += 1
    i = 0
    while n < len(out) and i < n_context:
        out[n] = context[i]
        n += 1
        i += 1
    return n


@kernel
def hand_out(t, n, row, tokens, parents, path_q30, sources):
    """Copy `n` drafted nodes into row `row` of the caller's arrays."""
    for i in range(n):
        tokens[row, i] = t[N_TOKEN, i + 1] - 1
        parents[row, i] = t[N_PARENT, i + 1] - 1
        path_q30[row, i] = t[N_PATH, i + 1]
        sources[row, i] = t[N_SOURCE, i + 1]
