"""Step times and plans written as their definitions read: recursion, and every combination of prefixes."""

from bisect import bisect_left
from itertools import product

from ngramspec.draft import ONE_Q30


def line(xs, ys, x):
    """Piecewise linear: constant below the first point, straight and not falling beyond the last."""
    if len(xs) == 1 or x <= xs[0]:
        return ys[0]
    i = min(bisect_left(xs, x), len(xs) - 1)
    weight = (x - xs[i - 1]) / (xs[i] - xs[i - 1])
    if weight <= 1:
        return ys[i - 1] + (ys[i] - ys[i - 1]) * weight
    return ys[i] + max(ys[i] - ys[i - 1], 0.0) * (weight - 1)


def step_ms(model, n_tokens, batch, kv_tokens):
    """Time of a step, by recursion over batch, KV tokens and tokens."""
    points = model.decode if n_tokens <= batch else model.verify
    padded = next((size for size in model.captured if size >= n_tokens), n_tokens)
    wanted = (padded if n_tokens <= batch else batch, kv_tokens, padded)

    def inside(points, level):
        if level == 3:
            return points[0].ms
        keys = sorted({(p.batch, p.kv_tokens, p.n_tokens)[level] for p in points})
        groups = [[p for p in points if (p.batch, p.kv_tokens, p.n_tokens)[level] == key] for key in keys]
        return line(keys, [inside(group, level + 1) for group in groups], wanted[level])

    return inside(points, 0)


def emitted(rows, kept):
    return len(rows) + sum(sum(row[:k]) for row, k in zip(rows, kept)) / ONE_Q30


def best_rate(rows, times, most):
    """Most expected tokens a millisecond over every combination of prefixes; `times[m]` with m drafted tokens."""
    choices = product(*(range(min(len(row), most) + 1) for row in rows))
    return max(emitted(rows, kept) / times[sum(kept)] for kept in choices)


def best_uniform_rate(rows, times, widths):
    """The same where every row is padded to one of `widths`; `times[w]` of a step at width w."""
    return max(emitted(rows, [min(len(row), w) for row in rows]) / times[w] for w in widths)
