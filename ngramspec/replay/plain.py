"""The same traffic without speculation: what a modelled speed-up is compared with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..drafting.cost import CostModel
from .schedule import Schedule
from .trace import Int64, Trace


def plain_ms(trace: Trace, ends: Int64, capacity: int, cost: CostModel) -> NDArray[np.float64]:
    """Modelled time of decoding every request one token a step, each step shared evenly by its batch.

    Requests start and wait as in a replay. A batch stays as it is until a request ends, so that all its steps are
    priced at once, at the context they have halfway: exact where step times are linear in KV tokens.

    Parameters
    ----------
    trace : Trace
        Recorded requests.
    ends : int64[n_rows]
        Where each output ends, as positions in the outputs; the first token of each comes from prefill.
    capacity : int
        Most requests at a time.
    cost : CostModel
        Step times.

    Returns
    -------
    float64[n_rows]
        Milliseconds.
    """
    n_tokens = (ends - trace.output.offsets[:-1]).tolist()
    n_prompt = np.diff(trace.prompt.offsets).tolist()
    spent = np.zeros(len(trace))
    schedule = Schedule(trace)
    left: dict[int, int] = {}
    kv_tokens = 0
    while True:
        while len(left) < capacity and (row := schedule.start()) >= 0:
            if n_tokens[row] > 1:
                left[row] = n_tokens[row] - 1
                kv_tokens += n_prompt[row] + 1
            else:
                schedule.ended(row)
        if not left:
            return spent
        n, n_steps = len(left), min(left.values())
        time = n_steps * cost.decode_ms(n, kv_tokens + n * (n_steps - 1) // 2)
        kv_tokens += n * n_steps
        for row in list(left):
            spent[row] += time / n
            left[row] -= n_steps
            if not left[row]:
                del left[row]
                kv_tokens -= n_prompt[row] + n_tokens[row]
                schedule.ended(row)
