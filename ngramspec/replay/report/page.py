"""`write_report`: put the exhibits of every trace on one page that holds all it needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ...errors import TraceError
from ..files import replacing
from ..trace import Trace
from . import calibration, costs, drafts, frontier, overview, recommendation, served
from .caveats import caveats
from .examples import Watched, watch
from .figure import Exhibit
from .group import Group, Run, groups
from .provenance import records, versions


@dataclass(frozen=True)
class Chapter:
    """What the page says about one trace.

    Attributes
    ----------
    group : Group
        Its runs.
    headline : str
        The advice in one line.
    advice, choices : list of str
        The advice in sentences, and which settings to take.
    exhibits : list of Exhibit
        Figures and tables, in order.
    watched : Watched, optional
        Single requests, where the trace is at hand.
    caveats : list of str
        What to know before believing it.
    records : dict of str to str
        What identifies trace and settings.
    """

    group: Group
    headline: str
    advice: list[str]
    choices: list[str]
    exhibits: list[Exhibit]
    watched: Watched | None
    caveats: list[str]
    records: dict[str, str]


def write_report(
    runs: Sequence[Run],
    path: str | os.PathLike[str],
    *,
    traces: Sequence[Trace] = (),
    command: str = "",
    notes: Mapping[str, str] | None = None,
    decode: Callable[[list[int]], str] | None = None,
) -> None:
    """Write a page about replayed runs: one file that needs no network, for a screen, a phone or paper.

    Parameters
    ----------
    runs : sequence of dict
        What `run` returned, of one or more traces. Of each drafter and trace the first run is compared with the other
        drafters; further ones, with other budgets, make the frontier.
    path : path
        The HTML file; it appears whole or not at all.
    traces : sequence of Trace
        The traces that were replayed, found by name. The best drafter replays each once more, cold, to show single
        requests; without its trace a chapter has no examples and no digest.
    command : str
        What was typed to get here, for the reader who wants to repeat it.
    notes : mapping of str to str, optional
        For the name of a trace, where its recording comes from: whose outputs, and whose token ids.
    decode : callable, optional
        Turns a list of token ids into text, for examples; ids are shown without it.

    Raises
    ------
    TraceError
        There are no runs, or the file cannot be written.
    ConfigError
        Numbers do not say how they came about.
    """
    import jinja2
    import plotly.offline

    if not runs:
        raise TraceError("report: got no runs, needs at least one")
    chapters = [_chapter(group, (notes or {}).get(group.name, ""), decode) for group in groups(runs, traces)]
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("ngramspec.replay.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    text = environment.get_template("page.html.j2").render(
        chapters=chapters,
        command=command,
        versions=versions(),
        plotly=plotly.offline.get_plotlyjs(),
    )
    with replacing(path) as file:
        file.write(text.encode())


def _chapter(group: Group, notes: str, decode: Callable[[list[int]], str] | None) -> Chapter:
    main = group.main
    watched = None
    if group.trace is not None and main is not None and main["drafted_tokens"]:
        watched = watch(group.trace, main, decode)
    made: list[Exhibit | None] = []
    if main is not None:
        made = [
            overview.speedups(group),
            overview.accept_lengths(group),
            overview.numbers(group),
            served.latencies(group),
            overview.by_batch(group),
            overview.by_category(group, "modelled_speedup"),
            overview.by_category(group),
            frontier.frontier(group) if group.drafting else None,
            frontier.prices(group) if group.swept and not main.get("modelled_speedup") else None,
            calibration.reliability(group),
            drafts.positions(group),
            drafts.sources(group),
            drafts.reasons(group),
            costs.time(group),
            costs.memory(group),
            None if watched is None else overview.by_request(group, watched.per_row),
        ]
    return Chapter(
        group=group,
        headline=recommendation.headline(group.runs),
        advice=recommendation.recommend(group.runs),
        choices=recommendation.choices(group),
        exhibits=[exhibit for exhibit in made if exhibit is not None],
        watched=watched,
        caveats=caveats(group, notes),
        records=records(group),
    )
