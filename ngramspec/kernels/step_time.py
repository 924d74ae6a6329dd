"""Step times by number of tokens, read off measured points.

`points float64[n, 4]` is sorted by batch, then KV tokens, then tokens. A time is interpolated linearly in each of the
three, one inside the other, so that a model that is linear in all of them is reproduced exactly. Below the first point
its time holds; beyond the last the last two go on in a straight line, which never falls; one point alone is constant.
"""

from .._jit import inline, kernel

BATCH, KV, N, MS = range(4)


@inline
def bracket(points, column, first, last, x):
    """Find the two groups of equal `column` in rows [first, last) between which `x` lies.

    Returns (low, high, end, weight): rows [low, high) and [high, end), and the second one's weight, above 1 beyond the
    last group. Where one group is the answer, the second is empty.
    """
    low = first
    while True:
        high = low + 1
        while high < last and points[high, column] == points[low, column]:
            high += 1
        if high == last or x <= points[low, column]:
            return low, high, high, 0.0
        end = high + 1
        while end < last and points[end, column] == points[high, column]:
            end += 1
        if x <= points[high, column] or end == last:
            return low, high, end, (x - points[low, column]) / (points[high, column] - points[low, column])
        low = high


@inline
def mix(a, b, weight):
    """Value on the line through `a` (weight 0) and `b` (weight 1); beyond `b` it never falls."""
    if weight < 1.0:
        return a + (b - a) * weight
    return b + max(b - a, 0.0) * (weight - 1.0)


@inline
def segment(points, at, last, n):
    """First row of the segment that holds `n` tokens on a curve that ends before row `last`, sought from row `at`."""
    while at + 2 < last and points[at + 1, N] < n:
        at += 1
    return at


@inline
def on_segment(points, at, last, n):
    """Time of `n` tokens on the segment that begins at row `at`."""
    if at + 1 == last or n <= points[at, N]:
        return points[at, MS]
    weight = (n - points[at, N]) / (points[at + 1, N] - points[at, N])
    return mix(points[at, MS], points[at + 1, MS], weight)


@kernel
def fill_curve(points, captured, batch, kv, first, stride, start, stop, extra, out):
    """Write the time of a step of `first + i * stride` tokens, plus `extra`, to `out[i]` for i in [start, stop).

    An uncaptured number of tokens costs what the next one in `captured` (ascending) costs. Tokens rise, so that four
    cursors (two batches by two KV lengths) go over the points once.
    """
    low, high, end, weight = bracket(points, BATCH, 0, len(points), batch)
    a, a_high, a_end, a_weight = bracket(points, KV, low, high, kv)
    b, b_high, b_end, b_weight = bracket(points, KV, high, end, kv) if high < end else (a, a_high, a_end, a_weight)
    a2, b2 = a_high, b_high
    c = 0
    before = -1
    for i in range(start, stop):
        n = first + i * stride
        while c < len(captured) and captured[c] < n:
            c += 1
        if c < len(captured):
            n = captured[c]
        if n == before:
            out[i] = out[i - 1]
            continue
        before = n
        a = segment(points, a, a_high, n)
        time = on_segment(points, a, a_high, n)
        if a_high < a_end:
            a2 = segment(points, a2, a_end, n)
            time = mix(time, on_segment(points, a2, a_end, n), a_weight)
        if high < end:
            b = segment(points, b, b_high, n)
            other = on_segment(points, b, b_high, n)
            if b_high < b_end:
                b2 = segment(points, b2, b_end, n)
                other = mix(other, on_segment(points, b2, b_end, n), b_weight)
            time = mix(time, other, weight)
        out[i] = time + extra


@kernel
def fill_times(decode, verify, captured, batch, kv, first, stride, extra, out):
    """Write the time of steps of `first + i * stride` tokens (`stride` from 1); up to `batch` they are decode steps."""
    n_decode = 0
    while n_decode < len(out) and first + n_decode * stride <= batch:
        n_decode += 1
    if n_decode > 0:
        padded = batch
        for c in range(len(captured) - 1, -1, -1):
            if captured[c] >= batch:
                padded = captured[c]
        fill_curve(decode, captured, padded, kv, batch, 0, 0, n_decode, extra, out)
    fill_curve(verify, captured, batch, kv, first, stride, n_decode, len(out), extra, out)
