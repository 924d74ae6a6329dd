"""A suffix tree that counts: every substring of at most `depth` tokens and how often it was seen.

Edges are compressed: a node stands for the longest run of tokens that was always seen together. Children lie
in a list by falling count. Among equals the order is that of the released suffix cache, since its drafts
follow it: a new child is the last of its equals; one that rises from the midst of its equals becomes the
last of the next group, one that was the first of them becomes the first of the next. A group record per
count finds the first in one step.

Views: `meta int64[5]`; `nodes int32[n, 10]`, node 0 the root, 0 also "none"; `groups int32[n, 2]`; `table
int32[2**k]` of child nodes by (parent, first token), open addressing; `text int32[...]`, where a label lies
in one piece; `live int32[1 + depth]` of a growing sequence: how many suffixes, and the nodes they end at,
the longest first.
"""

import numpy as np

from .._jit import kernel
from .children import PARENT, TOKEN, find, table_drop, table_put
from .heap import pop, push

N_NODES, FREE_NODE, N_GROUPS, FREE_GROUP, N_TABLE = range(5)
N_META = 5

COUNT, LENGTH, REF, FIRST, LAST, NEXT, PREV, GROUP = range(2, 10)
N_FIELDS = 10

HEAD, SIZE = range(2)

N_LIVE, LIVE0 = range(2)

MAX_CHILDREN = 64


@kernel
def rehash(meta, nodes, table):
    """Enter every node anew into an empty table."""
    for child in range(1, meta[N_NODES]):
        if nodes[child, COUNT]:
            table_put(nodes, table, child)


@kernel
def new_node(meta, nodes, count, token, length, ref, parent):
    """A node without children or place among siblings."""
    node = meta[FREE_NODE]
    if node:
        meta[FREE_NODE] = nodes[node, NEXT]
    else:
        node = meta[N_NODES]
        meta[N_NODES] += 1
    nodes[node, :] = 0
    nodes[node, COUNT], nodes[node, TOKEN], nodes[node, LENGTH] = count, token, length
    nodes[node, REF], nodes[node, PARENT] = ref, parent
    return node


@kernel
def free_node(meta, nodes, node):
    """Give a node back; its count of 0 marks it."""
    nodes[node, :] = 0
    nodes[node, NEXT] = meta[FREE_NODE]
    meta[FREE_NODE] = node


@kernel
def new_group(meta, nodes, groups, node):
    """A group of which `node` is the only member."""
    group = meta[FREE_GROUP]
    if group:
        meta[FREE_GROUP] = groups[group, HEAD]
    else:
        group = meta[N_GROUPS]
        meta[N_GROUPS] += 1
    groups[group, HEAD], groups[group, SIZE] = node, 1
    nodes[node, GROUP] = group


@kernel
def leave_group(meta, nodes, groups, node):
    """Take `node` out of its group; its siblings are still linked."""
    group = nodes[node, GROUP]
    groups[group, SIZE] -= 1
    if groups[group, SIZE] == 0:
        groups[group, HEAD] = meta[FREE_GROUP]
        meta[FREE_GROUP] = group
    elif groups[group, HEAD] == node:
        groups[group, HEAD] = nodes[node, NEXT]


@kernel
def append_child(meta, nodes, groups, parent, child):
    """Link a child of count 1 behind all others."""
    last = nodes[parent, LAST]
    nodes[parent, LAST] = child
    nodes[child, PREV] = last
    if last == 0:
        nodes[parent, FIRST] = child
        new_group(meta, nodes, groups, child)
        return
    nodes[last, NEXT] = child
    if nodes[last, COUNT] == nodes[child, COUNT]:
        nodes[child, GROUP] = nodes[last, GROUP]
        groups[nodes[last, GROUP], SIZE] += 1
    else:
        new_group(meta, nodes, groups, child)


@kernel
def replace_child(nodes, groups, old, new):
    """Put `new` where `old` is among its siblings."""
    parent, before, after, group = nodes[old, PARENT], nodes[old, PREV], nodes[old, NEXT], nodes[old, GROUP]
    nodes[new, PREV], nodes[new, NEXT], nodes[new, GROUP] = before, after, group
    if before:
        nodes[before, NEXT] = new
    else:
        nodes[parent, FIRST] = new
    if after:
        nodes[after, PREV] = new
    else:
        nodes[parent, LAST] = new
    if groups[group, HEAD] == old:
        groups[group, HEAD] = new


