"""Line charts as small SVG files, the same bytes for the same numbers."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ngramspec.replay.report.figure import COLOURS, FONT, GREY, LIGHT

WIDTH, HEIGHT, ROW = 760, 360, 18
LEFT, RIGHT, TOP, BOTTOM = 64, 210, 56, 48


@dataclass(frozen=True)
class Line:
    """A named row of points; ours are drawn thicker."""

    name: str
    points: Sequence[tuple[float, float]]
    ours: bool = False
    colour: int = 0  #: which one, the same for the same name on all charts; beyond the colours there are, dashed


@dataclass(frozen=True)
class Axis:
    """One axis: title, ticks and whether it is logarithmic."""

    title: str
    ticks: Sequence[float]
    log: bool = False

    def share(self, value: float) -> float:
        """Place of a value between the first tick (0) and the last (1), held within."""
        low, high = self.ticks[0], self.ticks[-1]
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(max(value, low))
        return min(max((value - low) / (high - low), 0.0), 1.0)


def short(value: float) -> str:
    """A tick's number: 1k, 10M, 1,024."""
    if value >= 1000 and value % 1000:
        return f"{value:,g}"
    for unit, size in (("M", 1_000_000), ("k", 1000)):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def decades(values: Sequence[float]) -> list[float]:
    """Ticks 1, 2, 5, 10, ... around positive values."""
    steps = [m * 10.0**e for e in range(-4, 10) for m in (1, 2, 5)]
    low, high = max(s for s in steps if s <= min(values)), min(s for s in steps if s >= max(values))
    return [s for s in steps if low <= s <= high]


def chart(title: str, x: Axis, y: Axis, lines: Sequence[Line]) -> str:
    """One chart with its legend on the right."""
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(point: tuple[float, float]) -> tuple[float, float]:
        return round(LEFT + wide * x.share(point[0]), 1), round(TOP + high * (1 - y.share(point[1])), 1)

    def text(place: tuple[float, float], words: str, more: str = "") -> str:
        return f'<text x="{place[0]:g}" y="{place[1]:g}"{more}>{html.escape(words)}</text>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="{html.escape(FONT)}" '
        f'font-size="12" fill="#2a2e33">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        text((LEFT, 20), title, ' font-size="14" font-weight="600"'),
        text((LEFT + wide / 2, HEIGHT - 10), x.title, ' text-anchor="middle"'),
        text((14, TOP - 14), y.title, f' fill="{GREY}"'),
    ]
    for tick in y.ticks:
        _, level = at((x.ticks[0], tick))
        parts.append(f'<path d="M{LEFT} {level:g}H{LEFT + wide}" stroke="{LIGHT}"/>')
        parts.append(text((LEFT - 8, level + 4), short(tick), f' text-anchor="end" fill="{GREY}"'))
    for tick in x.ticks:
        place, _ = at((tick, y.ticks[0]))
        parts.append(f'<path d="M{place:g} {TOP + high}v5" stroke="{GREY}"/>')
        parts.append(text((place, TOP + high + 20), short(tick), f' text-anchor="middle" fill="{GREY}"'))
    for i, line in enumerate(lines):
        colour, width = COLOURS[line.colour % len(COLOURS)], 3 if line.ours else 1.5
        dashes = ' stroke-dasharray="5 3"' if line.colour >= len(COLOURS) else ""
        places = [at(point) for point in line.points]
        path = "L".join(f"{px:g} {py:g}" for px, py in places)
        parts.append(f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashes}/>')
        parts += [f'<circle cx="{px:g}" cy="{py:g}" r="{width + 0.5:g}" fill="{colour}"/>' for px, py in places]
        level = TOP + 8 + ROW * i
        parts.append(f'<path d="M{WIDTH - RIGHT + 16} {level}h22" stroke="{colour}" stroke-width="{width}"{dashes}/>')
        parts.append(text((WIDTH - RIGHT + 44, level + 4), line.name, ' font-weight="600"' if line.ours else ""))
    return "\n".join([*parts, "</svg>", ""])
