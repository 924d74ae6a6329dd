"""Look up a context in a sorted array of suffixes, and grow the most frequent continuations.

`text int32[n]` ends every document with a negative number that occurs once; `order int32[n]` holds the
positions of its suffixes, sorted by at least as many tokens as a match and a draft have together. Suffixes
that begin alike are neighbours: a node of the tree of continuations is a span of `order`.
"""

from .._jit import kernel
from .heap import pop, push


@kernel
def compare(text, position, context):
    """Sign of the suffix at `position` against `context`; 0 where it begins with it."""
    for i in range(len(context)):
        if position + i >= len(text) or text[position + i] < context[i]:
            return -1
        if text[position + i] > context[i]:
            return 1
    return 0


@kernel
def bound(text, order, context, least):
    """First place in `order` whose suffix compares to `context` with `least` or more."""
    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        if compare(text, order[middle], context) < least:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def longest_span(text, order, context, least):
    """Span of the suffixes that begin with the longest possible end of `context`, `least` tokens or more.

    Returns (first, last + 1, length); an empty span where there is none.
    """
    for n in range(len(context), least - 1, -1):
        end = context[len(context) - n :]
        low = bound(text, order, end, 0)
        if low < len(order) and compare(text, order[low], end) == 0:
            return low, bound(text, order, end, 1), n
    return 0, 0, 0


@kernel
def grow(text, order, low, high, n_match, width, depth, tokens, parents, counts, depths, heap, keys):
    """Draft the `width` most frequent beginnings of what follows the match; returns how many.

    `heap int32[(high - low) * depth, 3]` (span and parent) and `keys float64[...]` are scratch, `depths
    int32[width]` too.
    """
    size = push_spans(text, order, low, high, n_match, -1, heap, keys, 0)
    n = 0
    while size and n < width:
        low, high, parent = heap[0, 0], heap[0, 1], heap[0, 2]
        size = pop(heap, keys, size)
        above = depths[parent] if parent >= 0 else 0
        tokens[n], parents[n] = text[order[low] + n_match + above], parent
        counts[n], depths[n] = high - low, above + 1
        if depths[n] < depth:
            size = push_spans(text, order, low, high, n_match + depths[n], n, heap, keys, size)
        n += 1
    return n


@kernel
def push_spans(text, order, low, high, offset, parent, heap, keys, size):
    """Push each run of suffixes in [low, high) that have the same token at `offset`; returns the heap's new size."""
    first = low
    while first < high:
        token = text[order[first] + offset] if order[first] + offset < len(text) else -1
        last = first + 1
        while last < high and order[last] + offset < len(text) and text[order[last] + offset] == token:
            last += 1
        if token >= 0:
            size = push(heap, keys, size, float(last - first), first, last, parent)
        first = last
    return size
