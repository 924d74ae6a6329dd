"""`prompt-lookup`: the earliest earlier place with the same last tokens, as transformers 5.24.0 looks it up.

The last two tokens are looked for in the request's own text; where they occur nowhere else, the last one.
What followed the earliest occurrence is drafted, ten tokens at most, up to but without the first EOS; a
match followed by EOS at once drafts nothing, shorter matches are not tried then. Only `remaining` differs
from the released code, which drafts past `max_new_tokens` (transformers#46993). Logits processors that
forbid tokens have no counterpart here.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._jit import kernel
from ..caches.arguments import at_least
from ..caches.base import Int32
from .base import Baseline
from .request import NOTHING, Ask, Found, Request, Row, write_chain


class PromptLookup(Baseline):
    """Earliest match of the last `max_ngram` tokens or fewer, fixed length.

    Parameters
    ----------
    max_ngram : int
        Tokens of context looked for at first (`max_matching_ngram_size`).
    num_tokens : int
        Most tokens drafted (`prompt_lookup_num_tokens`), where the caller's `max_draft` allows them.
    **common
        As `Baseline` takes them.
    """

    name = "prompt-lookup"

    def __init__(self, *, max_ngram: int = 2, num_tokens: int = 10, **common: Any) -> None:
        super().__init__(**common)
        self.max_ngram = at_least(max_ngram, "max_ngram", 1)
        self.num_tokens = at_least(num_tokens, "num_tokens", 1)

    def _propose(self, request: Request, ask: Ask, row: Row, *, commit: bool) -> Found:
        text = request.text.tokens
        n_match, start = earliest(text, self.max_ngram)
        if n_match == 0:
            return NOTHING
        found = text[start : start + min(self.num_tokens, ask.width, ask.depth)]
        ends = np.flatnonzero(np.isin(found, self.eos_ids))
        return Found(write_chain(row, found[: ends[0]] if len(ends) else found), n_match)


@kernel
def earliest(text: Int32, max_ngram: int) -> tuple[int, int]:
    """Longest n <= `max_ngram` whose last n tokens occur earlier, and where the earliest place continues."""
    total = len(text)
    for n in range(min(max_ngram, total - 1), 0, -1):
        for start in range(total - n):
            same = True
            for i in range(n):
                if text[start + i] != text[total - n + i]:
                    same = False
                    break
            if same:
                return n, start + n
    return 0, 0
