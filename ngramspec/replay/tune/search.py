"""The search: vary one setting at a time, let Optuna propose, then vary one setting at a time around the best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from .objective import Job, Scores, mean
from .space import Point, Space
from .workers import Workers

if TYPE_CHECKING:
    from .study import Study

#: Points asked for at once, whatever the number of workers: results must not depend on it.
ROUND = 8

#: Gain below which a setting keeps its default.
WORTH = 0.001

#: Most times that one setting at a time is varied around the best point.
MAX_PASSES = 8

#: Called with what is being done, how many points of it are done, and how many there are.
Progress = Callable[[str, int, int], None]


class Search:
    """Points and what they are worth.

    Parameters
    ----------
    batches : tuple of int
        Batch sizes at which every point is replayed.
    workers : callable
        Turns jobs into scores.
    on_progress : callable, optional
        See `Progress`.
    """

    def __init__(self, batches: tuple[int, ...], workers: Workers, on_progress: Progress | None = None) -> None:
        self.batches = batches
        self.scores: dict[Point, Scores] = {}
        self._workers = workers
        self._on_progress = on_progress

    def evaluate(self, space: Space, points: Sequence[Point], what: str) -> list[Point]:
        """Replay the points that nobody has replayed yet, and return those."""
        new = [point for point in dict.fromkeys(points) if point not in self.scores]
        found = self._workers([Job(space.values(point), batch) for point in new for batch in self.batches])
        for i, point in enumerate(new):
            self.scores[point] = tuple(islice(found, len(self.batches)))
            if self._on_progress:
                self._on_progress(what, i + 1, len(new))
        return new

    def without_effect(self, space: Space) -> list[str]:
        """Settings that change no draft when varied alone: not at the defaults, and not at either end of the others."""
        idle = set(range(len(space.settings)))
        for centre in (space.base(), next(space.points()), next(space.points(backward=True))):
            varied = {i: [p for p in space.star(centre) if p[i] != centre[i]] for i in idle}
            self.evaluate(space, [centre, *(p for points in varied.values() for p in points)], "each setting alone")
            expected = self._digests(centre)
            idle -= {i for i, points in varied.items() if any(self._digests(p) != expected for p in points)}
        return [setting.name for i, setting in enumerate(space.settings) if i in idle and len(setting.values) > 1]

    def hold(self, space: Space, names: Sequence[str], at: Point) -> Space:
        """The space with the named settings held at what they are at `at`; what was found out elsewhere is dropped."""
        held = [setting.name in names for setting in space.settings]
        kept = {p: s for p, s in self.scores.items() if all(p[i] == at[i] for i, h in enumerate(held) if h)}
        self.scores = {tuple(0 if h else k for k, h in zip(p, held, strict=True)): s for p, s in kept.items()}
        return space.fixed(set(names), at)

    def best(self, space: Space, batch: int | None = None) -> Point:
        """The best point so far, at one batch size or over all of them; ties to fewer changes, then first values."""

        def rank(point: Point) -> tuple[float, int, Point]:
            return -self.worth(point, batch), space.changes(point), point

        return min(self.scores, key=rank)

    def run(self, space: Space, study: Study, trials: int) -> Point:
        """Search, and return the point to recommend."""
        known = study.known() if study.shared else {}
        for point, scores in self.scores.items():
            if point not in known:
                study.add(point, scores)
        if space.size <= trials:
            self._evaluate_and_add(space, study, list(space.points()), "whole grid")
        else:
            self._propose(space, study, trials)
        return self._settle(space, study)

    def _propose(self, space: Space, study: Study, trials: int) -> None:
        for start in range(0, trials, ROUND):
            self._join(study)
            asked = [study.ask() for _ in range(min(ROUND, trials - start))]
            good = [point for _, point in asked if space.allowed(space.values(point))]
            self.evaluate(space, good, f"search, {start} of {trials} done")
            for trial, point in asked:
                study.tell(trial, self.scores.get(point))

    def _settle(self, space: Space, study: Study) -> Point:
        """Move one setting at a time until that gains nothing, and back to defaults where that loses nothing."""
        self._join(study)
        chosen = self.best(space)
        for _ in range(MAX_PASSES):
            around = space.star(chosen)
            self._evaluate_and_add(space, study, around, "around the best")
            floor = self.worth(self.best(space)) * (1 - WORTH)
            good = [point for point in around if self.worth(point) >= floor]
            simplest = min(good, key=lambda point: (space.changes(point), -self.worth(point), point))
            if chosen in good and space.changes(simplest) >= space.changes(chosen):
                break
            chosen = simplest
        return chosen

    def _evaluate_and_add(self, space: Space, study: Study, points: Sequence[Point], what: str) -> None:
        self._join(study)
        for point in self.evaluate(space, points, what):
            study.add(point, self.scores[point])

    def _join(self, study: Study) -> None:
        if study.shared:
            self.scores |= study.known()

    def worth(self, point: Point, batch: int | None = None) -> float:
        """Speed-up of a point that was replayed, at one batch size or over all of them."""
        scores = self.scores[point]
        return mean(scores) if batch is None else scores[self.batches.index(batch)].speedup

    def _digests(self, point: Point) -> list[str]:
        return [score.digest for score in self.scores[point]]
