"""Replaying recorded steps, and what of a run's numbers then is read rather than measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from ...caches.base import Cache
from ..counts import Counts
from ..drafters import Facts
from ..metrics import ratio
from ..options import Options
from ..simulator import simulate
from ..trace import Trace
from .cache import RecordedDrafts
from .steps import recorded_steps


def replay_recorded(
    trace: Trace, options: Options, seed: int, on_progress: Callable[[int], None] | None = None
) -> tuple[Cache, Counts, dict[str, Any]]:
    """Replay the steps that a trace records.

    What the engine and its settings were shows in the record: shape, budget, width and threshold of `options` do not
    apply, and of its step times those, with the recorded drafter's own time in the place of ours. Where the verify
    points were measured while a drafter ran, they hold its time already (`CostModel.includes_drafting`), and the
    recorded one is not charged a second time.

    Parameters
    ----------
    trace : Trace
        With `spec`; see `steps`.
    options : Options
        How to replay.
    seed : int
        Seed of the bootstrap interval, to be noted.
    on_progress : callable, optional
        Called with the number of requests ended so far.

    Returns
    -------
    tuple
        Drafter, counts and settings, as `results.summary` takes them.

    Raises
    ------
    TraceError
        The trace records no steps, or such as cannot be its own.
    """
    steps = recorded_steps(trace)
    cost = options.step_cost
    charged = 0.0 if cost is None or cost.includes_drafting else steps.draft_us or 0.0
    own = replace(
        options,
        max_draft=steps.max_draft,
        topology="chain",
        min_prob=0.0,
        verify_width=None,
        calibration=False,
        shape="ideal",
        budget=None,
        cost=cost and cost.with_exposed(charged),
        serving=options.serving and options.serving.charging(),
    )
    cache = cast(Cache, RecordedDrafts(trace, steps))
    counts = simulate(trace, cache, own, on_progress)
    facts = Facts.of([trace], eos_ids=options.eos_ids, concurrency=options.concurrency)
    told = {
        "drafters": list(steps.drafters),
        "drafted_known": steps.drafted_known,
        "draft_us": steps.draft_us,
        "charged_us": charged,
    }
    return cache, counts, own.describe() | facts.settings() | {"seed": seed, "warm_up": [], "recorded": told}


def as_read(run: dict[str, Any]) -> dict[str, Any]:
    """The run with what was not measured here put right.

    Its kind is `"read"`. Times of a drafter that never ran are its recorded ones or None. What the record does not tell
    is left out: which depths were offered, where tokens were found, and, unless the drafted tokens are recorded, the
    share of them that was accepted.

    Parameters
    ----------
    run : dict
        As `results.summary` names the numbers.
    """
    told = run["config"]["recorded"]
    us, known = told["draft_us"], told["drafted_known"]
    priced = us is not None or bool(run["config"].get("cost", {}).get("includes_drafting"))
    run = run | {
        "kind": "read",
        "draft_us_per_step": us,
        "accept_us_per_token": None,
        "ingest_us_per_prompt_token": None,
        "total_us_per_emitted_token": None if us is None else ratio(us * run["steps"], run["emitted_tokens"]),
        "empty_drafts": {},
        "by_depth": [],
        "by_source": {},
    }
    missing = [what for what, there in (("time of drafting", priced), ("drafted tokens", known)) if not there]
    if not known:
        run |= {"accept_rate": None, "draft_coverage": None}
        run["by_category"] = {
            name: part | {"accept_rate": None, "draft_coverage": None} for name, part in run["by_category"].items()
        }
    if missing:
        run["not_recorded"] = missing
        if "modelled" in run:
            run["modelled"] |= {
                "label": f"{run['modelled']['label']}, an upper bound: no {' or '.join(missing)} recorded"
            }
    return run
