"""Whether the simulator, with a cost model's step times, decodes as fast as the server was measured to.

A speed-up may only be called calibrated when it does: the measurements stand beside the points (`CostModel.measured`),
taken in runs of their own.
"""

from __future__ import annotations

import numpy as np

from ..drafting.cost import CostModel
from ..drafting.cost_points import Throughput
from .plain import plain_ms
from .trace import Labels, Ragged, Trace

#: Largest difference between modelled and measured tokens a second.
TOLERANCE = 0.05


def reproduces(cost: CostModel, measured: Throughput) -> float:
    """Modelled over measured tokens a second without speculation: 1.0 where the simulator is right.

    Parameters
    ----------
    cost : CostModel
        Step times.
    measured : Throughput
        Tokens a second of requests that decoded at a time.
    """
    trace = _requests(measured)
    ms = float(plain_ms(trace, trace.output.offsets[1:], measured.batch, cost).sum())
    decoded = measured.batch * (measured.output_tokens - 1)
    return 1000.0 * decoded / ms / measured.tokens_per_second


def reproductions(cost: CostModel) -> list[float]:
    """`reproduces` of everything that was measured beside the points, in its order."""
    return [reproduces(cost, measured) for measured in cost.measured]


def calibrated(cost: CostModel) -> bool:
    """Whether the points are measured, and everything measured beside them is reproduced within 5 %.

    False where nothing was, or where verify steps are assumed: their part of a speed-up is not measured.
    """
    found = reproductions(cost) if cost.kind.startswith("measured-") else []
    return bool(found) and all(abs(ratio - 1.0) <= TOLERANCE for ratio in found)


def _requests(measured: Throughput) -> Trace:
    """As many equal requests as ran at a time."""
    n = measured.batch
    none = Labels(np.full(n, -1, np.int32))
    prompt, output = np.zeros(measured.prompt_tokens, np.int32), np.zeros(measured.output_tokens, np.int32)
    return Trace(
        name="measured",
        ids=tuple(map(str, range(n))),
        prompt=Ragged.of([prompt] * n),
        output=Ragged.of([output] * n),
        session=none,
        turn=np.full(n, -1, np.int32),
        arrival=np.full(n, np.nan),
        finish_reason=none,
        category=none,
        eos=Ragged.of([[]] * n),
        sampling=none,
        spec=none,
    )
