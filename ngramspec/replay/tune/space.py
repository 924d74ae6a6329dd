"""What may be set, and to which values: points of a grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from ...config import check
from ...errors import ConfigError

#: One choice of every setting, by name. Values are ints, floats, strings or tuples of ints.
Values = dict[str, Any]

#: The same as the place of each value among those allowed, in the order of the settings.
Point = tuple[int, ...]


@dataclass(frozen=True)
class Setting:
    """One thing that can be set.

    Attributes
    ----------
    name : str
        As the engine calls it, where it has a name for it.
    values : tuple
        What is tried, without repetition.
    default : object
        What holds when nobody sets it.
    ordered : bool
        Whether neighbours among `values` are expected to do alike.
    limits : (int, int), optional
        Smallest and largest value, for integers that the classes behind them call by another name or do not bound.
    """

    name: str
    values: tuple[Any, ...]
    default: Any
    ordered: bool = True
    limits: tuple[int, int] | None = None

    def with_values(self, values: Sequence[Any]) -> Setting:
        """The same setting with other values; raises `ConfigError` for none, one twice, or one beyond the limits."""
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise ConfigError(f"{self.name}: got {values!r}, needs a list of values")
        found = tuple(tuple(value) if isinstance(value, list) else value for value in values)
        if not found or any(value in found[:i] for i, value in enumerate(found)):
            raise ConfigError(f"{self.name}: got {list(values)}, needs at least one value, each once")
        if self.limits is not None:
            for value in found:
                check(value, self.name, *self.limits)
        return replace(self, values=found)

    def read(self, text: str) -> list[Any]:
        """Values from `a,b,c`, context lengths joined by dashes (`1-2-4`); raises `ConfigError`."""
        if isinstance(self.default, tuple):
            kind: Callable[[str], Any] = lambda part: tuple(int(n) for n in part.split("-"))  # noqa: E731
        else:
            kind = type(self.default)
        try:
            return [kind(part.strip()) for part in text.split(",")]
        except ValueError:
            raise ConfigError(
                f"{self.name}: got {text!r}, allowed values like {', '.join(map(shown, self.values))}"
            ) from None


def shown(value: Any) -> str:
    """A value as the command line reads it."""
    return "-".join(map(str, value)) if isinstance(value, tuple) else str(value)


@dataclass(frozen=True)
class Space:
    """A grid of settings, less the points that an engine refuses.

    Attributes
    ----------
    settings : tuple of Setting
        In a fixed order.
    allowed : callable
        Whether an engine takes these values together.
    """

    settings: tuple[Setting, ...]
    allowed: Callable[[Values], bool]

    @property
    def size(self) -> int:
        """Points of the grid, refused ones included."""
        return math.prod(len(setting.values) for setting in self.settings)

    def values(self, point: Point) -> Values:
        """The settings at a point."""
        return {setting.name: setting.values[i] for setting, i in zip(self.settings, point, strict=True)}

    def points(self, *, backward: bool = False) -> Iterator[Point]:
        """Every point that is not refused, first values first, or last ones."""
        places = [range(len(setting.values)) for setting in self.settings]
        for point in product(*(reversed(here) if backward else here for here in places)):
            if self.allowed(self.values(point)):
                yield point

    def base(self) -> Point:
        """The defaults, or the first value where a default is not tried; raises `ConfigError` if all is refused."""
        point = tuple(
            setting.values.index(setting.default) if setting.default in setting.values else 0
            for setting in self.settings
        )
        if self.allowed(self.values(point)):
            return point
        first = next(self.points(), None)
        if first is None:
            raise ConfigError("set: no combination of these values is allowed by the engine; give others")
        return first

    def star(self, centre: Point) -> list[Point]:
        """Points that differ from `centre` in at most one setting, `centre` first."""
        found = [centre]
        for i, setting in enumerate(self.settings):
            for k in range(len(setting.values)):
                point = (*centre[:i], k, *centre[i + 1 :])
                if k != centre[i] and self.allowed(self.values(point)):
                    found.append(point)
        return found

    def changes(self, point: Point) -> int:
        """How many settings differ from their defaults."""
        return sum(setting.values[i] != setting.default for setting, i in zip(self.settings, point, strict=True))

    def fixed(self, names: set[str], at: Point) -> Space:
        """The same space with the named settings held at the values they have at `at`."""
        settings = [
            setting.with_values([setting.values[i]]) if setting.name in names else setting
            for setting, i in zip(self.settings, at, strict=True)
        ]
        return replace(self, settings=tuple(settings))

    def with_values(self, given: Mapping[str, Sequence[Any]]) -> Space:
        """The same space with other values for some settings; an unknown name is a `ConfigError`."""
        known = [setting.name for setting in self.settings]
        for name in given:
            if name not in known:
                raise ConfigError(f"set: got {name!r}, this engine has {', '.join(known)}")
        settings = [s.with_values(given[s.name]) if s.name in given else s for s in self.settings]
        return replace(self, settings=tuple(settings))
