"""The project's named numbers, computed from what a replay counted. Definitions: README, "What the numbers mean"."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..draft import ONE_Q30, Reason, Source
from ..kernels.verify import (
    ACCEPTED,
    BIN_EMITTED,
    BIN_N,
    BIN_PREDICTED_Q30,
    DRAFTED,
    EMITTED,
    N_BINS,
    STEPS,
    STEPS_WITH_DRAFT,
    UNJUDGED,
    VERIFIED,
)
from .counts import PLAIN_MS, STEP_MS, Counts
from .trace import Int64, Labels, Trace

#: Resamples behind an interval.
N_RESAMPLES = 1000

#: How a speed-up is shown until the cost model reproduces measured tokens a second without speculation.
UNCALIBRATED = "modelled, uncalibrated"
CALIBRATED = "modelled, calibrated"


def ratio(part: float, whole: float) -> float | None:
    """`part / whole`; None where there is nothing to divide by."""
    return part / whole if whole else None


def totals(per_row: Int64) -> dict[str, Any]:
    """Pooled counts and ratios of some rows.

    `accept_rate` is accepted tokens over all real drafted tokens, those past the end of a record (`unjudged_tokens`)
    included, as an engine's own counter has them.
    """
    total = per_row.sum(0).tolist()
    steps, drafted = total[STEPS], total[DRAFTED]
    with_steps = per_row[per_row[:, STEPS] > 0]
    return {
        "requests": len(per_row),
        "steps": steps,
        "emitted_tokens": total[EMITTED],
        "drafted_tokens": drafted,
        "verified_tokens": total[VERIFIED],
        "accepted_tokens": total[ACCEPTED],
        "unjudged_tokens": total[UNJUDGED],
        "accept_length": ratio(total[EMITTED], steps),
        "accept_length_per_request_mean": (
            float((with_steps[:, EMITTED] / with_steps[:, STEPS]).mean()) if len(with_steps) else None
        ),
        "accept_rate": ratio(total[ACCEPTED], drafted),
        "draft_coverage": ratio(total[STEPS_WITH_DRAFT], steps),
    }


def by_category(counts: Counts, category: Labels) -> dict[str, dict[str, Any]]:
    """`totals` of each category, and of rows without one under `""`; and the modelled speed-up if steps were priced."""
    names = [(code, name) for code, name in enumerate(category.names)] + [(-1, "")]
    groups = {name: category.codes == code for code, name in names}
    priced = counts.per_row_ms.any()
    return {
        name: totals(counts.per_row[rows]) | ({"modelled_speedup": speedup(counts.per_row_ms[rows])} if priced else {})
        for name, rows in groups.items()
        if rows.any()
    }


def interval(trace: Trace, per_row: Int64, seed: int) -> list[float] | None:
    """95 % bootstrap interval of the pooled accept length; see `ratio_interval`."""
    return ratio_interval(trace, per_row[:, [EMITTED, STEPS]], seed)


def ratio_interval(trace: Trace, pairs: NDArray[Any], seed: int) -> list[float] | None:
    """95 % bootstrap interval of a ratio of sums, whole sessions drawn with replacement.

    Rows without a session are sessions of their own. None where fewer than two sessions have anything to divide by.

    Parameters
    ----------
    trace : Trace
        Names the session of each row.
    pairs : [n_rows, 2]
        What each row adds to the sum above the line, and below.
    seed : int
        Seed of the draws.
    """
    alone = trace.session.codes < 0
    group = np.where(alone, len(trace.session.names) + np.cumsum(alone), trace.session.codes)
    sums = np.zeros((int(group.max(initial=0)) + 1, 2))
    np.add.at(sums, group, pairs)
    sums = sums[sums[:, 1] > 0]
    if len(sums) < 2:
        return None
    random = np.random.Generator(np.random.PCG64(seed))
    ratios = np.empty(N_RESAMPLES)
    for i in range(N_RESAMPLES):
        above, below = sums[random.integers(0, len(sums), len(sums))].sum(0)
        ratios[i] = above / below
    low, high = np.quantile(ratios, [0.025, 0.975])
    return [float(low), float(high)]


def speedup(per_row_ms: NDArray[np.float64]) -> float | None:
    """Modelled time without speculation over that with it, for the same tokens; both are sums over the rows."""
    total = per_row_ms.sum(0).tolist()
    return ratio(total[PLAIN_MS], total[STEP_MS])


def modelled(trace: Trace, counts: Counts, seed: int, *, trusted: bool = False) -> dict[str, Any]:
    """Speed-up by a cost model, with its interval, and tokens a second of all requests together.

    Parameters
    ----------
    trace : Trace
        What was replayed.
    counts : Counts
        What was counted.
    seed : int
        Seed of the interval.
    trusted : bool
        The cost model reproduces what was measured; see `reproduction.calibrated`.
    """
    emitted, (step_ms, plain_ms) = int(counts.per_row[:, EMITTED].sum()), counts.per_row_ms.sum(0).tolist()
    return {
        "modelled_speedup": speedup(counts.per_row_ms),
        "modelled_speedup_interval_95": ratio_interval(trace, counts.per_row_ms[:, [PLAIN_MS, STEP_MS]], seed),
        "modelled": {
            "kind": "modelled",
            "label": CALIBRATED if trusted else UNCALIBRATED,
            "batch_mean": ratio(int(counts.per_row[:, STEPS].sum()), counts.batch_steps),
            "tokens_per_second": ratio(1000 * emitted, step_ms),
            "tokens_per_second_plain": ratio(1000 * emitted, plain_ms),
        },
    }


def by_depth(per_depth: Int64) -> list[dict[str, Any]]:
    """For each depth drafted within a record: steps that drafted so deep, and the share that accepted there."""
    return [
        {"depth": depth, "steps": n, "accepted": accepted, "rate": ratio(accepted, n)}
        for depth, (n, accepted) in enumerate(per_depth.tolist())
        if n
    ]


def by_source(per_source: Int64) -> dict[str, dict[str, Any]]:
    """Drafted tokens within the record and the share accepted, by where they were found."""
    return {
        Source(i).name.lower(): {"drafted_tokens": n, "accepted_tokens": accepted, "accept_rate": ratio(accepted, n)}
        for i, (n, accepted) in enumerate(per_source.tolist())
        if n
    }


def empty_drafts(per_reason: Int64) -> dict[str, int]:
    """Steps without a draft, by reason."""
    return {Reason(i).name.lower(): n for i, n in enumerate(per_reason.tolist()) if n and i != Reason.DRAFTED}


def calibration(bins: Int64) -> dict[str, Any]:
    """Predicted against observed conditional probability of nodes whose parent was emitted, in ten bins.

    `allowed` is 0.03 and twice the sampling error of the bin; `weighted_mean_error` weighs bins by their nodes.
    """
    rows: list[dict[str, Any]] = []
    for i, (n, predicted_q30, emitted) in enumerate(bins[:, [BIN_N, BIN_PREDICTED_Q30, BIN_EMITTED]].tolist()):
        row: dict[str, Any] = {"low": i / N_BINS, "high": (i + 1) / N_BINS, "n": n}
        if n:
            predicted, observed = predicted_q30 / ONE_Q30 / n, emitted / n
            allowed = 0.03 + 2 * math.sqrt(predicted * (1 - predicted) / n)
            row |= {"predicted": predicted, "observed": observed, "error": abs(predicted - observed)}
            row |= {"allowed": allowed, "within": row["error"] <= allowed}
        rows.append(row)
    filled = [row for row in rows if row["n"]]
    n_nodes = sum(row["n"] for row in filled)
    return {
        "nodes": n_nodes,
        "weighted_mean_error": ratio(sum(row["n"] * row["error"] for row in filled), n_nodes),
        "bins": rows,
    }


def timings(counts: Counts) -> dict[str, float | None]:
    """Time of the drafter's calls in µs: drafting a request-step, accepting a token, ingesting a prompt token, all."""
    emitted = int(counts.per_row[:, EMITTED].sum())
    total = counts.draft_ns + counts.accept_ns + counts.ingest_ns
    return {
        "draft_us_per_step": ratio(counts.draft_ns / 1000, int(counts.per_row[:, STEPS].sum())),
        "accept_us_per_token": ratio(counts.accept_ns / 1000, emitted + counts.prefill_tokens),
        "ingest_us_per_prompt_token": ratio(counts.ingest_ns / 1000, counts.prompt_tokens),
        "total_us_per_emitted_token": ratio(total / 1000, emitted),
    }
