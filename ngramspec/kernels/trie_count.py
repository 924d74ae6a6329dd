"""Counting a token behind every context at once, taking it back, and finding where a text ends.

Suffix links carry both: where a token is known behind a context, it is known behind all shorter ones, and its nodes
there are its suffixes. So text seen before costs one search of the edge table a token, whatever the depth.
"""

from .._jit import inline, kernel, unsigned
from ..arena import C_COUNT, C_NEWER, C_SUFFIX, C_TOKEN, C_USE, X_DEPTH
from .trie import MAX_COUNT, at, find, hold, new_child, remove, to_front, unlist


@kernel
def count_token(x, m, node, length, token, add):
    """Count `token` behind a context of `length` tokens, which ends at `node`, and behind each of its suffixes.

    With `add` 0 nodes are made but nothing is counted. Returns the longest context that ends in `token` and its length.
    """
    depth = x[X_DEPTH]
    if not add and length == depth - 1:
        node, length = int(m[unsigned(at(x, node) + C_SUFFIX)]), length - 1
    top, top_length, longer, made, found = 0, 0, 0, False, False
    while True:
        n = at(x, node)
        if found:
            child = int(m[unsigned(at(x, longer) + C_SUFFIX)])
        else:
            child = find(x, m, node, token)
            found = child > 0
            fresh = not found
            if fresh:
                child = new_child(x, m, node, longer, token, -1 - child)
            if made:
                m[unsigned(at(x, longer) + C_SUFFIX)] = child
                m[unsigned(at(x, child) + C_USE)] += 2
            made = fresh
        c = at(x, child)
        if add:
            count = int(m[unsigned(c + C_COUNT)])
            if count == 0:
                to_front(x, m, node, child)
            else:
                m[unsigned(c + C_USE)] |= 1
                if length > 0 and m[unsigned(c + C_NEWER)]:
                    unlist(x, m, child)
                    to_front(x, m, node, child)
            if count < MAX_COUNT:
                m[unsigned(c + C_COUNT)] = count + 1
        if top == 0 and length + 1 < depth:
            top, top_length = child, length + 1
            hold(x, m, top, 2)
        longer = child
        if length == 0:
            break
        node, length = int(m[unsigned(n + C_SUFFIX)]), length - 1
    if made:
        m[unsigned(at(x, longer) + C_SUFFIX)] = node
        m[unsigned(n + C_USE)] += 2
    if add and m[unsigned(n + C_COUNT)] < MAX_COUNT:
        m[unsigned(n + C_COUNT)] += 1
    hold(x, m, top, -2)
    return top, top_length


@kernel
def uncount_token(x, m, node, length, token):
    """Take back one count of `token` behind a context and each of its suffixes, as far as they are still counted."""
    child = find(x, m, node, token)
    while child < 0 and length > 0:
        node, length = int(m[at(x, node) + C_SUFFIX]), length - 1
        child = find(x, m, node, token)
    if child < 0:
        return
    while child:  # down to the root, whose suffix is none
        c = at(x, child)
        shorter = int(m[c + C_SUFFIX])
        hold(x, m, shorter, 2)
        count = int(m[c + C_COUNT])
        if count:
            m[c + C_COUNT] = count - 1
        if count == 1 and m[c + C_TOKEN] > 0:
            unlist(x, m, child)
        if count <= 1 and m[c + C_USE] < 2:
            remove(x, m, child)
        hold(x, m, shorter, -2)
        child = shorter


@inline
def step(x, m, node, length, token):
    """The longest context that ends in `token`, when `node` of `length` tokens is the longest one before it."""
    if length == x[X_DEPTH] - 1:
        node, length = int(m[unsigned(at(x, node) + C_SUFFIX)]), length - 1
    while True:
        child = find(x, m, node, token)
        if child > 0:
            return child, length + 1
        if length == 0:
            return node, 0
        node, length = int(m[unsigned(at(x, node) + C_SUFFIX)]), length - 1


@kernel
def walk(x, m, root, context, n_context):
    """The longest context that ends as `context` does (tokens + 1, newest first), walked from the root; its length."""
    node, length = root, 0
    for i in range(n_context - 1, -1, -1):
        node, length = step(x, m, node, length, int(context[i]))
    return node, length
