"""Budgets around the one that was asked for, whose runs make the frontier."""

from __future__ import annotations

from dataclasses import replace

from ..simulator import Options

#: Most tokens drafted a step.
SIZES = (1, 2, 4, 8, 16, 32)

#: Path probabilities below which nothing is drafted, within the largest size.
THRESHOLDS = (0.02, 0.05, 0.1, 0.2, 0.4)


#: Requests at a time, where step times are known.
BATCHES = (1, 4, 16, 64)


def batches(options: Options) -> list[Options]:
    """The other batch sizes to replay with, everything else as in `options`."""
    return [replace(options, concurrency=n) for n in BATCHES if n != options.concurrency]


def budgets(options: Options, *, thresholds: bool) -> list[Options]:
    """Other budgets to replay with, everything else as in `options`.

    Parameters
    ----------
    options : Options
        What was asked for; not among the result.
    thresholds : bool
        Also sizes that each step chooses by path probability.
    """
    wide = SIZES[-1] if options.verify_width is None else min(SIZES[-1], options.verify_width - 1)
    found = [replace(options, max_draft=size) for size in SIZES if size <= wide]
    if thresholds:
        found += [replace(options, max_draft=wide, min_prob=threshold) for threshold in THRESHOLDS]
    return [other for other in dict.fromkeys(found) if other != options]
