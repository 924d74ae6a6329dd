"""How requests arrive, what of them a step computes, and what of the drafter's time a step takes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from ...caches.arguments import at_least, one_of
from ...config import check_bool
from ...drafting.cost_points import not_negative, positive
from ...errors import ConfigError

Arrivals = Literal["closed", "trace", "poisson"]

#: Prompt tokens that a step prefills at most, as engines on large GPUs have it by default.
PREFILL_CHUNK = 8192
MAX_CHUNK = 2**24


@dataclass(frozen=True, kw_only=True)
class Serving:
    """Settings of a simulated server; the largest batch is `Options.concurrency`.

    Parameters
    ----------
    arrivals : {"closed", "trace", "poisson"}
        `closed`: the next request is sent when there is room for it. `trace`: at recorded time stamps. `poisson`: at
        `rate`, in file order. A later turn is not sent before the earlier one has ended.
    rate : float, optional
        Requests a second, for `poisson`, which needs it.
    speed : float
        For `trace`: recorded time passes so many times faster. 2.0 doubles the load.
    seed : int
        For `poisson`: seed of the arrivals.
    prefill_chunk : int
        Most prompt tokens that a step computes, over all requests. They share the step with decoding requests, except
        in shape `"sglang"`, where steps that prefill do nothing else and go first.
    prefix_cache : bool
        What a prompt repeats of the text of its session's earlier turn is in the KV cache still, and not computed.
    draft_us, accept_us, ingest_us : float
        Charged to each step: µs a decoding request, an emitted token, and a prompt token. They take the place of the
        cost model's `exposed_us`. Constants, because a measured clock would decide which request sees what.
    overlap : bool
        Learning what the last step emitted, and ingesting prompts, run while the model does: of their time only what
        is longer than the model's counts. Drafting is never hidden: a step waits for its drafts. `replay.run` then
        has the drafter `ngramspec` learn a step later, as it has to; others are taken to have learned in time.

    Raises
    ------
    ConfigError
        A value is outside what is allowed, missing, or would have no effect.

    Examples
    --------
    >>> from ngramspec.drafting.profiles import profile
    >>> from ngramspec.replay import Options, Serving, Trace, run
    >>> trace = Trace.of(prompts=[[1, 2, 3, 1, 2]] * 4, outputs=[[3, 1, 2, 3, 1, 2]] * 4)
    >>> serving = Serving(arrivals="poisson", rate=50.0)
    >>> options = Options(cost=profile("dense-8b-h100"), serving=serving, concurrency=8)
    >>> round(run(trace, "ngramspec", options)["serving"]["speculating"]["ttft_ms"]["p50"], 1)
    8.1
    """

    arrivals: Arrivals = "closed"
    rate: float | None = None
    speed: float = 1.0
    seed: int = 0
    prefill_chunk: int = PREFILL_CHUNK
    prefix_cache: bool = True
    draft_us: float = 0.0
    accept_us: float = 0.0
    ingest_us: float = 0.0
    overlap: bool = False

    def __post_init__(self) -> None:
        one_of(self.arrivals, "arrivals", get_args(Arrivals))
        if (self.rate is None) == (self.arrivals == "poisson"):
            missing, surplus = "missing, arrivals 'poisson' needs it", "has no effect without 'poisson', leave it out"
            raise ConfigError(f"rate: {missing if self.rate is None else surplus}")
        if self.rate is not None:
            positive(self.rate, "rate")
        positive(self.speed, "speed")
        if self.speed != 1.0 and self.arrivals != "trace":
            raise ConfigError(f"speed: has no effect with arrivals {self.arrivals!r}, leave it out")
        at_least(self.seed, "seed", 0, None)
        if not 1 <= at_least(self.prefill_chunk, "prefill_chunk", 0) <= MAX_CHUNK:
            raise ConfigError(f"prefill_chunk: got {self.prefill_chunk}, allowed 1 to {MAX_CHUNK} tokens")
        for name in ("prefix_cache", "overlap"):
            check_bool(getattr(self, name), name)
        for name in ("draft_us", "accept_us", "ingest_us"):
            not_negative(getattr(self, name), name)

    @property
    def charges(self) -> bool:
        """Whether any of the drafter's time is charged."""
        return bool(self.draft_us or self.accept_us or self.ingest_us)

    def charging(self, draft_us: float = 0.0, accept_us: float = 0.0, ingest_us: float = 0.0) -> Serving:
        """The same server with other times of the drafter."""
        return replace(self, draft_us=draft_us, accept_us=accept_us, ingest_us=ingest_us)

    def describe(self) -> dict[str, Any]:
        """Settings as JSON can hold them."""
        return asdict(self)
