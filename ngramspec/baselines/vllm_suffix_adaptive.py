"""`vllm-suffix-adaptive`: suffix matches with learned acceptance, as vLLM's main branch drafts on the GPU.

Read in its sources (`v1/worker/gpu/spec_decode/suffix`), which no release holds and no CPU runs: never
compared step by step. The longest match decides, of the request's own text (the latest place, copied on) or
of the responses that other requests of the tenant have finished (a vote among up to 16 places); ties go to
the own text. How often each position of such a draft was accepted is learned for each source and class of
match length, and halved every 1,024 steps; the product along the draft is its path probability.

- vLLM verifies, over the whole batch, the tokens with the highest path probabilities, as many as a profile
  of step times says is best. That is a threshold that all requests share: here, the caller's `min_prob`.
- It fills unused slots with the last token; here a draft says how long it is. What was cut off teaches
  nothing in either.
- A response enters with the last 3 tokens of its prompt, so that `share="outputs"` shares those too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..caches.arguments import at_least
from ..caches.base import Int32
from ..draft import ONE_Q30, Source
from ..kernels import suffix_ring as kernels
from .base import Baseline
from .request import NOTHING, Ask, Found, Request, Row, write_chain
from .vllm_ngram import longest

Int64 = NDArray[np.int64]

PROMPT_TOKENS = 3
HALF_LIFE_STEPS = 1024

#: Longest match of each class but the last.
CLASSES = np.array([1, 2, 3, 4, 5, 6, 10, 20])


@dataclass(slots=True)
class _Known:
    """What is known for one tenant."""

    corpus: Int32
    table: Int64
    accepted: Int64  # int64[2, 9, num_tokens]: by source, class of match length and position
    observed: Int64
    state: Int64 = field(default_factory=lambda: np.zeros(2, np.int64))


class VllmSuffixAdaptive(Baseline):
    """Longest match in own text or finished responses, with a probability learned for each position.

    Parameters
    ----------
    num_tokens : int
        Most tokens drafted (`num_speculative_tokens`), where the caller's `max_draft` allows them.
    max_depth : int
        Longest match that counts (`suffix_decoding_max_tree_depth`).
    **common
        As `Baseline` takes them; `capacity_tokens` is the size of a tenant's ring of responses.
    """

    name = "vllm-suffix-adaptive"

    def __init__(self, *, num_tokens: int = 24, max_depth: int = 24, **common: Any) -> None:
        self.num_tokens = at_least(num_tokens, "num_tokens", 1)
        self.max_depth = at_least(max_depth, "max_depth", 1)
        self._candidates = np.zeros((kernels.N_CANDIDATES, 4), np.int64)
        self._out = np.zeros((2, num_tokens), np.int32)
        super().__init__(**common)

    def _clear(self) -> None:
        super()._clear()
        self._known: dict[str | None, _Known] = {}
        self._n_steps = 0

    def _begin(self, request: Request) -> None:
        if request.tenant not in self._known:
            n_buckets = 1 << (max(16, self.capacity_tokens // 4) - 1).bit_length()
            shape = (2, len(CLASSES) + 1, self.num_tokens)
            self._known[request.tenant] = _Known(
                np.full(self.capacity_tokens, kernels.SEPARATOR, np.int32),
                np.zeros((2, n_buckets, kernels.SLOTS), np.int64),
                np.zeros(shape, np.int64),
                np.zeros(shape, np.int64),
            )

    def _step(self) -> None:
        self._n_steps += 1
        if self._n_steps % HALF_LIFE_STEPS == 0:
            for known in self._known.values():
                known.accepted >>= 1
                known.observed >>= 1

    def _propose(self, request: Request, ask: Ask, row: Row, *, commit: bool) -> Found:
        known, text = self._known[request.tenant], request.text.tokens
        width = min(ask.width, self.num_tokens)
        match, start = longest(text, self.max_depth, True)
        chain, source = text[start : start + width], Source.OWN
        n, shared_match = kernels.draft(
            known.corpus, known.table, text, self.max_depth, width, self._candidates, *self._out
        )
        if shared_match > match:
            chain, source, match = self._out[1, :n], Source.SHARED, shared_match
        if match == 0:
            return NOTHING
        column = (int(source is Source.SHARED), int(np.searchsorted(CLASSES, match)))
        chain = chain[: ask.depth]
        accepted, observed = known.accepted[column], known.observed[column]
        probs = np.cumprod((accepted[: len(chain)] + 1) / (observed[: len(chain)] + 2))
        n = int(np.count_nonzero(probs >= ask.min_prob))
        write_chain(row, chain[:n])
        row.path_q30[:n] = probs[:n] * ONE_Q30
        if commit:
            request.state = column
        return Found(n, match, source)

    def _extend(self, request: Request, start: int) -> None:
        offered = request.draft[0]
        if start < len(request.prompt) or not request.drafted or len(offered) == 0:
            return
        emitted = request.text.tokens[start : start + len(offered)]
        same = offered[: len(emitted)] == emitted
        n_accepted = len(same) if same.all() else int(same.argmin())
        known = self._known[request.tenant]
        known.accepted[request.state][:n_accepted] += 1
        known.observed[request.state][: min(n_accepted + 1, len(emitted))] += 1

    def _end(self, request: Request) -> None:
        known = self._known[request.tenant]
        if request.share != "none":
            start = max(len(request.prompt) - PROMPT_TOKENS, 0)
            kernels.ingest(known.state, known.corpus, known.table, request.text.tokens[start:])

    def _nbytes(self) -> int:
        return sum(
            array.nbytes
            for known in self._known.values()
            for array in (known.corpus, known.table, known.accepted, known.observed)
        )
