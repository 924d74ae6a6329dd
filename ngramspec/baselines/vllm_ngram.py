"""`vllm-ngram`: the longest earlier match of the last few tokens, as vLLM 0.33.0 proposes it on a CPU.

The longest run of at most `max_n` last tokens that occurs earlier in the request's own text decides, if it
has `min_n` tokens; of several places the earliest. What followed is drafted, up to the end of the text. vLLM
sets both lengths to 5 where neither is given, and takes the number of drafted tokens from the user: here,
the caller's `max_draft`. It stops at the longest sequence the model allows; here, `remaining` also leaves a
place for the bonus token.
"""

from __future__ import annotations

from typing import Any

from .._jit import kernel
from ..caches.arguments import at_least
from ..caches.base import Int32
from ..errors import ConfigError
from .base import Baseline
from .request import NOTHING, Ask, Found, Request, Row, write_chain

TIES = ("oldest", "recent")


class VllmNgram(Baseline):
    """Longest match of `min_n` to `max_n` last tokens.

    Parameters
    ----------
    min_n : int
        Shortest match that is drafted from (`prompt_lookup_min`).
    max_n : int
        Longest match looked for (`prompt_lookup_max`).
    tie : {"oldest", "recent"}
        Which of several longest matches decides; vLLM takes the oldest.
    **common
        As `Baseline` takes them.
    """

    name = "vllm-ngram"

    def __init__(self, *, min_n: int = 5, max_n: int = 5, tie: str = "oldest", **common: Any) -> None:
        super().__init__(**common)
        self.min_n = at_least(min_n, "min_n", 1)
        self.max_n = at_least(max_n, "max_n", min_n)
        if tie not in TIES:
            raise ConfigError(f"tie: got {tie!r}, allowed {', '.join(map(repr, TIES))}")
        self.recent = tie == "recent"

    def _propose(self, request: Request, ask: Ask, row: Row, *, commit: bool) -> Found:
        text = request.text.tokens
        n_match, start = longest(text, self.max_n, self.recent)
        if n_match < self.min_n:
            return NOTHING
        return Found(write_chain(row, text[start : start + min(ask.width, ask.depth)]), n_match)


@kernel
def longest(text: Int32, max_n: int, recent: bool) -> tuple[int, int]:
    """Length of the longest earlier match of at most `max_n` last tokens, and where it continues."""
    last = len(text) - 1
    best, start = 0, 0
    for end in range(last):
        if text[end] != text[last]:
            continue
        n = 1
        while n < max_n and n <= end and text[end - n] == text[last - n]:
            n += 1
        if n > best or (recent and n == best):
            best, start = n, end + 1
    return best, start
