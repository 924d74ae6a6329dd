"""A simulated server's named numbers: time to first token, time per output token, tokens a second."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..trace import Int64, Trace
from .retiming import retimed
from .settings import Serving
from .timeline import COMPUTED, DECODING, DURATION, PREFILLING, Served, Timeline


def summary(served: Served, n_emitted: Int64, serving: Serving) -> dict[str, Any]:
    """With a drafter and without speculation, under the same arrivals.

    Parameters
    ----------
    served : Served
        What happened when.
    n_emitted : int64[n_rows]
        Tokens that each request emitted after its first.
    serving : Serving
        How it was served, with the times charged.
    """
    n_outputs = n_emitted + (served.plain.first >= 0)
    return {
        "kind": "modelled",
        "charged_us": _times(serving),
        "speculating": of_one(served.drafting, n_outputs),
        "plain": of_one(served.plain, n_outputs),
    }


def of_one(line: Timeline, n_outputs: Int64) -> dict[str, Any]:
    """Numbers of one timeline.

    `ttft_ms`: from when a request was sent to the end of the step that gave its first token, waiting for room
    included. `tpot_ms`: from then to its last token, over the tokens after the first. `tokens_per_second`: all output
    tokens over the time from the first request sent to the last token; `tokens_per_busy_second` leaves idle time out.

    Parameters
    ----------
    line : Timeline
        What happened when.
    n_outputs : int64[n_rows]
        Tokens that each request emitted.
    """
    answered, several = line.first >= 0, n_outputs > 1
    steps = line.steps
    span = line.end - int(line.sent.min(initial=line.end))
    busy = int(steps[:, DURATION].sum())
    return {
        "ttft_ms": _spread((line.first - line.sent)[answered] / 1e6),
        "tpot_ms": _spread((line.ended - line.first)[several] / 1e6 / (n_outputs[several] - 1)),
        "tokens_per_second": 1e9 * int(n_outputs.sum()) / span if span else None,
        "tokens_per_busy_second": 1e9 * int(n_outputs.sum()) / busy if busy else None,
        "seconds": span / 1e9,
        "busy_share": busy / span if span else None,
        "requests_mean": float(np.average(steps[:, DECODING] + steps[:, PREFILLING], weights=steps[:, DURATION]))
        if busy
        else None,
        "requests_most": int((steps[:, DECODING] + steps[:, PREFILLING]).max(initial=0)),
        "tokens_a_step_most": int(steps[:, COMPUTED].max(initial=0)),
    }


def if_charged(served: Served, n_emitted: Int64, trace: Trace, serving: Serving) -> dict[str, Any]:
    """What it would come to if other times of the drafter were charged, with nothing decided anew; see `retiming`.

    Parameters
    ----------
    served : Served
        Served without any charge.
    n_emitted : int64[n_rows]
        Tokens that each request emitted after its first.
    trace : Trace
        What was served.
    serving : Serving
        With the times to charge.
    """
    line = retimed(served.drafting, trace, serving)
    took = line.request_ms(serving).sum()
    return {
        "charged_us": _times(serving),
        "modelled_speedup": float(served.plain.request_ms(serving).sum() / took) if took else None,
        "speculating": of_one(line, n_emitted + (served.plain.first >= 0)),
    }


def _times(serving: Serving) -> dict[str, float]:
    return {name: getattr(serving, f"{name}_us") for name in ("draft", "accept", "ingest")}


def _spread(values: NDArray[np.float64]) -> dict[str, float] | None:
    """Mean, median and 99th percentile; None of nothing."""
    if not len(values):
        return None
    p50, p99 = np.quantile(values, [0.5, 0.99])
    return {"mean": float(values.mean()), "p50": float(p50), "p99": float(p99)}
