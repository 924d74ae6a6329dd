"""What a cache learned, kept on disk: the shared part of its state, saved and loaded whole or not at all.

Shared text, counted contexts of it, and what the mixer learned. Own text (prompts and outputs of requests and sessions,
and everything of requests with `share="none"`) stays behind, but for the few prompt tokens that shared text keeps ahead
of an output to match it (`SHARED_CONTEXT`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .arena import (
    COUNT_ROW,
    K_OFF,
    K_ROWS,
    K_TOKENS,
    LAYOUT_VERSION,
    M_WRITER,
    META,
    S_BLOCKS,
    S_HOPS,
    S_META,
    S_ORDER0,
    S_ORDERS,
    S_TOKENS,
    S_TOP,
    WORDS,
    Arena,
    Component,
)
from .caches.image import (
    FORMAT_VERSION,
    HEAD_NBYTES,
    Head,
    StrPath,
    attach,
    fingerprint,
    naming,
    read,
    same_tokenizer,
    write,
)
from .caches.sessions import SessionCache
from .caches.untrusted import check_counts, check_mixer, check_text
from .errors import SnapshotError
from .kernels.counted_shared import mark_shared
from .kernels.counts import N_ORDERS

#: Components of each cache that outlive the process.
SHARED = {"rolling-hash": ("shared",), "ngramspec": ("shared", "counts", "mixer")}


def save(cache: SessionCache, path: StrPath, *, tokenizer: str | bytes | None = None) -> None:
    """Write the shared state of a cache to a file; does not modify the cache, requests may be running.

    The old file is there until the new one is complete on disk, whatever happens. Cost: a copy of the shared state in
    memory. Counted contexts whose text has been evicted since are left out: nothing would tell them from those of
    requests that share nothing.

    Parameters
    ----------
    cache : RollingHashCache or Drafter
        A cache with shared text of its own.
    path : str or path
        File to write or replace, readable by its owner only.
    tokenizer : str or bytes, optional
        What tells the tokenizer apart, such as the bytes of its tokenizer.json, or model and revision.

    Raises
    ------
    SnapshotError
        This kind of cache cannot be saved.
    OSError
        The file could not be written; the old one is still there.
    """
    components = _components(cache)
    head = _head(cache, tokenizer)
    image = Arena(components, head.shape_digest(components))
    for component in components:
        _copy(component, cache.arena, image)
    image.section("shared", S_META).reshape(-1, META)[:, M_WRITER] = 0  # no request of another process is a writer
    if len(components) > 1:
        _drop_unshared_counts(image)
    write(path, head, image)


def load(cache: SessionCache, path: StrPath, *, tokenizer: str | bytes | None = None) -> None:
    """Replace the shared state of a cache by a file's; modifies, or refuses and changes nothing.

    The cache may differ from the one that was saved in what does not shape its shared state: `max_requests`,
    `max_sessions`, `max_hops`, `deferred`, `draft_threads`. Its idle sessions stay.

    Parameters
    ----------
    cache : RollingHashCache or Drafter
        A cache without running requests.
    path : str or path
        A file from `save`.
    tokenizer : str or bytes, optional
        As it was saved.

    Raises
    ------
    SnapshotError
        The file is damaged or does not fit, or requests are running; the text says what, got, allowed and what to do.
    OSError
        The file cannot be read.
    """
    components, want = _components(cache), _head(cache, tokenizer)
    with naming(path):
        running = cache.stats()["running_requests"]
        if running:
            raise SnapshotError(
                f"{running} requests are running on the cache and hold places in its shared text, must be 0: "
                "load before the first request, or finish them"
            )
        head, buffer = read(path)
        same_tokenizer(head, want.tokenizer)
        for field in ("kind", "vocab_size", "eos_ids"):
            got, allowed = getattr(head, field), getattr(want, field)
            if got != allowed:
                raise SnapshotError(
                    f"{field} is {got!r}, must be {allowed!r}: load it with the settings it was saved with"
                )
        image = attach(head, buffer, components)
        check_text(image, "shared", head.vocab_size)
        if len(components) > 1:
            check_counts(image, head.vocab_size)
            check_mixer(image)
    for component in components:
        _copy(component, image, cache.arena)


def inspect(path: StrPath) -> dict[str, Any]:
    """What a snapshot or a frozen corpus holds, checksum verified; reads the whole file.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    dict
        `kind`, `name` (of a corpus), versions, `nbytes`, `tokenizer` (fingerprint or None), `vocab_size`, `eos_ids`,
        and sizes of each component.

    Raises
    ------
    SnapshotError
        It is no snapshot of this version, or not as it was written.
    OSError
        It cannot be read.
    """
    with naming(path):
        head, buffer = read(path)
        headers = buffer[: len(buffer) // HEAD_NBYTES * HEAD_NBYTES].view(np.int64).reshape(-1, WORDS)
        names = SHARED.get(head.kind, (head.kind,))
        if len(headers) <= len(names):
            raise SnapshotError(f"too short for the components of {head.kind!r}: save it again")
    return {
        "kind": head.kind,
        "name": head.name,
        "format_version": FORMAT_VERSION,
        "layout_version": LAYOUT_VERSION,
        "nbytes": len(buffer) + HEAD_NBYTES,
        "tokenizer": head.tokenizer,
        "vocab_size": head.vocab_size,
        "eos_ids": list(head.eos_ids),
        "components": {name: _describe(name, words.tolist()) for name, words in zip(names, headers[1:], strict=False)},
    }


def _describe(name: str, words: list[int]) -> dict[str, Any]:
    if name in ("shared", "frozen"):
        return {
            "tokens": words[S_TOKENS],
            "blocks": words[S_BLOCKS],
            "orders": words[S_ORDER0 : S_ORDER0 + max(words[S_ORDERS], 0)],
            "max_match": words[S_TOP],
        }
    return {"tokens": words[K_TOKENS], "rows": words[K_ROWS]} if name == "counts" else {}


def _components(cache: SessionCache) -> list[Component]:
    """Components of a cache that outlive the process, as they lie in the file: without what only steers look-ups."""
    names = SHARED.get(cache.name)
    if names is None:
        reason = "counts own and shared text in one table" if cache.name == "suffix-trie" else "has no shared state"
        raise SnapshotError(f"cache {cache.name!r} {reason}, allowed are {', '.join(SHARED)}: use one of these")
    return [
        replace(c, words={word: value for word, value in c.words.items() if c.name != "shared" or word != S_HOPS})
        for c in cache.config.components()
        if c.name in names
    ]


def _head(cache: SessionCache, tokenizer: str | bytes | None) -> Head:
    config = cache.config
    return Head(cache.name, config.vocab_size, config.eos_ids, fingerprint(tokenizer))


def _copy(component: Component, source: Arena, target: Arena) -> None:
    """Copy one component's state; what is the same in both by construction, and offsets, stay the target's."""
    sections = dict(component.sections)
    kept = [*sections, S_HOPS] if component.name == "shared" else [*sections]
    changing = np.ones(WORDS, bool)
    changing[kept] = False
    target.header(component.name)[changing] = source.header(component.name)[changing]
    for word in sections:
        target.section(component.name, word)[:] = source.section(component.name, word)


def _drop_unshared_counts(image: Arena) -> None:
    """Empty every counted context that does not occur in the shared text."""
    counts = image.section("counts", K_OFF).reshape(-1, COUNT_ROW)
    marks = np.zeros(len(counts), np.bool_)
    context, rows, checks = np.zeros((3, N_ORDERS), np.int32)
    mark_shared(image.header("shared"), image.header("counts"), image.mem, context, rows, checks, marks)
    counts[~marks] = 0
