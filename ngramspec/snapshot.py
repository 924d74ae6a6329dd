"""What a cache learned, kept on disk: the shared part of its state, saved and loaded whole or not at all.

Shared text, counted contexts of it, and what the mixer learned. Own text (prompts and outputs of requests and sessions,
and everything of requests with `share="none"`) stays behind, but for the few prompt tokens that shared text keeps ahead
of an output to match it (`SHARED_CONTEXT`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from io import SEEK_END
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

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
from .caches.arguments import instance
from .caches.files import StrPath, as_path
from .caches.image import (
    FORMAT_VERSION,
    HEAD_NBYTES,
    Head,
    attach,
    fingerprint,
    naming,
    read,
    read_head,
    same_tokenizer,
    unpack,
    verify,
    write,
)
from .caches.mapping import within_zeros
from .caches.sessions import SessionCache
from .caches.untrusted import check_counts, check_mixer, check_text
from .config import CacheConfig
from .errors import ConfigError, SnapshotError
from .kernels.counted_shared import mark_shared
from .kernels.counts import N_ORDERS
from .native import Engine

#: Components of each cache that outlive the process.
SHARED = {"rolling-hash": ("shared",), "ngramspec": ("shared", "counts", "mixer")}

CacheT = TypeVar("CacheT", bound=SessionCache)


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
    ConfigError
        An argument is not what it should be.
    OSError
        The file could not be written; the old one is still there.
    """
    path = as_path(path)
    components = _components(_kept(cache), cache.config)
    head = _head(cache.name, cache.config, tokenizer)
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
    ConfigError
        An argument is not what it should be.
    OSError
        The file cannot be read.
    """
    kept = _kept(cache)
    components, want = _components(kept, cache.config), _head(cache.name, cache.config, tokenizer)
    path = as_path(path)
    with naming(path):
        running = cache.stats()["running_requests"]
        if running:
            raise SnapshotError(
                f"{running} requests are running on the cache and hold places in its shared text, must be 0: "
                "load before the first request, or finish them"
            )
        with open(path, "rb") as file:
            image = _checked(*read(file), want, components)
    for component in components:
        _copy(component, image, cache.arena)


def map(
    kind: type[CacheT],
    config: CacheConfig,
    path: StrPath,
    *,
    tokenizer: str | bytes | None = None,
    engine: Engine | None = None,
) -> CacheT:
    """A new cache over a file's own pages, each of which is copied when it is first written to.

    The same cache as an empty one after `load`, and checked as there: the checksum of the whole file, and every number
    that a kernel would follow. What is saved is the copy: 10 million tokens are ready in about a second, and pages that
    are only read are shared by all processes that map the file. The file never changes. Memory: pages written to, at
    most `config.nbytes`; `reset` writes to all. The file must be left as it is while the cache is there: `save` to the
    same path does that, it puts another file in its place. See `caches/mapping.py`.

    Parameters
    ----------
    kind : type
        The class, `Drafter` or `RollingHashCache`.
    config : DrafterConfig or HashConfig
        Its configuration, which may differ from the saved cache's as with `load`.
    path : str or path
        A file from `save`, which nobody else may write to.
    tokenizer : str or bytes, optional
        As it was saved.
    engine : {"numba", "native"}, optional
        As the class takes it.

    Returns
    -------
    Drafter or RollingHashCache
        Without requests and sessions.

    Raises
    ------
    SnapshotError
        The file is damaged or does not fit, others may write to it, or this system cannot map files.
    ConfigError
        An argument is not what it should be.
    OSError
        The file cannot be read or mapped.
    """
    names, path = _kept(kind, "kind", "the class "), as_path(path)
    instance(config, "config", kind.config_type)
    components, want = _components(names, config), _head(kind.name, config, tokenizer)
    with naming(path), open(path, "rb") as file:
        image = _checked(*read(file, mapped=True), want, components)
        fresh = Arena(config.components(), config.digest)  # for its headers: memory that nobody touches costs nothing
        for component in components:
            _copy_words(component, image, fresh)
        first, start = (_first_byte(arena, components) for arena in (image, fresh))
        buffer = within_zeros(fresh.nbytes, start, file, HEAD_NBYTES + first)
    n_headers = 8 * WORDS * (1 + len(config.components()))
    buffer[:n_headers] = fresh.buffer[:n_headers]
    return kind(config, buffer, engine)


def inspect(path: StrPath, *, verify_checksum: bool = True) -> dict[str, Any]:
    """What a snapshot or a frozen corpus holds, by its headers; loads nothing.

    Parameters
    ----------
    path : str or path
        The file.
    verify_checksum : bool
        Read the whole file, piece by piece, and refuse it unless it is as it was written. False: read its first few
        kilobytes only, in no time, and believe them.

    Returns
    -------
    dict
        `kind`, `name` (of a corpus), versions, `nbytes`, `tokenizer` (fingerprint or None), `vocab_size`, `eos_ids`,
        and sizes of each component.

    Raises
    ------
    SnapshotError
        It is no snapshot of this version, or not as it was written.
    ConfigError
        `path` is no path.
    OSError
        It cannot be read.
    """
    path = as_path(path)
    with naming(path), open(path, "rb") as file:
        words = read_head(file)
        head = unpack(words)
        names = SHARED.get(head.kind, (head.kind,))
        first = file.read(8 * WORDS * (1 + len(names)))
        if len(first) < 8 * WORDS * (1 + len(names)):
            raise SnapshotError(f"too short for the components of {head.kind!r}: save it again")
        if verify_checksum:
            verify(words, chain([first], iter(partial(file.read, 1 << 20), b"")))
        headers = np.frombuffer(first, np.int64).reshape(-1, WORDS)[1:]
        nbytes = file.tell() if verify_checksum else file.seek(0, SEEK_END)
    return {
        "kind": head.kind,
        "name": head.name,
        "format_version": FORMAT_VERSION,
        "layout_version": LAYOUT_VERSION,
        "nbytes": nbytes,
        "tokenizer": head.tokenizer,
        "vocab_size": head.vocab_size,
        "eos_ids": list(head.eos_ids),
        "components": {name: _describe(name, words.tolist()) for name, words in zip(names, headers, strict=True)},
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


def _kept(cache: Any, argument: str = "cache", which: str = "a ") -> tuple[str, ...]:
    """Names of the components of a cache, or of a class of them, that outlive the process."""
    name = getattr(cache, "name", None)
    if isinstance(cache, type) != (argument == "kind") or not isinstance(name, str):
        raise ConfigError(f"{argument}: got {cache!r}, allowed {which}Drafter or {which}RollingHashCache")
    names = SHARED.get(name)
    if names is None:
        reason = "counts own and shared text in one table" if name == "suffix-trie" else "has no shared state"
        raise SnapshotError(f"cache {name!r} {reason}, allowed are {', '.join(SHARED)}: use one of these")
    return names


def _components(names: tuple[str, ...], config: CacheConfig) -> list[Component]:
    """These components of a cache as they lie in the file: without what only steers look-ups."""
    return [
        replace(c, words={word: value for word, value in c.words.items() if c.name != "shared" or word != S_HOPS})
        for c in config.components()
        if c.name in names
    ]


def _head(name: str, config: CacheConfig, tokenizer: str | bytes | None) -> Head:
    return Head(name, config.vocab_size, config.eos_ids, fingerprint(tokenizer))


def _checked(head: Head, buffer: NDArray[np.uint8], want: Head, components: list[Component]) -> Arena:
    """The arena of a file, refused unless it is what was asked for and every number in it can be relied on."""
    same_tokenizer(head, want.tokenizer)
    for field in ("kind", "vocab_size", "eos_ids"):
        got, allowed = getattr(head, field), getattr(want, field)
        if got != allowed:
            raise SnapshotError(f"{field} is {got!r}, must be {allowed!r}: load it with the settings it was saved with")
    image = attach(head, buffer, components)
    check_text(image, "shared", head.vocab_size)
    if len(components) > 1:
        check_counts(image, head.vocab_size)
        check_mixer(image)
    return image


def _first_byte(arena: Arena, components: list[Component]) -> int:
    """Where the first of these components begins; from there on they lie alike in a file and in a cache."""
    return 4 * int(arena.header(components[0].name)[components[0].sections[0][0]])


def _copy(component: Component, source: Arena, target: Arena) -> None:
    """Copy one component's state."""
    _copy_words(component, source, target)
    for word, _ in component.sections:
        target.section(component.name, word)[:] = source.section(component.name, word)


def _copy_words(component: Component, source: Arena, target: Arena) -> None:
    """Copy one component's header; what is the same in both by construction, and offsets, stay the target's."""
    sections = [word for word, _ in component.sections]
    changing = np.ones(WORDS, bool)
    changing[[*sections, S_HOPS] if component.name == "shared" else sections] = False
    target.header(component.name)[changing] = source.header(component.name)[changing]


def _drop_unshared_counts(image: Arena) -> None:
    """Empty every counted context that does not occur in the shared text."""
    counts = image.section("counts", K_OFF).reshape(-1, COUNT_ROW)
    marks = np.zeros(len(counts), np.bool_)
    context, rows, checks = np.zeros((3, N_ORDERS), np.int32)
    mark_shared(image.header("shared"), image.header("counts"), image.mem, context, rows, checks, marks)
    counts[~marks] = 0
