"""Frozen corpora: read-only text that every tenant may be drafted from, each in an arena of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from ..arena import (
    BLOCK,
    M_FILL,
    M_NEXT,
    M_PREV,
    META,
    S_BLOCKS,
    S_CURSOR,
    S_HOPS,
    S_META,
    S_ORDER0,
    S_ORDERS,
    S_TEXT,
    S_TOKENS,
    S_TOP,
    WORDS,
    Arena,
    Component,
    arena_nbytes,
    store_component,
)
from ..config import MAX_TOKENS, HashConfig
from ..errors import CapacityError, ConfigError, SnapshotError
from ..kernels.frozen import append_document
from .arguments import as_list, as_tokens, at_least, listed
from .base import Int32, Tokens
from .files import StrPath, as_path
from .image import MAX_NAME_NBYTES, Head, attach, check_name, fingerprint, naming, read, same_tokenizer, write
from .untrusted import check_text

_KIND = "frozen"


class FrozenCorpus:
    """Documents in a store that drafters look at and never write to; a match never crosses from one to the next.

    Made by `build`, `merge` or `load`.

    Attributes
    ----------
    name : str
        For reports.
    vocab_size : int
        Ids at or above it, and negative ones, are placeholders: never matched across, never drafted.
    orders : tuple of int
        Context lengths at which positions are chained.
    max_hops, max_match : int
        As in `HashConfig`.
    n_documents : int
        Documents, empty ones left out.
    header : int64[64]
        Of the store, as kernels take it.
    mem : int32[nbytes / 4]
        The whole arena, as kernels take it: writable, so that compiled code takes it for the same type as a cache's.

    Examples
    --------
    >>> import ngramspec as ns
    >>> corpus = ns.FrozenCorpus.build("manual", [[7, 8, 9, 5], [1, 2, 3, 4]], vocab_size=1000)
    >>> drafter = ns.Drafter(ns.DrafterConfig(capacity_tokens=100_000, vocab_size=1000))
    >>> drafter.add_corpus(corpus)
    >>> slot = drafter.begin("r1", [0, 1, 2])
    >>> drafter.draft("r1", max_draft=2).tokens
    array([3, 4], dtype=int32)
    """

    def __init__(self, name: str, arena: Arena, vocab_size: int) -> None:
        self.name = name
        self.vocab_size = vocab_size
        self._arena = arena
        self.header: NDArray[np.int64] = arena.header(_KIND)
        self.mem: Int32 = arena.mem
        self.orders = _orders(self.header)
        self.max_hops, self.max_match = int(self.header[S_HOPS]), int(self.header[S_TOP])
        self.n_documents = int((self._meta[:, M_PREV] == 0).sum())

    @classmethod
    def build(
        cls,
        name: str,
        documents: Iterable[Tokens],
        *,
        vocab_size: int,
        orders: Sequence[int] = (1, 2, 4, 8),
        max_hops: int = 8,
        max_match: int = 32,
    ) -> Self:
        """A corpus of these documents, the last one being the newest.

        Parameters
        ----------
        name : str
            Up to 128 bytes.
        documents : iterable of sequences of int
            Token ids. Cost: 9 bytes a token and 8 more an order, blocks being full (see `nbytes_for`).
        vocab_size : int
            Ids at or above it, and negative ones, are placeholders.
        orders : sequence of int
            Context lengths at which positions are chained, ascending; the drafter's own.
        max_hops : int
            Positions visited an order and look-up.
        max_match : int
            Tokens compared backward; not below the drafter's own.

        Raises
        ------
        ConfigError
            A setting or a token is not allowed, or there is no token at all.
        CapacityError
            More tokens than positions can be numbered.
        """
        check_name(name)
        settings = HashConfig(
            vocab_size=vocab_size, orders=tuple(as_list(orders, "orders")), max_hops=max_hops, max_match=max_match
        )
        texts = [as_tokens(document, f"documents[{i}]") for i, document in enumerate(listed(documents, "documents"))]
        components = _components(_n_blocks(map(len, texts)), settings)
        arena = Arena(components, Head(_KIND, vocab_size).shape_digest(components))
        header = arena.header(_KIND)
        for text in texts:  # copied: a read-only array would be another type and compile a second time
            append_document(header, arena.mem, np.array(text), vocab_size)
        return cls(name, arena, vocab_size)

    @staticmethod
    def nbytes_for(lengths: Iterable[int], orders: Sequence[int] = (1, 2, 4, 8)) -> int:
        """Bytes of a corpus of documents of these lengths, known before anything is allocated.

        Parameters
        ----------
        lengths : iterable of int
            Tokens of each document; each starts a block of 32.
        orders : sequence of int
            As in `build`.
        """
        lengths = [at_least(n, f"lengths[{i}]", 0) for i, n in enumerate(as_list(lengths, "lengths"))]
        return arena_nbytes([store_component(_KIND, _n_blocks(lengths), as_list(orders, "orders"), 0, 0)])

    @classmethod
    def merge(cls, corpora: Sequence[FrozenCorpus], name: str | None = None) -> FrozenCorpus:
        """One corpus of all documents, for drafters that look at exactly one; the last corpus is the newest.

        Costs as much as building it anew, which is what it does; a single corpus is returned as it is.

        Parameters
        ----------
        corpora : sequence of FrozenCorpus
            Of one vocabulary and with the same settings.
        name : str, optional
            None: their names joined by `+`, or their number where that is too long.

        Raises
        ------
        ConfigError
            Their vocabularies or settings differ, or there is none.
        CapacityError
            Together they are too large.
        """
        found: list[FrozenCorpus] = as_list(corpora, "corpora")
        for i, corpus in enumerate(found):
            if not isinstance(corpus, FrozenCorpus):
                raise ConfigError(f"corpora[{i}]: got {corpus!r}, must be a FrozenCorpus")
        corpora = found
        if not corpora:
            raise ConfigError("corpora: got none, at least one is needed: merge nothing by having no corpus")
        if len(corpora) == 1 and name is None:
            return corpora[0]
        first = corpora[0]
        for corpus in corpora[1:]:
            for field in ("vocab_size", "orders", "max_hops", "max_match"):
                got, allowed = getattr(corpus, field), getattr(first, field)
                if got != allowed:
                    raise ConfigError(
                        f"corpora: {field} of {corpus.name!r} is {got}, of {first.name!r} {allowed}: "
                        "build both with the same settings"
                    )
        joined = "+".join(corpus.name for corpus in corpora)
        if len(joined.encode()) > MAX_NAME_NBYTES:
            joined = f"{len(corpora)} corpora"
        return cls.build(
            name or joined,
            (document for corpus in corpora for document in corpus.documents()),
            vocab_size=first.vocab_size,
            orders=first.orders,
            max_hops=first.max_hops,
            max_match=first.max_match,
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the whole state, fixed."""
        return self._arena.nbytes

    def documents(self) -> Iterator[Int32]:
        """Every document, int32[n], oldest first; placeholders are -1."""
        text, fill = self._arena.section(_KIND, S_TEXT), self._meta[:, M_FILL]
        starts = np.flatnonzero(self._meta[:, M_PREV] == 0)
        for start, end in zip(starts, [*starts[1:], len(fill)], strict=True):
            values = text[start * BLOCK : (end - 1) * BLOCK + int(fill[end - 1])]
            yield np.where(values > 0, values - 1, -1).astype(np.int32)

    def stats(self) -> dict[str, int]:
        """Sizes by name."""
        return {
            "nbytes": self.nbytes,
            "documents": self.n_documents,
            "tokens": int(self.header[S_TOKENS]),
            "blocks": int(self.header[S_BLOCKS]),
        }

    def digest(self) -> str:
        """Hex digest of the whole state; equal documents and settings give equal digests."""
        return self._arena.digest()

    def check_integrity(self) -> None:
        """Check every invariant, slowly; raises `SnapshotError` at the first that fails."""
        check_text(self._arena, _KIND, self.vocab_size)
        n_blocks = int(self.header[S_BLOCKS])
        if int(self.header[S_CURSOR]) != n_blocks:
            raise SnapshotError(f"frozen: {int(self.header[S_CURSOR])} blocks are in use, must be {n_blocks}")
        prev, following = self._meta[:, M_PREV], self._meta[:, M_NEXT]
        here = np.arange(n_blocks)
        if ((prev != 0) & (prev != here)).any() or ((following != 0) & (following != here + 2)).any():
            raise SnapshotError("frozen: a document's blocks do not follow one another")
        if self._meta[:, :2].any():
            raise SnapshotError("frozen: a block has an owner")

    def save(self, path: StrPath, *, tokenizer: str | bytes | None = None) -> None:
        """Write the corpus to a file, all of it or nothing; see `snapshot.save`.

        Parameters
        ----------
        path : str or path
            File to write or replace.
        tokenizer : str or bytes, optional
            What tells the tokenizer apart.
        """
        write(path, Head(_KIND, self.vocab_size, (), fingerprint(tokenizer), self.name), self._arena)

    @classmethod
    def load(cls, path: StrPath, *, tokenizer: str | bytes | None = None, mapped: bool = False) -> Self:
        """A corpus from a file, checksum and every number in it verified.

        Parameters
        ----------
        path : str or path
            A file from `save`.
        tokenizer : str or bytes, optional
            As it was saved.
        mapped : bool
            Use the file's own pages, which all processes that map it share, in the place of a copy. The file must be
            left as it is while the corpus is there; one that others may write to is refused. See `snapshot.map`.

        Raises
        ------
        SnapshotError
            The file is damaged, or holds something else; the text says what, got, allowed and what to do.
        OSError
            The file cannot be read.
        """
        mark, path = fingerprint(tokenizer), as_path(path)
        with naming(path):
            with open(path, "rb") as file:
                head, buffer = read(file, mapped=mapped)
            if head.kind != _KIND:
                raise SnapshotError(f"kind is {head.kind!r}, must be {_KIND!r}: load it with snapshot.load")
            same_tokenizer(head, mark)
            components = _components_of(buffer, head.vocab_size)
            corpus = cls(check_name(head.name), attach(head, buffer, components), head.vocab_size)
            corpus.check_integrity()
        return corpus

    @property
    def _meta(self) -> Int32:
        return self._arena.section(_KIND, S_META).reshape(-1, META)


