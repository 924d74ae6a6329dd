"""Best-first growth of a draft by path probability.

For a drafter whose tokens are accepted only where they equal the target's, siblings exclude each other, so the expected
number of accepted tokens is the sum of path probabilities over the nodes; taking the most probable open node next is
therefore optimal for every budget at once. `t` is scratch int32[TREE_ROWS, width + 1]; node 0 is the last committed token.
"""

from .._jit import kernel

# Rows of the tree scratch: nodes in the order drafted, and open nodes by falling path probability.
N_TOKEN, N_PARENT, N_DEPTH, N_PATH, N_LIST, N_SOURCE, O_TOKEN, O_PARENT, O_PATH, O_LIST, O_SOURCE = range(11)
TREE_ROWS = 11


@kernel
def plant(t, candidates):
    """Start a tree: node 0, probability 1, its candidate list. Returns the number of open nodes, 0."""
    t[N_TOKEN, 0], t[N_PARENT, 0], t[N_DEPTH, 0] = 0, -1, 0
    t[N_PATH, 0], t[N_LIST, 0] = 1 << 30, candidates
    return 0


@kernel
def offer(t, n_open, room, token, parent, path, candidates, source):
    """Put a node among the open ones if it is among the `room` most probable; ties keep the earlier first.

    Returns the new number of open nodes. Only the `room` best can still be drafted, so dropping the rest is exact.
    """
    if n_open >= room and (room == 0 or t[O_PATH, n_open - 1] >= path):
        return n_open
    if n_open < room:
        n_open += 1
    i = n_open - 1
    while i > 0 and t[O_PATH, i - 1] < path:
        for row in range(O_TOKEN, O_SOURCE + 1):
            t[row, i] = t[row, i - 1]
        i -= 1
    t[O_TOKEN, i], t[O_PARENT, i], t[O_PATH, i] = token, parent, path
    t[O_LIST, i], t[O_SOURCE, i] = candidates, source
    return n_open


@kernel
def draft_best(t, n_open, node):
    """Draft the most probable open node as number `node`; returns the new number of open nodes."""
    parent = t[O_PARENT, 0]
    t[N_TOKEN, node], t[N_PARENT, node], t[N_PATH, node] = t[O_TOKEN, 0], parent, t[O_PATH, 0]
    t[N_LIST, node], t[N_SOURCE, node] = t[O_LIST, 0], t[O_SOURCE, 0]
    t[N_DEPTH, node] = t[N_DEPTH, parent] + 1
    for i in range(n_open - 1):
        for row in range(O_TOKEN, O_SOURCE + 1):
            t[row, i] = t[row, i + 1]
    return n_open - 1


@kernel
def path_value(t, node, depth):
    """Token + 1 at `depth` on the path to `node` (`depth` from 1 to the node's)."""
    for _ in range(t[N_DEPTH, node] - depth):
        node = t[N_PARENT, node]
    return int(t[N_TOKEN, node])


@kernel
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
