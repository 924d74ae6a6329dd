"""What tuning found: what to set, what it is worth on sessions held out, and whether to enable speculation at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ... import __version__
from ..metrics import UNCALIBRATED
from ..reproduction import calibrated
from .engines import engine
from .objective import Score, Task
from .search import Search
from .space import Point, Space, Values

SCHEMA = "ngramspec.tune/1"

#: Share of a batch size that must have run on average: smaller batches flatter speculation.
FILLED = 0.5

#: What to do at one batch size: the interval says that it pays, that it does not, or neither.
Verdict = Literal["enable", "do not enable", "unsure"]


@dataclass(frozen=True)
class AtBatch:
    """What the recommended settings do at one batch size.

    Attributes
    ----------
    batch : int
        Requests at a time.
    tuning, held_out : Score
        On the sessions tuned on, and on those that were not.
    default : Score
        Default settings on the sessions held out.
    alone : tuple of (dict, Score), optional
        Settings that did best at this batch size where others than the recommended did, and what they do on the
        sessions held out.
    min_gain : float
        Gain that speculation must be able to reach, 0.01 for 1 %.
    """

    batch: int
    tuning: Score
    held_out: Score
    default: Score
    alone: tuple[Values, Score] | None
    min_gain: float

    @property
    def filled(self) -> bool:
        """Whether the trace kept about as many requests running as the batch size says."""
        return self.held_out.batch_mean >= FILLED * self.batch

    @property
    def verdict(self) -> Verdict:
        """Whether the held-out sessions say that these settings pay."""
        low, high = self.held_out.interval_95 or (self.held_out.speedup, self.held_out.speedup)
        if high <= 1 + self.min_gain or self.tuning.speedup <= 1:
            return "do not enable"
        return "enable" if low > 1 and self.filled else "unsure"

    def describe(self) -> dict[str, Any]:
        """As JSON can hold it."""
        found: dict[str, Any] = {
            "batch": self.batch,
            "verdict": self.verdict,
            "kind": "modelled",
            "filled": self.filled,
        }
        found |= {name: getattr(self, name).describe() for name in ("tuning", "held_out", "default")}
        found["alone"] = self.alone and {"settings": plain(self.alone[0]), "held_out": self.alone[1].describe()}
        return found


@dataclass(frozen=True)
class Sensitivity:
    """What one setting matters.

    Attributes
    ----------
    name : str
        The setting.
    chosen, default : object
        What is recommended, and what holds when nobody sets it.
    alone : dict
        Speed-up over all batch sizes by value, the other settings as recommended; on the sessions tuned on.
    best : dict
        The best seen by value, whatever the other settings.
    ordered : bool
        Whether the values stand in an order.
    """

    name: str
    chosen: Any
    default: Any
    alone: dict[Any, float]
    best: dict[Any, float]
    ordered: bool = True

    @property
    def loss(self) -> float:
        """Share of the speed-up that the worst value loses."""
        return 1 - min(self.alone.values()) / self.alone[self.chosen]

    @property
    def at_end(self) -> bool:
        """Whether the chosen value is the first or last tried and no default: beyond it may be better."""
        values = list(self.best)
        return (
            self.ordered and len(values) > 2 and self.chosen in (values[0], values[-1]) and self.chosen != self.default
        )

    def describe(self) -> dict[str, Any]:
        """As JSON can hold it."""
        values = [
            {"value": plain(value), "speedup": self.alone.get(value), "best": best} for value, best in self.best.items()
        ]
        named = {"setting": self.name, "chosen": plain(self.chosen), "default": plain(self.default)}
        return named | {"loss": self.loss, "at_end": self.at_end, "values": values}


@dataclass(frozen=True)
class Tuned:
    """The result of `tune`.

    Attributes
    ----------
    task : Task
        What was asked.
    settings : dict
        Recommended values by name, those left at their defaults included.
    batches : tuple of AtBatch
        What they do.
    sensitivity : tuple of Sensitivity
        The settings that matter, most first.
    left_out : dict
        Settings that changed no draft on this trace, and what they were left at.
    n_points : int
        Different settings that were replayed.
    whole_grid : bool
        Whether those were all there are.
    """

    task: Task
    settings: Values
    batches: tuple[AtBatch, ...]
    sensitivity: tuple[Sensitivity, ...]
    left_out: Values
    n_points: int
    whole_grid: bool

    @property
    def advice(self) -> dict[str, Any]:
        """What to set: `config` for our drafter, `flags` for an engine's command line."""
        return engine(self.task.engine).advice(self.settings, self.task.shape, tuple(b.batch for b in self.batches))

    @property
    def verdict(self) -> Verdict:
        """One for all batch sizes: "unsure" where they differ."""
        found = {b.verdict for b in self.batches}
        return found.pop() if len(found) == 1 else "unsure"

    @property
    def label(self) -> str:
        """How far the step times can be trusted."""
        return "modelled, calibrated" if calibrated(self.task.cost) else UNCALIBRATED

    def describe(self) -> dict[str, Any]:
        """Every number, as JSON can hold it."""
        tuning, held_out = self.task.parts
        return {
            "schema": SCHEMA,
            "ngramspec": __version__,
            "numpy": np.__version__,
            "kind": "modelled",
            "label": self.label,
            "engine": self.task.engine,
            "shape": self.task.shape,
            "trace": tuning.name,
            "requests": {"tuning": len(tuning), "held_out": len(held_out)},
            "retokenised_rows": tuning.n_retokenised + held_out.n_retokenised,
            "seed": self.task.seed,
            "cost": self.task.cost.describe(),
            "verdict": self.verdict,
            "settings": plain(self.settings),
            "set": self.advice,
            "batches": [b.describe() for b in self.batches],
            "sensitivity": [s.describe() for s in self.sensitivity],
            "left_out": plain(self.left_out),
            "n_points": self.n_points,
            "whole_grid": self.whole_grid,
        }


def sensitivities(space: Space, search: Search, chosen: Point) -> tuple[Sensitivity, ...]:
    """What each setting with more than one value matters around `chosen`, from what was replayed."""
    found = []
    for i, setting in enumerate(space.settings):
        if len(setting.values) == 1:
            continue
        alone, best = {}, {}
        for k, value in enumerate(setting.values):
            point = (*chosen[:i], k, *chosen[i + 1 :])
            if point in search.scores:
                alone[value] = search.worth(point)
            seen = [search.worth(p) for p in search.scores if p[i] == k]
            if seen:
                best[value] = max(seen)
        found.append(
            Sensitivity(setting.name, setting.values[chosen[i]], setting.default, alone, best, setting.ordered)
        )
    return tuple(sorted(found, key=lambda s: (-s.loss, s.name)))


def plain(value: Any) -> Any:
    """Values as JSON holds them: tuples of numbers as lists."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return list(value) if isinstance(value, tuple) else value
