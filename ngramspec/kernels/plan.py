"""One plan for a batch of drafts: how many tokens of each row the engine verifies.

A draft's tokens come in falling path probability, so that the first k of a row are its best subtree or chain of k
tokens, and the best m tokens of a batch are the first m of all rows merged. A plan therefore only shortens rows, and
trying every m is exact whatever shape the step times have. Sums are integers (30 fractional bits); times are compared
by one product each, so that every machine plans alike. Equal values keep fewer tokens; equal tokens go by depth in the
draft, then by row. Where a row does not fall, its plan is still a valid draft, but a better one may exist.
"""

from .._jit import inline, kernel
from ..draft import MAX_SIDE, Reason

BUDGET = int(Reason.BUDGET)


@inline
def keep(row, k, n_draft, reason):
    """Shorten a row to `k` tokens at most."""
    if n_draft[row] > k:
        n_draft[row] = k
        if k == 0:
            reason[row] = BUDGET


@inline
def leading(row, path_q30, n, min_q30):
    """Tokens before the first of a row's first `n` whose path probability is below `min_q30`."""
    k = 0
    while k < n and path_q30[row, k] >= min_q30:
        k += 1
    return k


@inline
def total_q30(n, path_q30, n_draft):
    """Sum of the path probabilities that `n` rows hold."""
    total = 0
    for row in range(n):
        for j in range(n_draft[row]):
            total += int(path_q30[row, j])
    return total


@kernel
def plan_rows(n, path_q30, max_draft, min_q30, n_draft, reason):
    """Keep of each row the first `max_draft` tokens down to `min_q30`; returns (longest row, tokens, sum of paths)."""
    longest = 0
    tokens = 0
    for row in range(n):
        k = leading(row, path_q30, min(n_draft[row], max_draft), min_q30)
        keep(row, k, n_draft, reason)
        longest = max(longest, k)
        tokens += k
    return longest, tokens, total_q30(n, path_q30, n_draft)


@kernel
def plan_width(n, path_q30, widths, min_q30, n_draft, reason):
    """Fill the narrowest of `widths` (ascending) that holds every row down to `min_q30`, the widest where none does.

    Returns (width, sum of paths). Padding is paid for, so that rows keep what fits, below `min_q30` too.
    """
    longest = 0
    for row in range(n):
        longest = max(longest, leading(row, path_q30, n_draft[row], min_q30))
    w = 0
    while w + 1 < len(widths) and widths[w] < longest:
        w += 1
    width = int(widths[w])
    for row in range(n):
        keep(row, width, n_draft, reason)
    return width, total_q30(n, path_q30, n_draft)


@kernel
def plan_fastest_width(n, path_q30, widths, times, n_draft, reason):
    """Fill that of `widths` (ascending) which emits most a second; `times[w]` is a step's at width w.

    Returns (width, sum of paths).
    """
    expected = n << 30
    depth = 0
    best = 0
    best_expected = 0
    for w in range(len(widths)):
        width = int(widths[w])
        for row in range(n):
            for j in range(depth, min(width, n_draft[row])):
                expected += int(path_q30[row, j])
        depth = width
        if best_expected == 0 or expected * times[best] > best_expected * times[width]:
            best, best_expected = width, expected
    for row in range(n):
        keep(row, best, n_draft, reason)
    return best, best_expected - (n << 30)


@inline
def merge_key(row, j, path_q30):
    """A number that is larger for a token that goes earlier; `row_of` reads its row back."""
    return int(path_q30[row, j]) << 32 | (MAX_SIDE - 1 - j) << 16 | (MAX_SIDE - 1 - row)


@inline
def row_of(key):
    """Row of a `merge_key`."""
    return MAX_SIDE - 1 - (key & (MAX_SIDE - 1))


@inline
def sink(heap, size, hole, key):
    """Put `key` at `hole` of a heap of `size` keys, largest first, or below it."""
    while 2 * hole + 1 < size:
        child = 2 * hole + 1
        if child + 1 < size and heap[child + 1] > heap[child]:
            child += 1
        if heap[child] <= key:
            break
        heap[hole] = heap[child]
        hole = child
    heap[hole] = key


@kernel
def plan_tokens(n, path_q30, max_draft, times, heap, taken, order, n_draft, reason):
    """Keep the tokens that emit most a second; `times[m]` is a step's with m drafted tokens in the batch.

    Returns (longest row, tokens, sum of paths). Scratch: `heap int64[n]`, `taken int32[n]`, `order int32[tokens]`.
    """
    size = 0
    for row in range(n):
        taken[row] = 0
        if min(n_draft[row], max_draft) > 0:
            heap[size] = merge_key(row, 0, path_q30)
            size += 1
    for hole in range(size // 2 - 1, -1, -1):
        sink(heap, size, hole, heap[hole])
    expected = n << 30
    best, best_expected = 0, expected
    m = 0
    while size > 0:
        row = row_of(heap[0])
        j = int(taken[row])
        order[m] = row
        taken[row] = j + 1
        m += 1
        expected += int(path_q30[row, j])
        if expected * times[best] > best_expected * times[m]:
            best, best_expected = m, expected
        if j + 1 < min(n_draft[row], max_draft):
            sink(heap, size, 0, merge_key(row, j + 1, path_q30))
        else:
            size -= 1
            if size > 0:
                sink(heap, size, 0, heap[size])
    for i in range(best, m):
        taken[order[i]] -= 1
    longest = 0
    for row in range(n):
        keep(row, taken[row], n_draft, reason)
        longest = max(longest, int(taken[row]))
    return longest, best, best_expected - (n << 30)