@kernel
def increment(meta, nodes, groups, node):
    """Count a node once more and move it up among its siblings."""
    before = nodes[node, PREV]
    if before == 0 or nodes[before, COUNT] > nodes[node, COUNT] + 1:
        leave_group(meta, nodes, groups, node)
        new_group(meta, nodes, groups, node)
        nodes[node, COUNT] += 1
        return
    group = nodes[before, GROUP]
    head = groups[group, HEAD]
    leave_group(meta, nodes, groups, node)
    after = nodes[node, NEXT]
    nodes[before, NEXT] = after
    if after:
        nodes[after, PREV] = before
    else:
        nodes[nodes[node, PARENT], LAST] = before
    nodes[node, COUNT] += 1
    ahead = nodes[head, PREV]
    nodes[node, PREV], nodes[node, NEXT], nodes[head, PREV] = ahead, head, node
    if ahead:
        nodes[ahead, NEXT] = node
    else:
        nodes[nodes[node, PARENT], FIRST] = node
    if ahead and nodes[ahead, COUNT] == nodes[node, COUNT]:
        nodes[node, GROUP] = nodes[ahead, GROUP]
        groups[nodes[ahead, GROUP], SIZE] += 1
    elif nodes[head, COUNT] == nodes[node, COUNT]:
        nodes[node, GROUP] = group
        groups[group, SIZE] += 1
        groups[group, HEAD] = node
    else:
        new_group(meta, nodes, groups, node)


@kernel
def advance(meta, nodes, groups, table, text, node, token, position):
    """One suffix, which ends at `node`, takes in the token at `position`; returns where it ends now."""
    child = find(nodes, table, node, token)
    if child == 0:
        if node and nodes[node, COUNT] == 1:  # nobody else was ever here: the label grows
            nodes[node, LENGTH] += 1
            nodes[node, REF] = position + 1 - nodes[node, LENGTH]
            return node
        child = new_node(meta, nodes, 1, token, 1, position, node)
        append_child(meta, nodes, groups, node, child)
        table_put(nodes, table, child)
        return child
    if node and nodes[node, COUNT] == nodes[child, COUNT] + 1:  # all others went on to this only child
        table_drop(nodes, table, child)
        length = nodes[node, LENGTH] + 1
        if nodes[child, LENGTH] == 1:  # now as long as the child: they are one
            leave_group(meta, nodes, groups, child)
            nodes[child, COUNT] += 1
            nodes[child, TOKEN], nodes[child, LENGTH] = nodes[node, TOKEN], length
            nodes[child, REF], nodes[child, PARENT] = position + 1 - length, nodes[node, PARENT]
            replace_child(nodes, groups, node, child)
            table_put(nodes, table, child)
            free_node(meta, nodes, node)
            return child
        nodes[node, LENGTH], nodes[node, REF] = length, position + 1 - length
        shorten(nodes, table, text, child, node)
        return node
    if nodes[child, LENGTH] > 1:  # end inside its label: a node of one token comes between
        between = new_node(meta, nodes, nodes[child, COUNT], token, 1, position, node)
        replace_child(nodes, groups, child, between)
        table_put(nodes, table, between)
        shorten(nodes, table, text, child, between)
        nodes[child, NEXT], nodes[child, PREV] = 0, 0
        nodes[between, FIRST], nodes[between, LAST] = child, child
        new_group(meta, nodes, groups, child)
        child = between
    increment(meta, nodes, groups, child)
    return child


@kernel
def shorten(nodes, table, text, child, parent):
    """Take the first token off the label of a child without table entry, and enter it under `parent`."""
    nodes[child, LENGTH] -= 1
    nodes[child, REF] += 1
    nodes[child, TOKEN] = text[nodes[child, REF]]
    nodes[child, PARENT] = parent
    table_put(nodes, table, child)


@kernel
def extend(meta, nodes, groups, table, text, live, start, end):
    """Append `text[start:end]` to a sequence; returns where it stopped: earlier where nodes may run out."""
    depth = len(live) - LIVE0
    for position in range(start, end):
        if meta[N_NODES] + depth > len(nodes) or meta[N_GROUPS] + depth > len(groups):
            return position
        n = int(live[N_LIVE])
        if n == depth:
            for i in range(n - 1):
                live[LIVE0 + i] = live[LIVE0 + i + 1]
            n -= 1
        live[LIVE0 + n] = 0
        live[N_LIVE] = n + 1
        nodes[0, COUNT] += 1
        token = int(text[position])
        for i in range(n + 1):
            live[LIVE0 + i] = advance(meta, nodes, groups, table, text, int(live[LIVE0 + i]), token, position)
    return end


