"""`rest`: a frozen corpus in a suffix array, as REST (Retrieval-Based Speculative Decoding) searches it.

The longest end of the text, of 16 tokens down to 2, that occurs in the corpus decides. The ten tokens after
each of at most 5,000 occurrences are counted as a tree of beginnings, and the 64 most frequent are drafted.
Nothing is learned from requests. Read in the repository FasterDecoding/REST, whose retriever is in no
package index, so never compared step by step. Differences: it joins documents without a mark between them,
stores 16-bit ids in older versions, and lets the order of a hash table decide which of equally frequent
beginnings are kept; here those come first that are found first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ..caches.arguments import at_least
from ..caches.base import Int32, Tokens
from ..draft import ONE_Q30, Source
from ..errors import CapacityError
from ..kernels import suffix_array as kernels
from .base import Baseline
from .request import NOTHING, Ask, Found, Request, Row


class Rest(Baseline):
    """Most frequent continuations of the longest match in a frozen corpus.

    Parameters
    ----------
    corpus : iterable of token sequences
        Documents, visible to every tenant; `capacity_tokens` tokens at most, one more for each document.
    max_match, min_match : int
        Longest and shortest match looked for, tokens.
    max_found : int
        Most occurrences counted.
    num_tokens : int
        Most tokens drafted, where the caller's `max_draft` allows them.
    max_depth : int
        Tokens counted after each occurrence.
    **common
        As `Baseline` takes them.
    """

    name = "rest"

    def __init__(
        self,
        *,
        corpus: Iterable[Tokens] = (),
        max_match: int = 16,
        min_match: int = 2,
        max_found: int = 5000,
        num_tokens: int = 64,
        max_depth: int = 10,
        **common: Any,
    ) -> None:
        self.min_match = at_least(min_match, "min_match", 1)
        self.max_match = at_least(max_match, "max_match", min_match)
        self.max_found = at_least(max_found, "max_found", 1)
        self.num_tokens = at_least(num_tokens, "num_tokens", 1)
        self.max_depth = at_least(max_depth, "max_depth", 1)
        super().__init__(**common)
        documents = [self._stored([*tokens, -1], "corpus") for tokens in corpus]
        self.text: Int32 = np.concatenate([np.zeros(0, np.int32), *documents])
        if len(self.text) > self.capacity_tokens:
            raise CapacityError(
                f"corpus: got {len(self.text)} tokens, one between documents included, allowed "
                f"{self.capacity_tokens} (capacity_tokens): give less, or raise it"
            )
        self.order = sorted_suffixes(self.text, max_match + max_depth)
        self._n_marks = self._n_placeholders
        self._counts = np.zeros((2, num_tokens), np.int32)
        self._heap = np.zeros((max_found * max_depth, 3), np.int32)
        self._keys = np.zeros(max_found * max_depth)

    def _clear(self) -> None:
        super()._clear()
        self._n_placeholders = getattr(self, "_n_marks", 0)  # the corpus stays

    def _propose(self, request: Request, ask: Ask, row: Row, *, commit: bool) -> Found:
        context = request.text.tokens[-self.max_match :]
        low, high, match = kernels.longest_span(self.text, self.order, context, self.min_match)
        high = min(high, low + self.max_found)
        if high == low:
            return NOTHING
        width, (counts, depths) = min(ask.width, self.num_tokens), self._counts
        scratch = (counts, depths, self._heap, self._keys)
        n = kernels.grow(
            self.text, self.order, low, high, match, width, self.max_depth, row.tokens, row.parents, *scratch
        )
        shares = counts[:n].astype(np.int64) * ONE_Q30 // (high - low)
        row.path_q30[:n] = shares
        n = int(np.count_nonzero(shares >= ask.min_prob * ONE_Q30))  # they fall from token to token
        return Found(n, match, Source.FROZEN)

    def _nbytes(self) -> int:
        return self.text.nbytes + self.order.nbytes


def sorted_suffixes(text: Int32, n_tokens: int) -> Int32:
    """Positions of all suffixes of `text`, sorted by their first `n_tokens` tokens or more; equal ones by position.

    Prefix doubling: ranks by 2k tokens come from pairs of ranks by k tokens.
    """
    rank = np.unique(text, return_inverse=True)[1].astype(np.int64) + 1
    order, k = np.argsort(rank, kind="stable"), 1
    while k < n_tokens and len(text):
        second = np.zeros(len(text), np.int64)
        second[: max(len(text) - k, 0)] = rank[k:]
        key = rank * (len(text) + 1) + second
        order = np.argsort(key, kind="stable")
        ordered = key[order]
        rank[order] = np.cumsum(np.concatenate([[1], ordered[1:] != ordered[:-1]]))
        k *= 2
    return order.astype(np.int32)
