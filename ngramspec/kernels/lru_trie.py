"""A trie with a fixed number of nodes, the least recently used given up first, as SGLang keeps its n-grams.

Children lie in a list, the last used first; all nodes lie in one list too, a parent ahead of its children,
so that the last of it is a leaf. Views: `meta int64[5]`; `nodes int32[n, 9]`, node 0 the root, 0 also
"none"; `table int32[2**k]` as in `children.py`. A node's version rises when it is given up, so that a
remembered node is known to be another.

A request's anchors, `anchors int32[depth, 2]` (node, version) and `memo int64[2]` (tokens seen, anchors),
are where its last 1, 2, ... tokens end in the trie. They are walked on token by token: one that was missing
stays missing although its tokens may have been inserted since, as in the original.
"""

from .._jit import kernel
from .children import PARENT, TOKEN, find, table_drop, table_put
from .heap import pop, push

N_NODES, FREE, N_USED, NEWEST, OLDEST = range(5)
N_META = 5

FREQ, VERSION, FIRST, NEXT, PREV, OLDER, NEWER = range(2, 9)
N_FIELDS = 9

SEEN, N_ANCHORS = range(2)


@kernel
def take_node(meta, nodes):
    """A node that nothing links to."""
    node = meta[FREE]
    if node:
        meta[FREE] = nodes[node, NEXT]
    else:
        node = meta[N_NODES]
        meta[N_NODES] += 1
    meta[N_USED] += 1
    return node


@kernel
def leave_age(meta, nodes, node):
    """Take a node out of the list by age."""
    older, newer = nodes[node, OLDER], nodes[node, NEWER]
    if older:
        nodes[older, NEWER] = newer
    else:
        meta[OLDEST] = newer
    if newer:
        nodes[newer, OLDER] = older
    else:
        meta[NEWEST] = older


@kernel
def become_newest(meta, nodes, node):
    """Put a node at the young end of the list by age."""
    last = meta[NEWEST]
    nodes[node, OLDER], nodes[node, NEWER] = last, 0
    if last:
        nodes[last, NEWER] = node
    else:
        meta[OLDEST] = node
    meta[NEWEST] = node


@kernel
def leave_siblings(nodes, node):
    """Take a node out of its parent's list."""
    before, after = nodes[node, PREV], nodes[node, NEXT]
    if before:
        nodes[before, NEXT] = after
    else:
        nodes[nodes[node, PARENT], FIRST] = after
    if after:
        nodes[after, PREV] = before


@kernel
def become_first(nodes, node):
    """Put a node at the front of its parent's list."""
    parent = nodes[node, PARENT]
    after = nodes[parent, FIRST]
    nodes[node, PREV], nodes[node, NEXT] = 0, after
    if after:
        nodes[after, PREV] = node
    nodes[parent, FIRST] = node


@kernel
def give_up_oldest(meta, nodes, table):
    """Free the least recently used node, a leaf."""
    node = meta[OLDEST]
    leave_age(meta, nodes, node)
    leave_siblings(nodes, node)
    table_drop(nodes, table, node)
    version = nodes[node, VERSION]
    nodes[node, :] = 0
    nodes[node, VERSION] = version + 1
    nodes[node, NEXT] = meta[FREE]
    meta[FREE] = node
    meta[N_USED] -= 1


@kernel
def insert(meta, nodes, table, tokens, depth, path):
    """Insert every run of at most `depth` tokens that starts in `tokens`; `path int32[depth]` is scratch."""
    for start in range(len(tokens)):
        n = min(len(tokens) - start, depth)
        while len(nodes) - meta[N_USED] < n:
            give_up_oldest(meta, nodes, table)
        node = 0
        for i in range(n):
            token = int(tokens[start + i])
            child = find(nodes, table, node, token)
            if child:
                leave_siblings(nodes, child)
                leave_age(meta, nodes, child)
            else:
                child = take_node(meta, nodes)
                nodes[child, TOKEN], nodes[child, PARENT], nodes[child, FIRST] = token, node, 0
                nodes[child, FREQ] = 0
                table_put(nodes, table, child)
            nodes[child, FREQ] += 1
            become_first(nodes, child)
            path[i] = child
            node = child
        for i in range(n - 1, -1, -1):
            become_newest(meta, nodes, path[i])


@kernel
def walk(nodes, table, tokens):
    """Node at the end of `tokens` from the root, 0 where there is none."""
    node = 0
    for token in tokens:
        node = find(nodes, table, node, int(token))
        if node == 0:
            break
    return node


@kernel
def remember(nodes, anchors, d, node):
    """Make `node` the anchor of the last d + 1 tokens."""
    anchors[d, 0], anchors[d, 1] = node, nodes[node, VERSION]


