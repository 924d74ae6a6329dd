"""Checks of state that came from outside, before a kernel may follow a single number in it.

`integrity.py` looks for our own mistakes; this looks for everything else that could lead a kernel out of its buffer or
let it draft a token that does not exist. All of it is vectorised: it runs on every load.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arena import (
    B_FINAL,
    B_GROUP,
    B_NODE,
    B_TABLES,
    B_TOKEN,
    BLOCK,
    COUNT_ROW,
    K_OFF,
    K_ROWS,
    K_TOKENS,
    M_FREE,
    M_NEXT,
    M_PREV,
    M_WRITER,
    META,
    S_BLOCKS,
    S_CLOCK,
    S_CURSOR,
    S_EVICTED,
    S_FREE,
    S_LINKS,
    S_META,
    S_N_FREE,
    S_ORDER0,
    S_ORDERS,
    S_TEXT,
    S_TOP,
    WORDS,
    Arena,
)
from ..errors import SnapshotError
from ..kernels.counts import K_CHECK, K_COUNT, K_TOTAL, K_VALUE, MAX_COUNT, N_FOLLOWERS
from ..kernels.mixer import WEIGHT_LIMIT
from ..kernels.store import CLOCK_MASK
from .integrity import check_store

_INT32_MAX = 2**31 - 1
_COUNTER_MAX = 2**62  # counters of any life stay far below; what is added to them cannot overflow
_TABLE_MAX = (1 << 30) - 1  # probability of 20 bits, events of 10


def check_text(arena: Arena, name: str, vocab_size: int) -> None:
    """Check a store that has no free list and no writers: a ring of shared text, or frozen text.

    Parameters
    ----------
    arena : Arena
        Where it lies; its layout has been checked.
    name : str
        The store's component.
    vocab_size : int
        Ids must be below it.

    Raises
    ------
    SnapshotError
        Something that kernels rely on does not hold.
    """
    head = arena.header(name)
    n_blocks, n_orders = int(head[S_BLOCKS]), int(head[S_ORDERS])
    _no_other_words(arena, name, (*range(S_TOP + 1), *range(S_ORDER0, S_ORDER0 + n_orders)))
    _within(f"{name}: clock", head[S_CLOCK], 0, CLOCK_MASK)
    _within(f"{name}: cursor", head[S_CURSOR], 0, _COUNTER_MAX)
    _within(f"{name}: evicted tokens", head[S_EVICTED], 0, _COUNTER_MAX)
    _within(f"{name}: free blocks", head[[S_FREE, S_N_FREE]], 0, 0)
    _within(f"{name}: text", arena.section(name, S_TEXT), -1, vocab_size)
    meta = arena.section(name, S_META).reshape(n_blocks, META)
    _within(f"{name}: writer of a block", meta[:, M_WRITER], 0, 0)
    _within(f"{name}: free link of a block", meta[:, M_FREE], 0, 0)
    _within(f"{name}: link of a block", meta[:, [M_NEXT, M_PREV]], 0, n_blocks)
    for here, back in ((M_NEXT, M_PREV), (M_PREV, M_NEXT)):
        linked = np.flatnonzero(meta[:, here])
        if (meta[meta[linked, here] - 1, back] != linked + 1).any():
            raise SnapshotError(f"{name}: blocks are not linked both ways")
    if n_orders:
        links = arena.section(name, S_LINKS).reshape(n_blocks * BLOCK, 1 + n_orders)
        _within(f"{name}: clock of a position", links[:, 0], 0, CLOCK_MASK)
    check_store(arena, name)


def check_counts(arena: Arena, vocab_size: int) -> None:
    """Check counted contexts; raises `SnapshotError`."""
    head = arena.header("counts")
    _no_other_words(arena, "counts", (K_ROWS, K_OFF, K_TOKENS))
    _within("counts: counted tokens", head[K_TOKENS], -_COUNTER_MAX, _COUNTER_MAX)
    rows = arena.section("counts", K_OFF).reshape(-1, COUNT_ROW)
    _within("counts: check word", rows[:, K_CHECK], 0, _INT32_MAX)
    _within("counts: total", rows[:, K_TOTAL], -N_FOLLOWERS, MAX_COUNT)  # halving rounds followers up, not the total
    _within("counts: follower", rows[:, K_VALUE : K_VALUE + N_FOLLOWERS], 0, vocab_size)
    _within("counts: count", rows[:, K_COUNT : K_COUNT + N_FOLLOWERS], 0, MAX_COUNT)


def check_mixer(arena: Arena) -> None:
    """Check the mixer's tables and weights; raises `SnapshotError`."""
    _no_other_words(arena, "mixer", (B_TABLES, B_NODE, B_TOKEN, B_GROUP, B_FINAL))
    for word in (B_TABLES, B_FINAL):
        _within("mixer: table entry", arena.section("mixer", word), 0, _TABLE_MAX)
    for word in (B_NODE, B_TOKEN, B_GROUP):
        _within("mixer: weight", arena.section("mixer", word), -WEIGHT_LIMIT, WEIGHT_LIMIT)


def _within(what: str, values: NDArray[Any] | np.integer[Any], low: int, high: int) -> None:
    every = np.asarray(values)
    for extreme in (int(every.min()), int(every.max())):
        if not low <= extreme <= high:
            raise SnapshotError(f"{what} is {extreme}, allowed {low} to {high}")


def _no_other_words(arena: Arena, name: str, known: Iterable[int]) -> None:
    unknown = np.ones(WORDS, bool)
    unknown[list(known)] = False
    _within(f"{name}: an unused word", arena.header(name)[unknown], 0, 0)
