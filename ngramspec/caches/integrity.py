"""Slow checks of what the store's kernels rely on."""

from __future__ import annotations

import numpy as np

from ..arena import (
    BLOCK,
    M_FILL,
    M_FREE,
    M_NEXT,
    M_PREV,
    META,
    S_BLOCKS,
    S_CURSOR,
    S_FREE,
    S_HEAD,
    S_LINKS,
    S_META,
    S_N_FREE,
    S_ORDERS,
    S_TEXT,
    S_TOKENS,
    Arena,
)
from ..errors import SnapshotError


def check_store(arena: Arena, name: str) -> None:
    """Raise `SnapshotError` at the first broken invariant of a store: blocks, links, free list, counters."""
    head = arena.header(name)
    n_blocks, n_orders = int(head[S_BLOCKS]), int(head[S_ORDERS])
    meta = arena.section(name, S_META).reshape(n_blocks, META)
    text = arena.section(name, S_TEXT).reshape(n_blocks, BLOCK)
    fill = meta[:, M_FILL]

    def fail(what: str, where: object) -> None:
        raise SnapshotError(f"{name} store: {what} at {where}")

    if fill.min() < 0 or fill.max() > BLOCK:
        fail("fill out of range", int(np.argmax((fill < 0) | (fill > BLOCK))))
    if int(fill.sum()) != int(head[S_TOKENS]):
        fail("token counter differs from the blocks'", (int(fill.sum()), int(head[S_TOKENS])))
    written = np.arange(BLOCK)[None, :] < fill[:, None]
    if ((text == 0) & written).any() or ((text != 0) & ~written).any():
        fail(
            "text and fill disagree",
            int(np.argmax((((text == 0) & written) | ((text != 0) & ~written)).any(1))),
        )
    before = np.flatnonzero(meta[:, M_NEXT])
    following = meta[before, M_NEXT].astype(np.int64) - 1
    known = (following >= 0) & (following < n_blocks)
    linked = known & (meta[np.where(known, following, 0), M_PREV] == before + 1) & (fill[before] == BLOCK)
    if not linked.all():
        fail("block not linked both ways, or not full before its successor", int(before[np.argmin(linked)]))
    free, b = set(), int(head[S_FREE])
    while b:
        if b > n_blocks or b in free or fill[b - 1]:
            fail("free list is broken", b)
        free.add(b)
        b = int(meta[b - 1, M_FREE])
    if len(free) != int(head[S_N_FREE]):
        fail("free counter differs from the list", (len(free), int(head[S_N_FREE])))
    if head[S_CURSOR] < 0:
        fail("cursor is negative", int(head[S_CURSOR]))
    if n_orders:
        links = arena.section(name, S_LINKS).reshape(n_blocks * BLOCK, 1 + n_orders)
        heads = arena.section(name, S_HEAD)
        for what, values in (("link", links[:, 1:]), ("head", heads)):
            if values.min() < 0 or values.max() > n_blocks * BLOCK:
                fail(f"{what} out of range", int(values.max()))
        if links[~written.ravel()].any():
            fail("an empty position keeps links", int(np.argmax(links.any(1) & ~written.ravel())))