@kernel
def match(nodes, table, text, context):
    """Node in which the walk along `context` ends, and how far inside its label; (0, 0) where it fails."""
    node, inside = 0, 0
    for token in context:
        if inside >= nodes[node, LENGTH]:
            node, inside = find(nodes, table, node, int(token)), 1
            if node == 0:
                return 0, 0
        elif text[nodes[node, REF] + inside] != token:
            return 0, 0
        else:
            inside += 1
    return node, inside


@kernel
def grow_chain(nodes, text, node, inside, width, min_prob, tokens, parents, probs):
    """Draft the most frequent child again and again; returns the length and the sum of path probabilities."""
    prob, score = np.float32(1.0), np.float32(0.0)
    n = 0
    while n < width and prob >= min_prob:
        if inside < nodes[node, LENGTH]:
            tokens[n], parents[n], probs[n] = text[nodes[node, REF] + inside], n - 1, prob
            score += prob
            n += 1
            inside += 1
        else:
            child = nodes[node, FIRST]
            if child == 0:
                break
            prob *= np.float32(nodes[child, COUNT]) / np.float32(nodes[node, COUNT])
            node, inside = child, 0
    return n, score


@kernel
def grow_tree(nodes, text, node, inside, width, min_prob, tokens, parents, probs, heap, heap_prob):
    """Draft best first by path probability; returns the number of tokens and the sum of path probabilities.

    Equal probabilities leave the heap in the order that the common binary heap of C++ libraries gives them.
    `MAX_CHILDREN` of a node enter it; there are no more where `min_prob` is at least 1 / MAX_CHILDREN.
    """
    score = np.float32(0.0)
    n = 0
    size = push(heap, heap_prob, 0, np.float32(1.0), node, inside, -1)
    while n < width and size:
        prob, node, inside, parent = heap_prob[0], heap[0, 0], heap[0, 1], heap[0, 2]
        size = pop(heap, heap_prob, size)
        if inside < nodes[node, LENGTH]:
            tokens[n], parents[n], probs[n] = text[nodes[node, REF] + inside], parent, prob
            score += prob
            size = push(heap, heap_prob, size, prob, node, inside + 1, n)
            n += 1
            continue
        child = nodes[node, FIRST]
        for _ in range(MAX_CHILDREN):
            if child == 0:
                break
            given = prob * np.float32(nodes[child, COUNT]) / np.float32(nodes[node, COUNT])
            if given < min_prob:
                break
            size = push(heap, heap_prob, size, given, child, 0, parent)
            child = nodes[child, NEXT]
    return n, score


@kernel
def propose(
    nodes, table, text, context, width, factor, offset, min_prob, tree, heap, heap_prob, out, probs, trial, trial_probs
):
    """Draft from the match, of all lengths, whose draft has the largest sum of path probabilities.

    A match of L tokens may draft at most factor * L + offset. Ties go to the longer match; the whole context
    is never matched. `out int32[2, width]` (tokens, parents) and `probs float32[width]` receive the draft,
    `trial` and `trial_probs` each attempt. Returns the number of tokens, L, and the sum.
    """
    best_n, best_match, best_score = 0, 0, np.float32(0.0)
    for length in range(1, len(context)):
        node, inside = match(nodes, table, text, context[len(context) - length :])
        if node == 0:
            break
        most = min(width, int(np.float64(np.float32(length) * factor + offset) + 1e-6))
        if tree:
            n, score = grow_tree(
                nodes, text, node, inside, most, min_prob, trial[0], trial[1], trial_probs, heap, heap_prob
            )
        else:
            n, score = grow_chain(nodes, text, node, inside, most, min_prob, trial[0], trial[1], trial_probs)
        if score >= best_score:
            best_n, best_match, best_score = n, length, score
            for i in range(n):
                out[0, i], out[1, i], probs[i] = trial[0, i], trial[1, i], trial_probs[i]
    return best_n, best_match, best_score
