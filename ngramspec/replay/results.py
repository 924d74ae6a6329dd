"""One run: a fresh drafter, a trace, and the numbers that came out, as the JSON object that `--json` writes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .. import __version__
from ..caches.arguments import as_list, at_least
from ..caches.base import Cache
from ..caches.sessions import SessionCache
from ..drafting.cost_file import parse
from ..errors import ConfigError, TraceError
from ..kernels.verify import EMITTED
from . import metrics
from .counts import Counts
from .drafters import DEFAULT_CAPACITY, RECORDED, Facts, build
from .files import replacing
from .options import Options
from .recorded import as_read, replay_recorded
from .reproduction import calibrated
from .serving import latency
from .serving.settings import Serving
from .serving.timeline import Served
from .simulator import simulate
from .trace import Trace

SCHEMA = "ngramspec.replay/1"


def run(
    trace: Trace,
    drafter: str,
    options: Options,
    *,
    vocab_size: int | None = None,
    capacity_tokens: int = DEFAULT_CAPACITY,
    seed: int = 0,
    warm_up: Sequence[Trace] = (),
    upper_bound: bool = False,
    drafter_options: Mapping[str, Any] | None = None,
    charge_measured: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Replay `trace` through a fresh drafter.

    Parameters
    ----------
    trace : Trace
        Recorded requests.
    drafter : str
        A name in `drafters.DRAFTERS`.
    options : Options
        How to replay.
    vocab_size : int, optional
        None: from the largest id in the traces.
    capacity_tokens : int
        Tokens of text that the drafter keeps.
    seed : int
        Seed of the bootstrap interval.
    warm_up : sequence of Trace
        Replayed first, uncounted, and named in the result. None: cold start.
    upper_bound : bool
        Allow requests of the trace itself in the warm-up; the result is then labelled an upper bound.
    drafter_options : mapping, optional
        Settings of the drafter's own, over its defaults.
    charge_measured : bool
        With `options.serving`: replay once before, and charge the drafter's time as measured then, as constants. What
        the simulation decides then differs from run to run, as measured times do.
    on_progress : callable, optional
        Called with the number of requests ended so far.

    Returns
    -------
    dict
        The run: the metrics' names, and times measured on this CPU.

    Raises
    ------
    ConfigError
        An unknown drafter or a setting outside what is allowed.
    TraceError
        The warm-up holds requests of the trace.

    Examples
    --------
    >>> from ngramspec.replay import Options, Trace, run
    >>> text = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8]
    >>> trace = Trace.of(prompts=[[0] + text], outputs=[text])
    >>> found = run(trace, "ngramspec", Options(max_draft=7))
    >>> found["steps"], found["emitted_tokens"], found["accept_length"]
    (2, 11, 5.5)
    """
    at_least(seed, "seed", 0, None)
    for what, value, kind in (("trace", trace, Trace), ("options", options, Options)):
        if not isinstance(value, kind):
            raise ConfigError(f"{what}: got {value!r}, must be {kind.__name__}")
    warm_up = as_list(warm_up, "warm_up")
    for i, earlier in enumerate(warm_up):
        if not isinstance(earlier, Trace):
            raise ConfigError(f"warm_up[{i}]: got {earlier!r}, must be a Trace")
    if isinstance(drafter, str) and drafter == RECORDED:
        return as_read(summary(trace, drafter, *replay_recorded(trace, options, seed, on_progress)))
    repeated = _repeated(trace, warm_up)
    if repeated and not upper_bound:
        raise TraceError(
            f"warm-up: {repeated} of {len(trace)} requests of {trace.name} are in it, a replay would only recite them; "
            "take another trace, or ask for an upper bound"
        )
    if options.serving is not None and options.serving.overlap and drafter == "ngramspec":
        drafter_options = {"deferred": True} | dict(drafter_options or {})
    if options.serving is not None and drafter == "none":
        options = replace(options, serving=options.serving.charging())
    facts = Facts.of(
        [trace, *warm_up],
        eos_ids=options.eos_ids,
        concurrency=options.concurrency,
        vocab_size=vocab_size,
        capacity_tokens=capacity_tokens,
    )
    compile_kernels(drafter, facts, options, drafter_options)

    def warm() -> Cache:
        cache = in_memory(build(drafter, facts, drafter_options))
        for earlier in warm_up:
            simulate(earlier, cache, replace(options, calibration=False, serving=None))
        return cache

    if charge_measured:
        options = replace(options, serving=_measured(trace, warm(), drafter, options))
    cache = warm()
    counts = simulate(trace, cache, options, on_progress)
    config = options.describe() | facts.settings() | {"seed": seed, "warm_up": [earlier.name for earlier in warm_up]}
    if drafter_options:
        config["drafter_options"] = dict(drafter_options)
    if charge_measured:
        config["charge_measured"] = True
    return summary(trace, drafter, cache, counts, config) | ({"upper_bound": True} if repeated else {})


def _measured(trace: Trace, cache: Cache, drafter: str, options: Options) -> Serving:
    """The same server, charging what the drafter's calls take here."""
    if options.serving is None or options.step_cost is None:
        raise ConfigError("charge_measured: has no effect without serving; leave it out, or give Options serving")
    if options.serving.charges or options.step_cost.exposed_us:
        raise ConfigError("charge_measured: other times are charged already; give one of them")
    if drafter == "none":
        return options.serving
    return options.serving.charging(*_times(metrics.timings(simulate(trace, cache, options))))


