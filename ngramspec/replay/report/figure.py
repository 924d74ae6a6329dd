"""What a report is made of: figures and tables that name how their numbers came about, and how figures look."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...drafting.cost import KINDS
from ...errors import ConfigError
from ..drafters import RECORDED

#: Colours that stay apart for colour-blind readers and in grey, and marks that tell the same apart without colour.
COLOURS = ("#1f4e8c", "#c4621a", "#2b8a78", "#8a4f9e", "#b08a1e", "#5b6670", "#a83246", "#4f9bc9", "#6b7f2a", "#333333")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "pentagon", "hexagon", "bowtie")
GREY, PALE, LIGHT = "#8b929a", "#b4bbc2", "#d9dde1"

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', 'Liberation Sans', Arial, sans-serif"

#: Lets the page decide the width; a finger that scrolls past a figure must not zoom into it.
PLOT_CONFIG = {"displayModeBar": False, "responsive": True, "scrollZoom": False}


@dataclass(frozen=True)
class Table:
    """Cells of a table.

    Attributes
    ----------
    headers : list of str
        Heads of the columns.
    rows : list of list of str
        One list a row.
    left : int
        So many first columns are text, the others numbers.
    """

    headers: list[str]
    rows: list[list[str]]
    left: int = 1


@dataclass(frozen=True)
class Exhibit:
    """A figure or a table of the report.

    Attributes
    ----------
    key : str
        Name within its chapter.
    title : str
        One line.
    kind : str
        How its numbers came about, one of `drafting.cost.KINDS`.
    caption : str
        What is shown and how to read it.
    figure : dict, optional
        What is drawn: `data` and `layout`, as Plotly reads them.
    table : Table, optional
        What is tabulated.
    """

    key: str
    title: str
    kind: str
    caption: str
    figure: dict[str, Any] | None = None
    table: Table | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"{self.key}: got kind {self.kind!r}, allowed {', '.join(KINDS)}")

    def drawing(self, chapter: int) -> str:
        """The figure as HTML, its element named after the chapter too."""
        import plotly.io  # takes most of a second: only where something is drawn

        assert self.figure is not None
        html_of: str = plotly.io.to_html(
            self.figure,
            config=PLOT_CONFIG,
            include_plotlyjs=False,
            full_html=False,
            div_id=f"{self.key}-{chapter}",
            default_height=f"{self.figure['layout']['height']}px",
        )
        return html_of


def scatter(**settings: Any) -> dict[str, Any]:
    """Points or a line, with Plotly's settings of a scatter trace."""
    return {"type": "scatter", **settings}


def bar(**settings: Any) -> dict[str, Any]:
    """Bars, with Plotly's settings of a bar trace."""
    return {"type": "bar", **settings}


def draw(
    key: str, title: str, kind: str, traces: Sequence[dict[str, Any]], caption: str, *, height: int = 380, **layout: Any
) -> Exhibit:
    """A Plotly figure in the report's look.

    Parameters
    ----------
    key, title, kind
        See `Exhibit`.
    traces : sequence of dict
        What is drawn; see `scatter` and `bar`.
    caption : str
        See `Exhibit`.
    height : int
        Pixels.
    **layout
        Settings of Plotly's layout; those of axes and legend are laid over the common ones.
    """
    axis = {"gridcolor": LIGHT, "zeroline": False, "linecolor": GREY, "automargin": True, "fixedrange": True}
    legend = {"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom", "x": 0}
    parts = {name: base | layout.pop(name, {}) for name, base in (("xaxis", axis), ("yaxis", axis), ("legend", legend))}
    common = {
        "height": height,
        "font": {"family": FONT, "size": 13, "color": "#2a2e33"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 8, "r": 24, "t": 12, "b": 8},
        "hoverlabel": {"font": {"family": FONT, "size": 13}},
        "dragmode": False,
    }
    return Exhibit(key, title, kind, caption, figure={"data": list(traces), "layout": common | parts | layout})


def count_of(value: float | None, digits: int) -> str:
    """A number for a cell; a dash for None."""
    return "–" if value is None else f"{value:,.{digits}f}"


def percent(value: float | None, digits: int = 1) -> str:
    """A share for a cell or sentence; a dash for None."""
    return "–" if value is None else f"{round(100 * value, digits):g} %"


def label(name: str) -> str:
    """A recorded name, safe within a figure: Plotly reads a little HTML in its texts."""
    shown = name or "(none)"
    return html.escape(shown if len(shown) <= 40 else shown[:37] + "...")


def kind_of(runs: Sequence[dict[str, Any]]) -> str:
    """The kind of the runs' numbers; runs of several kinds have no place in one exhibit.

    A recorded drafter, whose name tells that its steps are read, may stand beside others.
    """
    kinds = sorted({str(run["kind"]) for run in [run for run in runs if run["drafter"] != RECORDED] or runs})
    if len(kinds) != 1:
        raise ConfigError(f"runs of one trace must be of one kind, got {', '.join(kinds) or 'none'}")
    return kinds[0]


def colour(names: Sequence[str], name: str) -> str:
    """The colour of one of several names; a drafter keeps its colour in all figures of a page."""
    return COLOURS[list(names).index(name) % len(COLOURS)]


def symbol(names: Sequence[str], name: str) -> str:
    """The mark of one of several names."""
    return SYMBOLS[list(names).index(name) % len(SYMBOLS)]
