"""`suffix-decoding`: counted suffix trees, as Arctic Inference 0.3.0 keeps them and vLLM's `suffix` has them.

A local tree holds the request's own prompt and output, a global tree the outputs of all requests of the
tenant. Every match length proposes the most frequent continuation; its score is the sum of path
probabilities, which are ratios of counts; a match of L tokens drafts at most `max_spec_factor` * L +
`max_spec_offset`. The best score of either tree wins, ties go to the longer match and to the local tree. The
released code and vLLM 0.33.0 differ in these points:

- Arctic forgets one whole response when `max_cached_requests` is exceeded, and none for its size. Here the oldest
  responses go until an eighth of the bound is free, and the tree is built anew, in which equal counts may come in
  another order: with 64 responses kept, about one draft in a hundred is another one. Without eviction all are equal.
- vLLM gives a request up that is absent from one batch and starts it afresh without its prompt's
  continuation; here absence changes nothing. An id that is used again does not evict the response of its
  namesake.
- Arctic shares no prompts; `share="all"` puts the prompt before the response, `share="none"` leaves both out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..caches.arguments import at_least
from ..caches.base import Int32
from ..draft import ONE_Q30, Source
from ..errors import ConfigError, SnapshotError
from .base import Baseline
from .counted_tree import CountedTree, Sequence
from .request import Ask, Found, Request, Row, Text


@dataclass(eq=False, slots=True)
class Response:
    """What the global tree knows of one request."""

    text: Text = field(default_factory=Text)  #: shared tokens, in order
    sequence: Sequence | None = None  #: its place in the tree; None once it was forgotten


class Shared:
    """The responses of one tenant and their tree.

    Parameters
    ----------
    depth : int
        Longest substring counted.
    """

    def __init__(self, depth: int) -> None:
        self.tree = CountedTree(depth)
        self.responses: deque[Response] = deque()
        self.n_tokens = 0

    def open(self) -> Response:
        """Start a response; modifies."""
        response = Response(sequence=self.tree.open())
        self.responses.append(response)
        return response

    def append(self, response: Response, tokens: Int32) -> None:
        """Append to a response, unless it was forgotten; modifies."""
        if response.sequence is not None:
            response.text.append(tokens)
            self.n_tokens += len(tokens)
            self.tree.extend(response.sequence, tokens)

    def forget(self, max_tokens: int, max_responses: int) -> None:
        """Forget the oldest responses until both bounds hold, and build the tree anew; modifies."""
        while self.n_tokens > max_tokens or len(self.responses) > max_responses:
            oldest = self.responses.popleft()
            oldest.sequence = None
            self.n_tokens -= oldest.text.n
        self.tree = CountedTree(self.tree.depth)
        for response in self.responses:
            response.sequence = self.tree.open()
            self.tree.extend(response.sequence, response.text.tokens)


class _State(NamedTuple):
    local: CountedTree
    sequence: Sequence
    response: Response | None


class SuffixDecoding(Baseline):
    """Largest sum of count ratios over all match lengths, in own text or in the tenant's outputs.

    Parameters
    ----------
    max_tree_depth : int
        Longest match plus draft, tokens: 24 in vLLM, 64 in Arctic Inference. Insertion costs that many steps
        a token.
    max_spec_factor : float
        Drafted tokens for each token of the match.
    max_spec_offset : float
        Drafted tokens besides.
    min_token_prob : float
        Least path probability; the larger of this and the caller's `min_prob` holds.
    max_cached_requests : int
        Most responses kept a tenant.
    **common
        As `Baseline` takes them.
    """

    name = "suffix-decoding"

    def __init__(
        self,
        *,
        max_tree_depth: int = 24,
        max_spec_factor: float = 1.0,
        max_spec_offset: float = 0.0,
        min_token_prob: float = 0.1,
        max_cached_requests: int = 10_000,
        **common: Any,
    ) -> None:
        self.depth = at_least(max_tree_depth, "max_tree_depth", 1)
        self.max_cached_requests = at_least(max_cached_requests, "max_cached_requests", 0)
        if max_spec_factor < 0:
            raise ConfigError(f"max_spec_factor: got {max_spec_factor}, allowed 0 or more")
        if not 0.0 <= min_token_prob <= 1.0:
            raise ConfigError(f"min_token_prob: got {min_token_prob}, allowed 0 to 1")
        self.factor, self.offset = np.float32(max_spec_factor), np.float32(max_spec_offset)
        self.min_token_prob = min_token_prob
        self._trial = np.empty((3, 2, self.depth), np.int32)
        self._probs = np.empty((3, self.depth), np.float32)
        super().__init__(**common)

    def _clear(self) -> None:
        super()._clear()
        self._shared: dict[str | None, Shared] = {}

    def _begin(self, request: Request) -> None:
        local = CountedTree(self.depth, n_tokens=len(request.prompt))
        response = None
        if request.share != "none" and self.max_cached_requests:
            if request.tenant not in self._shared:
                self._shared[request.tenant] = Shared(self.depth)
            shared = self._shared[request.tenant]
            response = shared.open()
            if len(shared.responses) > self.max_cached_requests:
                shared.forget(self.capacity_tokens, self.max_cached_requests - self.max_cached_requests // 8)
        request.state = _State(local, local.open(), response)

    def _extend(self, request: Request, start: int) -> None:
        state: _State = request.state
        tokens = request.text.tokens[start:]
        state.local.extend(state.sequence, tokens)
        if state.response is None or (start < len(request.prompt) and request.share != "all"):
            return
        shared = self._shared[request.tenant]
        shared.append(state.response, tokens)
        if shared.n_tokens > self.capacity_tokens:
            shared.forget(self.capacity_tokens - self.capacity_tokens // 8, self.max_cached_requests)

    def _cut(self, request: Request, n_before: int) -> None:
        local = CountedTree(self.depth, n_tokens=request.text.n)
        state = request.state._replace(local=local, sequence=local.open())
        local.extend(state.sequence, request.text.tokens)
        request.state = state
        response = state.response
        if response is not None and response.sequence is not None and response.text.n:
            n_unshared = n_before - response.text.n
            shared = self._shared[request.tenant]
            shared.n_tokens -= response.text.n
            response.text.n = max(request.text.n - n_unshared, 0)
            shared.n_tokens += response.text.n
            shared.forget(self.capacity_tokens, self.max_cached_requests)

    def _propose(self, request: Request, ask: Ask, row: Row, *, commit: bool) -> Found:
        state: _State = request.state
        width = min(ask.width, self.depth) if ask.tree else min(ask.depth, self.depth)
        context = request.text.tokens[-self.depth :]
        min_prob = np.float32(max(self.min_token_prob, ask.min_prob))
        rule = (context, width, self.factor, self.offset, min_prob, ask.tree)
        outs, probs = self._trial, self._probs
        best, source = 0, Source.OWN
        n, match, score = state.local.propose(*rule, outs[0], probs[0], outs[2], probs[2])
        shared = self._shared.get(request.tenant)
        if shared is not None:
            n2, match2, score2 = shared.tree.propose(*rule, outs[1], probs[1], outs[2], probs[2])
            if score2 > score:
                best, source, n, match = 1, Source.SHARED, n2, match2
        row.tokens[:n], row.parents[:n] = outs[best, :, :n]
        row.path_q30[:n] = probs[best, :n] * np.float32(ONE_Q30)
        return Found(n, match, source if match else Source.NONE)

    def _nbytes(self) -> int:
        trees: list[CountedTree] = [request.state.local for request in self._requests.values()]
        trees += [shared.tree for shared in self._shared.values()]
        texts = [response.text for shared in self._shared.values() for response in shared.responses]
        return sum(tree.nbytes for tree in trees) + sum(text.data.nbytes for text in texts)

    def check_integrity(self) -> None:
        super().check_integrity()
        for request in self._requests.values():
            request.state.local.check([request.text.tokens])
        for shared in self._shared.values():
            shared.tree.check([response.text.tokens for response in shared.responses])
            if shared.n_tokens != sum(response.text.n for response in shared.responses):
                raise SnapshotError("shared responses: tokens do not add up")
