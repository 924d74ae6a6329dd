"""An Optuna study over points of a space: what to try next, and what other machines have tried."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from ...errors import ConfigError
from .objective import Score, Scores, mean
from .space import Point, Setting, Space, shown

#: Where a trial keeps what was found at each batch size.
SCORES = "scores"


@contextmanager
def quiet() -> Iterator[None]:
    """Keep Optuna's own reports of every trial off the terminal."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


class Study:
    """Asks Optuna's tree of Parzen estimators for points and tells it what they were worth.

    Parameters
    ----------
    space : Space
        Settings with one value are left to the space.
    seed : int
        Seed of the proposals. Has no effect with `storage`: machines that join must not propose the same.
    storage : str, optional
        Address of a database that Optuna takes, `sqlite:///tune.db` say. None: in memory.
    name : str
        Machines that give the same name to the same storage work on one study.

    Raises
    ------
    ConfigError
        The storage cannot be used.
    """

    def __init__(self, space: Space, *, seed: int, storage: str | None, name: str) -> None:
        self._space = space
        self.shared = storage is not None
        self._distributions = {s.name: _distribution(s) for s in space.settings if len(s.values) > 1}
        sampler = optuna.samplers.TPESampler(seed=None if self.shared else seed, constant_liar=True)
        try:
            self._study = optuna.create_study(
                storage=storage, study_name=name, sampler=sampler, direction="maximize", load_if_exists=True
            )
        except Exception as error:  # whatever the database's driver raises
            raise ConfigError(f"storage: {storage} cannot be used: {error}") from None

    def ask(self) -> tuple[Trial, Point]:
        """A point to try; the trial waits for `tell`."""
        trial = self._study.ask(self._distributions)
        return trial, self._point(trial.params)

    def tell(self, trial: Trial, scores: Scores | None) -> None:
        """What a point that was asked for is worth; None where the engine refuses it."""
        if scores is None:
            self._study.tell(trial, state=TrialState.PRUNED)
        else:
            trial.set_user_attr(SCORES, [score.describe() for score in scores])
            self._study.tell(trial, mean(scores))

    def add(self, point: Point, scores: Scores) -> None:
        """What a point is worth that nobody asked for."""
        settings = zip(self._space.settings, point, strict=True)
        self._study.add_trial(
            create_trial(
                params={s.name: _parameter(s, i) for s, i in settings if s.name in self._distributions},
                distributions=self._distributions,
                value=mean(scores),
                user_attrs={SCORES: [score.describe() for score in scores]},
            )
        )

    def known(self) -> dict[Point, Scores]:
        """Everything that any machine has found out."""
        done: list[FrozenTrial] = self._study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
        return {self._point(trial.params): tuple(map(Score.read, trial.user_attrs[SCORES])) for trial in done}

    def _point(self, params: dict[str, Any]) -> Point:
        return tuple(
            _place(setting, params[setting.name]) if setting.name in params else 0 for setting in self._space.settings
        )


def _distribution(setting: Setting) -> BaseDistribution:
    if setting.ordered:
        return IntDistribution(0, len(setting.values) - 1)
    return CategoricalDistribution([shown(value) for value in setting.values])


def _parameter(setting: Setting, place: int) -> int | str:
    return place if setting.ordered else shown(setting.values[place])


def _place(setting: Setting, parameter: int | str) -> int:
    return int(parameter) if setting.ordered else [shown(value) for value in setting.values].index(str(parameter))
