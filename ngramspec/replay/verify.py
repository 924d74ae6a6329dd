"""The reference verifier: what a verify step accepts and emits, as `kernels/verify.py` computes it for a whole batch.

A draft that depends on the past alone is accepted by rejection sampling exactly as often as the recorded sample
agrees with it, so that a recorded continuation decides. One step emits the accepted tokens and one bonus token, cut at
the end: the first EOS, `max_tokens`, or the end of the record. Drafts past the end are neither accepted nor rejected,
and no bonus is credited there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .trace import Int64, Trace


class Verified(NamedTuple):
    """What one verify step did."""

    accepted: list[int]  #: indices of the accepted draft tokens, parent before child
    emitted: list[int]  #: tokens emitted: the accepted ones and, unless the end cut it off, the bonus
    ended: bool  #: nothing is left to emit


def verify(
    tokens: Sequence[int] | NDArray[np.integer[Any]],
    parents: Sequence[int] | NDArray[np.integer[Any]],
    continuation: Sequence[int] | NDArray[np.integer[Any]],
    *,
    eos_ids: Collection[int] = (),
    max_tokens: int | None = None,
) -> Verified:
    """Verify one draft against the recorded continuation.

    Parameters
    ----------
    tokens : sequence of int
        Drafted ids, every parent before its children, no two children of one parent alike.
    parents : sequence of int
        Index of each token's parent in `tokens`; -1 is the last committed token.
    continuation : sequence of int
        What the record says comes next.
    eos_ids : collection of int
        The output ends after any of these.
    max_tokens : int, optional
        Tokens that may still be emitted.

    Returns
    -------
    Verified
        Accepted path, emitted tokens, and whether the output ended.

    Examples
    --------
    >>> from ngramspec.replay import verify
    >>> verify(tokens=[5, 6, 7], parents=[-1, 0, -1], continuation=[5, 9, 9])
    Verified(accepted=[0], emitted=[5, 9], ended=False)
    """
    left = end_of(continuation, eos_ids, max_tokens)
    accepted: list[int] = []
    at = -1
    while len(accepted) < left:
        wanted = continuation[len(accepted)]
        children = [i for i in range(len(tokens)) if parents[i] == at and tokens[i] == wanted]
        if not children:
            break
        at = children[0]
        accepted.append(at)
    emitted = [int(token) for token in continuation[: min(len(accepted) + 1, left)]]
    return Verified(accepted, emitted, len(emitted) == left)


def end_of(
    output: Sequence[int] | NDArray[np.integer[Any]], eos_ids: Collection[int], max_tokens: int | None = None
) -> int:
    """How many tokens of `output` are emitted: up to the first EOS, which is one of them, and `max_tokens`."""
    left = len(output) if max_tokens is None else min(len(output), max_tokens)
    return next((i + 1 for i in range(left) if output[i] in eos_ids), left)


def output_ends(trace: Trace, eos_ids: Collection[int] | None = None, max_tokens: int | None = None) -> Int64:
    """Where each row's output ends in `trace.output.tokens`, as `end_of` says.

    Parameters
    ----------
    trace : Trace
        Recorded requests.
    eos_ids : collection of int, optional
        Ids that end every row's output. None: those that the trace records, row by row.
    max_tokens : int, optional
        Most tokens a row.

    Returns
    -------
    int64[n_rows]
        Offsets into `trace.output.tokens`, exclusive.
    """
    starts, ends = trace.output.offsets[:-1], trace.output.offsets[1:].copy()
    if max_tokens is not None:
        np.minimum(ends, starts + max_tokens, out=ends)
    rows_of: dict[tuple[int, ...], list[int]] = {}
    for row in range(len(trace)):
        key = tuple(trace.eos[row].tolist()) if eos_ids is None else tuple(eos_ids)
        rows_of.setdefault(key, []).append(row)
    for key, rows in rows_of.items():
        positions = np.flatnonzero(np.isin(trace.output.tokens, list(key)))
        found = np.searchsorted(positions, starts[rows])
        known = np.append(positions + 1, len(trace.output.tokens))
        ends[rows] = np.minimum(ends[rows], known[found])
    return ends
