"""What bounds a draft before its content does, and what is remembered of it."""

from .._jit import kernel
from ..arena import (
    LIVE,
    MAX_ROOTS,
    R_DRAFTS,
    R_REASON0,
    R_ROWS,
    T_LAST_N,
    T_LAST_STOP,
    T_LENGTH,
    T_N_BANNED,
    T_N_ROOTS,
    T_PROMPT,
    T_ROOTS,
    T_STATE,
)
from ..draft import Reason
from .requests import row_at
from .tree import N_PARENT, N_TOKEN

DRAFTED, TOO_SHORT, NO_MATCH = int(Reason.DRAFTED), int(Reason.TOO_SHORT), int(Reason.NO_MATCH)
BELOW_MIN, BUDGET, LENGTH_LIMIT = int(Reason.BELOW_MIN), int(Reason.BUDGET), int(Reason.LENGTH_LIMIT)


@kernel
def bad_slot(hr, m, slots):
    """Index of the first slot that no running request has, -1 when all are fine."""
    for i in range(len(slots)):
        row = int(slots[i])
        if row < 0 or row >= hr[R_ROWS] or m[row_at(hr, row) + T_STATE] != LIVE:
            return i
    return -1


@kernel
def bad_span(offsets, n, n_tokens):
    """Index of the first of `n` spans that does not lie within the tokens, -1 when all do."""
    for i in range(n):
        if offsets[i] < 0 or offsets[i + 1] < offsets[i] or offsets[i + 1] > n_tokens:
            return i
    return -1


@kernel
def empty_reason(hr, m, row, max_draft, remaining):
    """Why nothing may be drafted for this row, `DRAFTED` when something may."""
    if max_draft <= 0:
        return BUDGET
    if remaining >= 0 and remaining <= 1:
        return LENGTH_LIMIT
    r = row_at(hr, row)
    if m[r + T_LENGTH] == 0 or m[r + T_LENGTH] < m[r + T_PROMPT]:  # the prompt is still being ingested
        return TOO_SHORT
    return DRAFTED


@kernel
def stopped_by(n, max_draft, depth_cut, refused):
    """What ended a draft of `n` tokens: the reason of its size, or of its emptiness."""
    if n >= max_draft:
        return BUDGET
    if depth_cut:
        return LENGTH_LIMIT
    return BELOW_MIN if refused else NO_MATCH


@kernel
def remember(hr, m, row, t, n, stop):
    """Keep what ended a draft, and its first tokens, so that a refusal can ban them; of too many, their number."""
    r = row_at(hr, row)
    m[r + T_LAST_N], m[r + T_LAST_STOP] = n, stop
    n_roots = 0
    for i in range(1, n + 1):
        if t[N_PARENT, i] == 0:
            if n_roots < MAX_ROOTS:
                m[r + T_ROOTS + n_roots] = t[N_TOKEN, i]
            n_roots += 1
    m[r + T_N_ROOTS] = n_roots


@kernel
def count_drafts(hr, reason, n):
    """Count `n` drafts by reason; apart from drafting, so that look-ups may run on several threads."""
    for i in range(n):
        hr[R_DRAFTS] += 1
        hr[R_REASON0 + reason[i]] += 1


@kernel
def tally(n_draft, sources, reason, n, by_source, by_reason):
    """Add `n` drafts to counts by reason, and their tokens by source; returns (tokens, drafts that hold any)."""
    tokens, with_draft = 0, 0
    for i in range(n):
        by_reason[reason[i]] += 1
        tokens += n_draft[i]
        with_draft += 1 if n_draft[i] > 0 else 0
        for j in range(n_draft[i]):
            by_source[sources[i, j]] += 1
    return tokens, with_draft


@kernel
def progress(hr, m, row):
    """Tokens were emitted: nothing is banned any more."""
    r = row_at(hr, row)
    m[r + T_N_BANNED], m[r + T_N_ROOTS] = 0, 0
