"""Verify a batch of drafts against recorded outputs and count what came of it; `replay/verify.py` is the reference.

`state int64[batch, 4]` holds, for each running request, positions in the flat array of outputs (next token, end), the
limit that the engine was told, as a position (-1: none), and the row of the trace.
"""

import numpy as np

from .._jit import kernel

POS, END, LIMIT, ROW = range(4)

#: Columns of `per_row`, one row a recorded request.
STEPS, EMITTED, ACCEPTED, DRAFTED, STEPS_WITH_DRAFT, UNJUDGED, VERIFIED = range(7)
N_COUNTS = 7

#: Bins of predicted probability in `calibrate_batch`, and the columns of each.
N_BINS = 10
ONE_Q30 = 1 << 30
BIN_N, BIN_PREDICTED_Q30, BIN_EMITTED = range(3)


@kernel
def verify_batch(
    n,
    width,
    outputs,
    tokens,
    parents,
    sources,
    n_draft,
    reason,
    state,
    remaining,
    depths,
    emitted,
    offsets,
    per_row,
    per_depth,
    per_source,
    per_reason,
):
    """Verify the drafts of `n` requests, advance `state`, and return (tokens emitted, requests ended).

    `emitted` and `offsets` receive the emitted tokens as `accept_batch` wants them, `remaining` what may still be
    emitted where the engine knows it. `width` is what every draft is padded to, -1 where none is. `per_depth[d]` counts
    steps whose draft reached depth d within the record, and those that accepted there; `per_source[s]` drafted tokens
    within the record, and accepted ones. `depths` is scratch.
    """
    total = 0
    n_ended = 0
    offsets[0] = 0
    for i in range(n):
        pos = state[i, POS]
        left = state[i, END] - pos
        drafted = n_draft[i]
        accepted = 0
        deepest = 0
        unjudged = 0
        at = -1
        # Parents precede children, so that one pass follows the accepted path and knows every depth.
        for j in range(drafted):
            parent = parents[i, j]
            depth = depths[parent] + 1 if parent >= 0 else 1
            depths[j] = depth
            if depth > left:
                unjudged += 1
                continue
            deepest = max(deepest, depth)
            per_source[sources[i, j], 0] += 1
            if parent == at and accepted < left and tokens[i, j] == outputs[pos + accepted]:
                at = j
                accepted += 1
                per_source[sources[i, j], 1] += 1
        for depth in range(1, deepest + 1):
            per_depth[depth, 0] += 1
        for depth in range(1, accepted + 1):
            per_depth[depth, 1] += 1
        n_emitted = min(accepted + 1, left)
        for k in range(n_emitted):
            emitted[total + k] = outputs[pos + k]
        total += n_emitted
        offsets[i + 1] = total
        state[i, POS] = pos + n_emitted
        if n_emitted == left:
            n_ended += 1
        remaining[i] = state[i, LIMIT] - state[i, POS] if state[i, LIMIT] >= 0 else -1
        row = state[i, ROW]
        per_row[row, STEPS] += 1
        per_row[row, EMITTED] += n_emitted
        per_row[row, ACCEPTED] += accepted
        per_row[row, DRAFTED] += drafted
        per_row[row, STEPS_WITH_DRAFT] += drafted > 0
        per_row[row, UNJUDGED] += unjudged
        per_row[row, VERIFIED] += 1 + (drafted if width < 0 else width)
        per_reason[reason[i]] += 1
    return total, n_ended


@kernel
def calibrate_batch(n, outputs, tokens, parents, path_q30, n_draft, state, depths, bins):
    """Put each node whose parent was emitted, within the record, into the bin of its conditional probability.

    Call before `verify_batch` advances `state`. `bins int64[N_BINS, 3]` counts nodes, sums predictions (30 fractional
    bits) and counts those emitted. `depths` is scratch: 0 marks a node that was not emitted.
    """
    for i in range(n):
        pos = state[i, POS]
        left = state[i, END] - pos
        for j in range(n_draft[i]):
            parent = parents[i, j]
            above = depths[parent] if parent >= 0 else 0
            depths[j] = 0
            if (parent >= 0 and above == 0) or above >= left:
                continue
            path = np.int64(path_q30[i, j])
            given = np.int64(path_q30[i, parent]) if parent >= 0 else ONE_Q30
            predicted = (path << 30) // given if 0 < path < given else (ONE_Q30 if path > 0 else 0)
            b = N_BINS - 1 if predicted >= ONE_Q30 else predicted * N_BINS >> 30
            bins[b, BIN_N] += 1
            bins[b, BIN_PREDICTED_Q30] += predicted
            if tokens[i, j] == outputs[pos + above]:
                bins[b, BIN_EMITTED] += 1
                depths[j] = above + 1
