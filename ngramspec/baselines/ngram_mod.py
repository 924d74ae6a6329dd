"""`ngram-mod`: one hash of 24 tokens, one follower, as llama.cpp keeps it in llama-cpp-python 0.3.36.

A table of 16 MiB maps the hash of `n_match` tokens to the token that last followed them; keys are not kept,
so that a collision drafts what was never seen. All requests of a tenant write to it: prompts when they are
complete, an output when a draft is asked for and more than 32 tokens of it are new. A draft follows the
table token by token, and is dropped where the table ends within `n_min` tokens. The table is emptied when a
prompt was entered and more than a quarter is used, and when five drafts in a row of requests in one slot
were accepted by less than a quarter.

`share="none"` enters nothing. Nothing is taken back when a request is truncated, since the table does not
know whose its tokens are. `capacity_tokens` plays no part, since the table has its size.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ..caches.arguments import at_least
from ..draft import Source
from ..kernels import ngram_mod as kernels
from .base import Baseline
from .request import NOTHING, Ask, Found, Request, Row, write_chain

#: An output is entered when more than so many tokens of it are new.
PIECE = 32

MAX_USED = 0.25
LOW_ACCEPTANCE = 0.25
MAX_LOW = 5


class Table:
    """The table of one tenant.

    Parameters
    ----------
    n_entries : int
        Tokens it can hold, 4 bytes each.
    """

    def __init__(self, n_entries: int) -> None:
        self.entries = np.zeros(n_entries, np.int32)
        self.used = np.zeros(1, np.int64)

        self.n_low: dict[int, int] = {}  # by slot: drafts in a row of which little was accepted

    def empty(self) -> None:
        """Forget everything; modifies."""
        self.entries[:] = 0
        self.used[0] = 0


@dataclass(slots=True)
class _State:
    n_entered: int = 0  # n-grams of its text entered, from the start
    n_drafted: int = 0  # tokens of the last draft, before `remaining` cut it


class NgramMod(Baseline):
    """Chain along a keyless table of last followers.

    Parameters
    ----------
    n_match : int
        Tokens hashed (`--spec-ngram-mod-n-match`).
    n_min : int
        Tokens that the table must give, or nothing is drafted (`--spec-ngram-mod-n-min`).
    n_max : int
        Most tokens drafted (`--spec-ngram-mod-n-max`), where the caller's `max_draft` allows them.
    n_entries : int
        Entries of the table, 4 bytes each.
    **common
        As `Baseline` takes them.
    """

    name = "ngram-mod"

    def __init__(
        self,
        *,
        n_match: int = 24,
        n_min: int = 48,
        n_max: int = 64,
        n_entries: int = 4 * 1024 * 1024,
        **common: Any,
    ) -> None:
        self.n_match = at_least(n_match, "n_match", 1)
        self.n_min = at_least(n_min, "n_min", 0)
        self.n_max = at_least(n_max, "n_max", 1)
        self.n_entries = at_least(n_entries, "n_entries", 1)
        self._out = np.zeros(n_match + n_max, np.int32)
        super().__init__(**common)

    def _clear(self) -> None:
        super()._clear()
        self._tables: dict[str | None, Table] = {}

    def _begin(self, request: Request) -> None:
        request.state = _State()
        if request.tenant not in self._tables:
            self._tables[request.tenant] = Table(self.n_entries)

    def _extend(self, request: Request, start: int) -> None:
        state, table = request.state, self._tables[request.tenant]
        if start < len(request.prompt):
            if request.ready:
                self._enter(request, request.text.n)
                if table.used[0] > MAX_USED * self.n_entries:
                    table.empty()
        elif request.drafted and state.n_drafted:
            self._judge(request, table, start)

    def _enter(self, request: Request, n_tokens: int) -> None:
        """Enter the n-grams of the first `n_tokens` tokens that are not entered yet."""
        state, table = request.state, self._tables[request.tenant]
        if n_tokens >= self.n_match:
            end = n_tokens - self.n_match
            if request.share != "none":
                kernels.add(table.entries, table.used, request.text.tokens, state.n_entered, end, self.n_match)
            state.n_entered = end

    def _judge(self, request: Request, table: Table, start: int) -> None:
        """Count drafts of which little was accepted, and empty the table when there are too many in a row."""
        state, drafted = request.state, request.draft[0]
        emitted = request.text.tokens[start : start + len(drafted)]
        same = drafted[: len(emitted)] == emitted
        n_accepted = len(same) if same.all() else int(same.argmin())
        n_low = table.n_low.get(request.slot, 0) + 1 if n_accepted < LOW_ACCEPTANCE * state.n_drafted else 0
        if n_low >= MAX_LOW:
            table.empty()
            n_low = state.n_entered = 0
        table.n_low[request.slot] = n_low

    def _cut(self, request: Request, n_before: int) -> None:
        entered = min(request.state.n_entered, max(request.text.n - self.n_match, 0))
        request.state = _State(n_entered=entered)

    def _propose(self, request: Request, ask: Ask, row: Row, *, commit: bool) -> Found:
        state, text, table = request.state, request.text.tokens, self._tables[request.tenant]
        n_evaluated = len(text) - 1
        if n_evaluated < self.n_match:
            return NOTHING
        if state.n_entered + PIECE < n_evaluated and commit:
            self._enter(request, n_evaluated)
        width = min(self.n_max, ask.width)
        n = kernels.follow(table.entries, text, self.n_match, width, self._out)
        if n < min(self.n_min, width):
            n = 0
        if commit:
            state.n_drafted = n
        if n == 0:
            return NOTHING
        chain = self._out[self.n_match : self.n_match + min(n, ask.depth)]
        return Found(write_chain(row, chain), self.n_match, Source.SHARED)

    def _nbytes(self) -> int:
        return sum(table.entries.nbytes for table in self._tables.values())