def _n_blocks(lengths: Iterable[int]) -> int:
    n_blocks = sum(-(-int(n) // BLOCK) for n in lengths)
    if n_blocks < 1:
        raise ConfigError("documents: got no token, at least one is needed: leave the corpus out")
    if n_blocks * BLOCK > MAX_TOKENS:
        raise CapacityError(
            f"documents: need {n_blocks * BLOCK} positions, at most {MAX_TOKENS} can be numbered: use several corpora"
        )
    return n_blocks


def _components(n_blocks: int, settings: HashConfig) -> list[Component]:
    return [store_component(_KIND, n_blocks, settings.orders, settings.max_hops, settings.max_match)]


def _components_of(buffer: NDArray[np.uint8], vocab_size: int) -> list[Component]:
    """Layout that a file claims, if it is one that `build` could have made and is as long as the file."""
    if len(buffer) < 16 * WORDS:
        raise SnapshotError("frozen: too short for its header")
    words = buffer[8 * WORDS : 16 * WORDS].view(np.int64)
    orders, hops, top = _orders(words), int(words[S_HOPS]), int(words[S_TOP])
    settings = HashConfig(vocab_size=vocab_size, orders=orders, max_hops=hops, max_match=top)
    components = _components(_n_blocks([int(words[S_BLOCKS]) * BLOCK]), settings)
    if arena_nbytes(components) != len(buffer):
        raise SnapshotError(f"frozen: {len(buffer)} bytes hold no {int(words[S_BLOCKS])} blocks at orders {orders}")
    return components


def _orders(words: NDArray[np.int64]) -> tuple[int, ...]:
    return tuple(words[S_ORDER0 : S_ORDER0 + max(0, min(int(words[S_ORDERS]), WORDS))].tolist())
