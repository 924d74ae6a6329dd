"""A counted suffix tree in arrays that grow: `kernels/counted_tree.py` with memory and text."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..caches.base import Int32
from ..errors import SnapshotError
from ..kernels import counted_tree as kernels
from ..kernels.children import TOKEN, find

Float32 = NDArray[np.float32]

#: Text is given to a sequence in pieces of so many tokens, each with its last `depth` tokens repeated ahead.
PIECE = 256


@dataclass(slots=True)
class Sequence:
    """One text that grows inside a tree."""

    live: Int32  #: int32[1 + depth], nodes its suffixes end at
    position: int = 0  #: where its next token goes
    end: int = 0  #: where its piece of text ends


class CountedTree:
    """Counts of every substring of at most `depth` tokens of the sequences given to it.

    Parameters
    ----------
    depth : int
        Longest substring counted, tokens.
    n_tokens : int
        Tokens expected; it grows beyond.
    """

    def __init__(self, depth: int, n_tokens: int = 0) -> None:
        self.depth = depth
        self.meta = np.zeros(kernels.N_META, np.int64)
        self.meta[[kernels.N_NODES, kernels.N_GROUPS]] = 1
        self._n_text = 0
        self._text: Int32 = np.zeros(n_tokens + 2 * depth, np.int32)
        self._nodes: Int32 = np.zeros((0, kernels.N_FIELDS), np.int32)
        self._groups: Int32 = np.zeros((0, 2), np.int32)
        self._allot(n_tokens + n_tokens // 2 + 4 * depth)
        self._heap = np.zeros((0, 3), np.int32)
        self._heap_probs = np.zeros(0, np.float32)

    def _allot(self, n_nodes: int) -> None:
        """Room for `n_nodes` nodes and as many groups, the present ones kept; modifies."""
        self._nodes = _grown(self._nodes, n_nodes)
        self._groups = _grown(self._groups, n_nodes)
        self._table = np.zeros(1 << (2 * n_nodes).bit_length(), np.int32)
        kernels.rehash(self.meta, self._nodes, self._table)

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return self._nodes.nbytes + self._groups.nbytes + self._table.nbytes + self._text.nbytes

    def open(self) -> Sequence:
        """Start a sequence; modifies."""
        return Sequence(np.zeros(1 + self.depth, np.int32))

    def extend(self, sequence: Sequence, tokens: Int32) -> None:
        """Append tokens to a sequence; modifies."""
        while len(tokens):
            if sequence.position == sequence.end:
                self._add_piece(sequence, len(tokens))
            n = min(len(tokens), sequence.end - sequence.position)
            start, end = sequence.position, sequence.position + n
            self._text[start:end] = tokens[:n]
            while start < end:
                start = kernels.extend(
                    self.meta,
                    self._nodes,
                    self._groups,
                    self._table,
                    self._text,
                    sequence.live,
                    start,
                    end,
                )
                if start < end:
                    self._allot(2 * len(self._nodes))
            sequence.position = end
            tokens = tokens[n:]

    def _add_piece(self, sequence: Sequence, n_tokens: int) -> None:
        """More text for a sequence: at its end where it is the last, else a new piece behind its last tokens."""
        ahead = 0 if sequence.position == self._n_text else min(sequence.position, self.depth)
        start = self._n_text
        self._n_text += ahead + max(n_tokens, PIECE)
        if self._n_text > len(self._text):
            self._text = _grown(self._text, max(self._n_text, 2 * len(self._text)))
        self._text[start : start + ahead] = self._text[sequence.position - ahead : sequence.position]
        sequence.position, sequence.end = start + ahead, self._n_text

    def propose(
        self,
        context: Int32,
        width: int,
        factor: np.float32,
        offset: np.float32,
        min_prob: np.float32,
        tree: bool,
        out: Int32,
        probs: Float32,
        trial: Int32,
        trial_probs: Float32,
    ) -> tuple[int, int, float]:
        """The best draft over all match lengths, as `kernels.propose` says. Does not modify.

        Parameters
        ----------
        context : int32[n]
            Last tokens, `depth` at most.
        width : int
            Most tokens to draft.
        factor, offset : float32
            A match of L tokens drafts at most `factor` * L + `offset`.
        min_prob : float32
            Least path probability.
        tree : bool
            A tree, or a chain.
        out, probs : int32[2, width], float32[width]
            Receive tokens, parents and path probabilities.
        trial, trial_probs : int32[2, width], float32[width]
            Scratch.

        Returns
        -------
        tuple of int, int and float
            Number of tokens, match length, and sum of path probabilities.
        """
        n_heap = (width + 1) * kernels.MAX_CHILDREN
        if tree and len(self._heap) < n_heap:
            self._heap = np.zeros((n_heap, 3), np.int32)
            self._heap_probs = np.zeros(n_heap, np.float32)
        n, match, score = kernels.propose(
            self._nodes,
            self._table,
            self._text,
            context,
            width,
            factor,
            offset,
            min_prob,
            tree,
            self._heap,
            self._heap_probs,
            out,
            probs,
            trial,
            trial_probs,
        )
        return n, match, score

    def check(self, texts: list[Int32]) -> None:
        """Compare with a plain count over `texts`, which must be all sequences; raises `SnapshotError`."""
        counted = Counter(
            tuple(text[start:end].tolist())
            for text in texts
            for start in range(len(text))
            for end in range(start + 1, min(start + self.depth, len(text)) + 1)
        )
        seen: dict[tuple[int, ...], int] = {}
        stack: list[tuple[int, tuple[int, ...]]] = [(0, ())]
        while stack:
            node, path = stack.pop()
            count, child = int(self._nodes[node, kernels.COUNT]), self._nodes[node, kernels.FIRST]
            ref, before = self._nodes[node, kernels.REF], None
            for token in self._text[ref : ref + self._nodes[node, kernels.LENGTH]].tolist():
                path = (*path, token)
                seen[path] = count
            while child:
                n = int(self._nodes[child, kernels.COUNT])
                if n < 1 or (before is not None and n > before) or (node and n >= count):
                    raise SnapshotError(f"counted tree: node {child} has count {n}, out of order")
                if find(self._nodes, self._table, node, int(self._nodes[child, TOKEN])) != child:
                    raise SnapshotError(f"counted tree: node {child} is not found under its parent")
                stack.append((int(child), path))
                child, before = self._nodes[child, kernels.NEXT], n
        if seen != dict(counted):
            raise SnapshotError("counted tree: counts differ from those of its texts")


def _grown(array: Int32, n: int) -> Int32:
    """A copy with `n` rows, zero beyond the present ones."""
    grown = np.zeros((n, *array.shape[1:]), array.dtype)
    grown[: len(array)] = array
    return grown
