"""A table from the hash of n tokens to the token that last followed them, without the key, as llama.cpp keeps it.

`table int32[n_entries]` holds token + 1, 0 is empty; `used int64[1]` counts entries that are not. The hash
is the original's, since which contexts collide decides what is drafted.
"""

import numpy as np

from .._jit import kernel

FACTOR = np.uint64(6364136223846793005)


@kernel
def entry(table, tokens, start, n):
    """Index of the entry of `tokens[start:start + n]`."""
    x = np.uint64(0)
    for i in range(start, start + n):
        x = x * FACTOR + np.uint64(np.int64(tokens[i]))
    return np.int64(x % np.uint64(len(table)))


@kernel
def add(table, used, tokens, start, end, n):
    """Enter the n-grams of `tokens` that start in [start, end), each with the token behind it."""
    for i in range(start, end):
        if tokens[i + n] < 0:
            continue
        at = entry(table, tokens, i, n)
        used[0] += table[at] == 0
        table[at] = tokens[i + n] + 1


@kernel
def follow(table, text, n, width, out):
    """Follow the table from the last n tokens of `text`; returns how many tokens it gives.

    `out int32[n + width]` receives the context, and behind it what was found.
    """
    for i in range(n):
        out[i] = text[len(text) - n + i]
    for i in range(width):
        token = table[entry(table, out, i, n)]
        if token == 0:
            return i
        out[n + i] = token - 1
    return width