@kernel
def move_anchors(nodes, table, context, total, anchors, memo):
    """Bring a request's anchors to the end of its text, `total` tokens that end in `context`."""
    depth = len(anchors)
    n = memo[N_ANCHORS]
    new = total - memo[SEEN]
    valid = 0 <= new <= len(context) and n == min(memo[SEEN], depth)
    for d in range(n):
        valid = valid and (anchors[d, 0] == 0 or nodes[anchors[d, 0], VERSION] == anchors[d, 1])
    memo[SEEN] = total
    if not valid:
        n = min(len(context), depth)
        for d in range(n):
            remember(nodes, anchors, d, walk(nodes, table, context[len(context) - d - 1 :]))
        memo[N_ANCHORS] = n
        return
    for i in range(len(context) - new, len(context)):
        token = int(context[i])
        n = min(n + 1, depth)
        for d in range(n - 1, 0, -1):
            before = anchors[d - 1, 0]
            remember(nodes, anchors, d, find(nodes, table, before, token) if before else 0)
        remember(nodes, anchors, 0, find(nodes, table, 0, token))
    memo[N_ANCHORS] = n


@kernel
def place(n, parent, token, tokens, parents):
    """Where `token` stands below `parent` in a draft of `n` tokens, `n` where it does not."""
    for i in range(n):
        if parents[i] == parent and tokens[i] == token:
            return i
    tokens[n], parents[n] = token, parent
    return n


@kernel
def grow_recent(nodes, anchors, n_anchors, width, low, high, tokens, parents, queue, breadths):
    """Draft breadth first below the anchors, the longest first, the last used children first.

    How many children a node may have falls evenly with its depth, from `high` at the root to `low`. `queue
    int32[width + 1, 2]` and `breadths float64[width + 1]` are scratch: tokens below one anchor stand at
    different places of the draft. Returns the number of tokens and the length of the longest anchor.
    """
    steps = max(1, len(anchors) - 1)
    scale = (high - low) / steps
    n, longest = 0, 0
    for d in range(n_anchors, 0, -1):
        if anchors[d - 1, 0] == 0 or nodes[anchors[d - 1, 0], FIRST] == 0:
            continue
        longest = max(longest, d)
        queue[0, 0], queue[0, 1], breadths[0] = -1, anchors[d - 1, 0], (steps - d) * scale + low
        first, last = 0, 1
        while first < last and n < width:
            parent, node, breadth = queue[first, 0], queue[first, 1], breadths[first]
            first += 1
            child = nodes[node, FIRST]
            for _ in range(max(1, int(breadth))):
                if child == 0 or n >= width:
                    break
                at = place(n, parent, nodes[child, TOKEN], tokens, parents)
                n = max(n, at + 1)
                queue[last, 0], queue[last, 1], breadths[last] = at, child, breadth - scale
                last += 1
                child = nodes[child, NEXT]
    return n, longest


@kernel
def push_frequent(nodes, node, parent, prob, high, top, heap, heap_prob, size):
    """Push the `high` most frequent children, lower ids first among equals; `top int32[high]` is scratch."""
    kept, total = 0, 0.0
    child = nodes[node, FIRST]
    while child:
        i = min(kept, high - 1)
        if kept < high or more_frequent(nodes, child, top[i]):
            while i > 0 and more_frequent(nodes, child, top[i - 1]):
                top[i] = top[i - 1]
                i -= 1
            top[i] = child
            kept = min(kept + 1, high)
        child = nodes[child, NEXT]
    for i in range(kept):
        total += nodes[top[i], FREQ]
    for i in range(kept):
        size = push(heap, heap_prob, size, nodes[top[i], FREQ] / total * prob, top[i], parent, 0)
    return size


@kernel
def more_frequent(nodes, a, b):
    """Whether child `a` is more frequent than `b`, or as frequent with a lower id."""
    return nodes[a, FREQ] > nodes[b, FREQ] or (nodes[a, FREQ] == nodes[b, FREQ] and nodes[a, TOKEN] < nodes[b, TOKEN])


@kernel
def grow_frequent(nodes, anchors, n_anchors, width, high, tokens, parents, top, heap, heap_prob):
    """Draft best first below the anchors, the longest first, by frequency among the `high` best children.

    `heap int32[(width + 1) * high, 3]`, `heap_prob float64[...]` are scratch. Returns as `grow_recent`.
    """
    n, longest, size = 0, 0, 0
    for d in range(n_anchors, 0, -1):
        anchor = anchors[d - 1, 0]
        if anchor == 0 or nodes[anchor, FIRST] == 0:
            continue
        longest = max(longest, d)
        size = push_frequent(nodes, anchor, -1, 1.0, high, top, heap, heap_prob, size)
        while size and n < width:
            prob, node, parent = heap_prob[0], heap[0, 0], heap[0, 1]
            size = pop(heap, heap_prob, size)
            at = place(n, parent, nodes[node, TOKEN], tokens, parents)
            n = max(n, at + 1)
            size = push_frequent(nodes, node, at, prob, high, top, heap, heap_prob, size)
        if n >= width:
            break
    return n, longest
