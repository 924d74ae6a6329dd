"""`sglang-ngram`: a trie of windows of 18 tokens, as SGLang 0.5.23 keeps it (`--speculative-algorithm NGRAM`).

Every decode step inserts each run of tokens within the last `max_trie_depth` tokens that the draft of that
step saw: so the trie is one step behind, knows of a prompt only its end, and counts a run as often as it
stays in that window. Drafts hang below every place where the last tokens end in the trie, the longest run
first; `BFS` takes children by recency, fewer the deeper, `PROB` by frequency. Where this differs from the
released code:

- SGLang fills a draft of fewer than `num_draft_tokens` rows with token 0, which can be accepted; here a
  draft says how long it is. It drafts in the order of a hash table, here in the order found: the same tree.
- An external corpus (suffix automaton) is left out.
- Outputs are shared together with the last tokens of their prompts. A request with `share="none"` is not
  inserted at all. Nothing is taken back when a request is truncated, since the trie does not know whose its
  tokens are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..caches.arguments import at_least
from ..caches.base import Int32
from ..draft import ONE_Q30, Source
from ..errors import ConfigError, SnapshotError
from ..kernels import lru_trie as kernels
from ..kernels.children import PARENT, TOKEN, find
from .base import Baseline
from .request import Ask, Found, Request, Row

#: Nodes of a released server with default settings.
MAX_NODES = 10_000_000

MATCH_TYPES = ("BFS", "PROB")


class Trie:
    """A trie of at most `n_nodes` nodes.

    Parameters
    ----------
    n_nodes : int
        Nodes, the root among them.
    """

    def __init__(self, n_nodes: int) -> None:
        self.meta = np.zeros(kernels.N_META, np.int64)
        self.meta[[kernels.N_NODES, kernels.N_USED]] = 1
        self.nodes = np.zeros((n_nodes, kernels.N_FIELDS), np.int32)
        self.table = np.zeros(1 << (n_nodes + n_nodes // 2).bit_length(), np.int32)

    def check(self) -> None:
        """Check that every node is listed, found and not newer than its parent; raises `SnapshotError`."""
        by_age, node = [], int(self.meta[kernels.OLDEST])
        while node:
            by_age.append(node)
            node = int(self.nodes[node, kernels.NEWER])
        age = {node: i for i, node in enumerate(by_age)}
        if len(by_age) != self.meta[kernels.N_USED] - 1:
            raise SnapshotError("trie: nodes by age do not add up")
        for node in by_age:
            parent, token = int(self.nodes[node, PARENT]), int(self.nodes[node, TOKEN])
            if find(self.nodes, self.table, parent, token) != node:
                raise SnapshotError(f"trie: node {node} is not found under its parent")
            if parent and age[parent] < age[node]:
                raise SnapshotError(f"trie: node {node} is newer than its parent")


@dataclass(slots=True)
class _State:
    anchors: Int32
    memo: np.ndarray[Any, np.dtype[np.int64]]


class SglangNgram(Baseline):
    """Tree below every match of the last tokens in a trie that all requests of a tenant feed.

    Parameters
    ----------
    num_draft_tokens : int
        Rows of a verify step, the last committed token among them: one less is the most that is drafted.
    match_type : {"BFS", "PROB"}
        Children by recency or by frequency.
    max_trie_depth : int
        Tokens of the window, and depth of the trie.
    min_bfs_breadth, max_bfs_breadth : int
        Children of a node at full depth and at the root (`BFS`); the latter of every node (`PROB`).
    capacity_nodes : int, optional
        Nodes of the trie of a tenant. None: as many as `capacity_tokens` tokens can need, at most ten
        million, which is what a server has by default.
    index_prompts : bool
        Insert whole prompts as well, which SGLang does not.
    **common
        As `Baseline` takes them.
    """

    name = "sglang-ngram"

    def __init__(
        self,
        *,
        num_draft_tokens: int = 12,
        match_type: str = "BFS",
        max_trie_depth: int = 18,
        min_bfs_breadth: int = 1,
        max_bfs_breadth: int = 10,
        capacity_nodes: int | None = None,
        index_prompts: bool = False,
        **common: Any,
    ) -> None:
        self.width = at_least(num_draft_tokens, "num_draft_tokens", 2) - 1
        self.depth = at_least(max_trie_depth, "max_trie_depth", 2)
        self.low = at_least(min_bfs_breadth, "min_bfs_breadth", 1)
        self.high = at_least(max_bfs_breadth, "max_bfs_breadth", min_bfs_breadth)
        if match_type not in MATCH_TYPES:
            raise ConfigError(f"match_type: got {match_type!r}, allowed {', '.join(map(repr, MATCH_TYPES))}")
        self.recent = match_type == "BFS"
        self.index_prompts = index_prompts
        super().__init__(**common)
        most = min(MAX_NODES, self.capacity_tokens * self.depth + 1)
        n_nodes = most if capacity_nodes is None else capacity_nodes
        self.n_nodes = at_least(n_nodes, "capacity_nodes", self.depth + 1)
        self._path = np.zeros(self.depth, np.int32)
        self._queue = np.zeros((self.width + 1, 2), np.int32)
        self._breadths = np.zeros(self.width + 1)
        self._top = np.zeros(self.high, np.int32)
        self._heap = np.zeros(((self.width + 1) * self.high, 3), np.int32)
        self._heap_probs = np.zeros((self.width + 1) * self.high)

    def _clear(self) -> None:
        super()._clear()
        self._tries: dict[str | None, Trie] = {}

    def _begin(self, request: Request) -> None:
        request.state = self._fresh()
        if request.tenant not in self._tries:
            self._tries[request.tenant] = Trie(self.n_nodes)

    def _fresh(self) -> _State:
        return _State(np.zeros((self.depth, 2), np.int32), np.zeros(2, np.int64))

    def _extend(self, request: Request, start: int) -> None:
        text, n_prompt = request.text.tokens, len(request.prompt)
        if start >= n_prompt and request.drafted:
            window = text[max(start - self.depth, 0) : start]
        elif start < n_prompt == len(text) and self.index_prompts:
            window = text
        else:
            return
        if request.share != "none":
            trie = self._tries[request.tenant]
            kernels.insert(trie.meta, trie.nodes, trie.table, window, self.depth, self._path)

    def _cut(self, request: Request, n_before: int) -> None:
        request.state = self._fresh()

    def _propose(self, request: Request, ask: Ask, row: Row, *, commit: bool) -> Found:
        state, trie, text = request.state, self._tries[request.tenant], request.text.tokens
        if not commit:
            state = _State(state.anchors.copy(), state.memo.copy())
        anchors, memo = state.anchors, state.memo
        kernels.move_anchors(trie.nodes, trie.table, text[-self.depth :], len(text), anchors, memo)
        width = min(ask.width, self.width)
        rule = (trie.nodes, anchors, int(memo[kernels.N_ANCHORS]), width)
        out = (row.tokens, row.parents)
        if self.recent:
            n, match = kernels.grow_recent(*rule, self.low, self.high, *out, self._queue, self._breadths)
        else:
            n, match = kernels.grow_frequent(*rule, self.high, *out, self._top, self._heap, self._heap_probs)
        row.path_q30[:n] = ONE_Q30
        return Found(n, match, Source.SHARED if match else Source.NONE)

    def _nbytes(self) -> int:
        tries = [array for trie in self._tries.values() for array in (trie.nodes, trie.table)]
        return sum(array.nbytes for array in tries) + len(self._requests) * (8 * self.depth + 16)

    def check_integrity(self) -> None:
        super().check_integrity()
        for trie in self._tries.values():
            trie.check()