def _times(timings: Mapping[str, float | None]) -> tuple[float, float, float]:
    """µs of drafting, accepting and ingesting, as `Serving` takes them."""
    names = ("draft_us_per_step", "accept_us_per_token", "ingest_us_per_prompt_token")
    draft, accept, ingest = (round(timings[name] or 0.0, 3) for name in names)
    return draft, accept, ingest


def summary(trace: Trace, drafter: str, cache: Cache, counts: Counts, config: dict[str, Any]) -> dict[str, Any]:
    """Name the numbers of one replay.

    Parameters
    ----------
    trace : Trace
        What was replayed.
    drafter : str
        Its name.
    cache : Cache
        The drafter after the replay.
    counts : Counts
        What was counted.
    config : dict
        Every setting; `seed` is read from it, and whether steps were priced.
    """
    stats = cache.stats()
    result: dict[str, Any] = {"drafter": drafter, "trace": trace.name, "kind": "measured-cpu", "config": config}
    result |= metrics.totals(counts.per_row)
    result["accept_length_interval_95"] = metrics.interval(trace, counts.per_row, config["seed"])
    if "cost" in config:
        result |= metrics.modelled(trace, counts, config["seed"], trusted=calibrated(parse(config["cost"])))
    result |= metrics.timings(counts)
    if counts.served is not None:
        result["serving"] = _served(trace, counts.served, counts, drafter, config)
        for name, which in (("tokens_per_second", "speculating"), ("tokens_per_second_plain", "plain")):
            result["modelled"][name] = result["serving"][which]["tokens_per_busy_second"]
    result |= {
        "prompt_tokens": counts.prompt_tokens,
        "output_tokens": counts.prefill_tokens + result["emitted_tokens"],
        "prefill_tokens": counts.prefill_tokens,
        "unused_tokens": counts.unused_tokens,
        "skipped_rows": trace.n_skipped,
        "retokenised_rows": trace.n_retokenised,
        "cache_bytes": cache.nbytes,
        "cached_tokens": stats.get("own_tokens", 0) + stats.get("shared_tokens", 0),
        "stats": stats,
        "empty_drafts": metrics.empty_drafts(counts.per_reason),
        "by_depth": metrics.by_depth(counts.per_depth),
        "by_source": metrics.by_source(counts.per_source),
        "by_category": metrics.by_category(counts, trace.category),
    }
    if config["calibration"]:
        result["calibration"] = metrics.calibration(counts.bins)
    return result


def compile_kernels(
    drafter: str, facts: Facts, options: Options, drafter_options: Mapping[str, Any] | None = None
) -> None:
    """Replay a few tokens through an instance of its own, so that no timed call compiles anything.

    Parameters
    ----------
    drafter, facts, options, drafter_options
        Of the replay that follows.
    """
    prompts, outputs = [[1, 2, 3, 1, 2, 3, 1, 2], [4, 5, 4, 5, 4]], [[3, 1, 2, 3, 1, 2, 7], [5, 4, 5, 4]]
    trace = Trace.of(prompts, outputs, name="warm-up", session=["0", "0"], turn=[0, 1])
    small = replace(facts, vocab_size=max(facts.vocab_size, 8), max_sessions=8, eos_ids=())
    simulate(trace, build(drafter, small, drafter_options), replace(options, eos_ids=None, serving=None))


def in_memory(cache: Cache) -> Cache:
    """The same cache, all of its memory there: the first pass over fresh pages is slower than any later one, by far."""
    if isinstance(cache, SessionCache):
        cache.touch()
    return cache


def _served(trace: Trace, served: Served, counts: Counts, drafter: str, config: dict[str, Any]) -> dict[str, Any]:
    """Latencies; and where no time of a drafter is charged, what charging the measured ones would change."""
    serving, exposed = Serving(**config["serving"]), config["cost"]["exposed_us"]
    if exposed:
        serving = serving.charging(draft_us=exposed)
    result = latency.summary(served, counts.per_row[:, EMITTED], serving)
    held = config["cost"].get("includes_drafting")
    if not serving.charges and not held and drafter not in ("none", RECORDED):
        measured = serving.charging(*_times(metrics.timings(counts)))
        result["if_charged"] = latency.if_charged(served, counts.per_row[:, EMITTED], trace, measured)
    return result


def _repeated(trace: Trace, warm_up: Sequence[Trace]) -> int:
    """How many requests of `trace` are in `warm_up`, token for token."""
    if not warm_up:
        return 0
    seen = {_content(earlier, row) for earlier in warm_up for row in range(len(earlier))}
    return sum(_content(trace, row) in seen for row in range(len(trace)))


def _content(trace: Trace, row: int) -> tuple[bytes, bytes]:
    return trace.prompt[row].tobytes(), trace.output[row].tobytes()


def document(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """What `--json` writes."""
    return {"schema": SCHEMA, "ngramspec": __version__, "numpy": np.__version__, "runs": runs}


def write_json(content: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write `content` as JSON; the file appears whole or not at all. Raises `TraceError` where it cannot be."""
    with replacing(path) as file:
        file.write(json.dumps(content, indent=1, allow_nan=False).encode() + b"\n")
