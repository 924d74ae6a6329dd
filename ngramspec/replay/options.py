"""Settings of a replay, checked."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import numpy as np

from ..caches.arguments import as_tokens, one_of, probability
from ..caches.base import Share
from ..config import check_bool
from ..draft import Topology
from ..drafting.budget import Budget
from ..drafting.cost import CostModel
from ..errors import ConfigError
from .serving.settings import Serving

#: Most tokens drafted a step.
MAX_DRAFT = 4096

#: What an engine verifies in one step: every draft as it is; chains as they are; the same width for every request.
Shape = Literal["ideal", "vllm", "sglang"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """How to replay.

    Parameters
    ----------
    max_draft : int
        Most tokens drafted a step.
    topology : {"tree", "chain"}
        Shape of the drafts.
    min_prob : float
        Path probability below which a token is not drafted.
    concurrency : int
        Requests that run at a time. 1: one after the other.
    share : {"outputs", "all", "none"}
        What later requests may see of a request.
    eos_ids : tuple of int, optional
        Ids that end an output. None: those that the trace records.
    max_tokens : int, optional
        Most output tokens a request, a limit that the engine and so the drafter know. None: no such limit.
    verify_width : int, optional
        Tokens that the engine verifies a step whatever was drafted (the last committed one included, the rest padded).
        None: one more than was drafted.
    calibration : bool
        Compare predicted probabilities with what was emitted.
    shape : {"ideal", "vllm", "sglang"}
        What the engine verifies: any draft as it is; chains as they are; or one width for the whole batch, shorter
        drafts padded, which is `max_draft` unless `budget` chooses it.
    budget : Budget, optional
        Shortens each step's drafts to what is worth verifying. None: all that was drafted is verified.
    cost : CostModel, optional
        Step times behind a modelled speed-up. None: those of `budget`, if it has any.
    serving : Serving, optional
        Requests arrive at modelled times, prompts are prefilled in steps that take time, and `concurrency` is the
        largest batch. Needs step times. None: always so many requests, and prompts are prefilled in no time.

    Raises
    ------
    ConfigError
        A value is outside what is allowed.

    Examples
    --------
    >>> from ngramspec.replay import Options
    >>> Options(max_draft=3, topology="chain", concurrency=32).describe()["shape"]
    'ideal'
    >>> Options(shape="vllm")
    Traceback (most recent call last):
        ...
    ngramspec.errors.ConfigError: topology: got 'tree', but shape 'vllm' verifies chains only; take 'chain'
    """

    max_draft: int = 11
    topology: str = "tree"
    min_prob: float = 0.0
    concurrency: int = 1
    share: Share = "outputs"
    eos_ids: tuple[int, ...] | None = None
    max_tokens: int | None = None
    verify_width: int | None = None
    calibration: bool = False
    shape: Shape = "ideal"
    budget: Budget | None = None
    cost: CostModel | None = None
    serving: Serving | None = None

    def __post_init__(self) -> None:
        topology = Topology.parse(self.topology)
        for name, low, high in (("max_draft", 0, MAX_DRAFT), ("concurrency", 1, 65_536)):
            if not _whole(getattr(self, name)) or not low <= getattr(self, name) <= high:
                raise ConfigError(f"{name}: got {getattr(self, name)!r}, allowed {low} to {high}")
        probability(self.min_prob, "min_prob")
        if not isinstance(self.share, str) or self.share not in ("outputs", "all", "none"):
            raise ConfigError(f"share: got {self.share!r}, allowed 'outputs', 'all' or 'none'")
        if self.max_tokens is not None and (not _whole(self.max_tokens) or self.max_tokens < 1):
            raise ConfigError(f"max_tokens: got {self.max_tokens!r}, allowed 1 or more, or None")
        if self.verify_width is not None and (not _whole(self.verify_width) or self.verify_width <= self.max_draft):
            raise ConfigError(
                f"verify_width: got {self.verify_width!r}, needs at least max_draft + 1 = {self.max_draft + 1}"
            )
        if self.eos_ids is not None:
            as_tokens(self.eos_ids, "eos_ids")
        for name, kind in (("budget", Budget), ("cost", CostModel), ("serving", Serving)):
            if not isinstance(getattr(self, name), (kind, type(None))):
                raise ConfigError(f"{name}: got {getattr(self, name)!r}, allowed a {kind.__name__} or None")
        check_bool(self.calibration, "calibration")
        one_of(self.shape, "shape", get_args(Shape))
        if self.shape == "vllm" and topology != Topology.CHAIN:
            raise ConfigError("topology: got 'tree', but shape 'vllm' verifies chains only; take 'chain'")
        if self.verify_width is not None and (self.shape != "ideal" or self.budget is not None):
            raise ConfigError("verify_width: has no effect with a shape or a budget, which set the width; leave it out")
        if self.budget is not None and self.budget.uniform_width != (self.shape == "sglang"):
            uniform = "one width for the whole batch" if self.shape == "sglang" else "drafts of different lengths"
            raise ConfigError(
                f"budget: shape {self.shape!r} verifies {uniform}; take uniform_width={self.shape == 'sglang'}"
            )

        if self.serving is not None:
            if self.step_cost is None:
                raise ConfigError("serving: needs step times, by which its clock advances; give cost")
            held = self.step_cost.includes_drafting
            also = (
                f"holds the time of drafting by {held}" if held else f"charges exposed_us={self.step_cost.exposed_us:g}"
            )
            if self.serving.charges and (held or self.step_cost.exposed_us):
                raise ConfigError(
                    f"serving: charges draft_us, accept_us or ingest_us, and cost {also}, so that drafting would count "
                    "twice; leave one of them out"
                )

    @property
    def plan(self) -> Budget | None:
        """The budget applied to each step; a shape of uniform width has one even where none was asked for."""
        if self.budget is None and self.shape == "sglang":
            return Budget(max_draft=self.max_draft, uniform_width=True)
        return self.budget

    @property
    def charged(self) -> Serving | None:
        """How requests are served, the cost model's `exposed_us` charged with every draft."""
        if self.serving is None or self.step_cost is None or self.serving.charges:
            return self.serving
        return self.serving.charging(draft_us=self.step_cost.exposed_us)

    @property
    def step_cost(self) -> CostModel | None:
        """The cost model that prices steps."""
        return self.cost if self.cost is not None or self.budget is None else self.budget.cost

    def describe(self) -> dict[str, Any]:
        """Settings as JSON can hold them; `cost`, `budget` and `serving` only where there are any."""
        found = {item.name: getattr(self, item.name) for item in fields(self)}
        found |= {
            "budget": self.budget and self.budget.describe(),
            "cost": self.step_cost and self.step_cost.describe(),
            "serving": self.serving and self.serving.describe(),
        }
        optional = ("budget", "cost", "serving")
        return {name: value for name, value in found.items() if value is not None or name not in optional}


def _whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
