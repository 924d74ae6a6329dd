"""A binary heap of (probability, three ints), largest first; equals come as in common C++ libraries.

Released drafters keep their frontier in such a heap, and which of two equally probable tokens comes first
decides what a narrow draft holds.
"""

from .._jit import inline, kernel


@kernel
def push(heap, heap_prob, size, prob, node, inside, parent):
    """Add an item to a binary heap, largest first; returns its new size."""
    settle(heap, heap_prob, size, 0, prob, node, inside, parent)
    return size + 1


@inline
def move(heap, heap_prob, source, target):
    """Copy an item to another place."""
    for i in range(3):
        heap[target, i] = heap[source, i]
    heap_prob[target] = heap_prob[source]


@kernel
def settle(heap, heap_prob, hole, top, prob, node, inside, parent):
    """Put an item at `hole` or above, below the first that is not smaller."""
    while hole > top:
        above = (hole - 1) // 2
        if not heap_prob[above] < prob:
            break
        move(heap, heap_prob, above, hole)
        hole = above
    heap[hole, 0], heap[hole, 1], heap[hole, 2], heap_prob[hole] = node, inside, parent, prob


@kernel
def pop(heap, heap_prob, size):
    """Remove the first item: the hole sinks along larger children, and there the last item rises."""
    size -= 1
    hole = 0
    while 2 * hole + 2 < size:
        child = 2 * hole + 2
        if heap_prob[child] < heap_prob[child - 1]:
            child -= 1
        move(heap, heap_prob, child, hole)
        hole = child
    if 2 * hole + 1 < size and 2 * hole + 2 >= size:
        child = 2 * hole + 1
        move(heap, heap_prob, child, hole)
        hole = child
    settle(heap, heap_prob, hole, 0, heap_prob[size], heap[size, 0], heap[size, 1], heap[size, 2])
    return size
