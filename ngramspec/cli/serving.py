"""Options of a simulated server, and what `replay` prints about it."""

from __future__ import annotations

from typing import Annotated, Any, cast, get_args

import typer
from rich.console import Console

from ..errors import ConfigError
from ..replay.serving.settings import PREFILL_CHUNK, Arrivals, Serving
from .output import number, percent, table

#: Largest batch with open arrivals, unless told otherwise.
OPEN_BATCH = 256

_PANEL = "Serving: arrivals, prefill and drafting time on a modelled clock"

Arriving = Annotated[
    str | None,
    typer.Option(
        "--arrivals",
        metavar="|".join(get_args(Arrivals)),
        rich_help_panel=_PANEL,
        help="Send requests when there is room, at their time stamps, or at --rate. Needs --cost or --profile.",
    ),
]
Rate = Annotated[
    float | None, typer.Option("--rate", metavar="R", rich_help_panel=_PANEL, help="Requests a second, for poisson.")
]
Speed = Annotated[
    float | None,
    typer.Option(
        "--speed", metavar="X", rich_help_panel=_PANEL, help="For trace: recorded time passes X times faster."
    ),
]
PrefillChunk = Annotated[
    int | None,
    typer.Option(
        "--prefill-chunk",
        metavar="TOKENS",
        rich_help_panel=_PANEL,
        help=f"Most prompt tokens that a step computes. Default: {PREFILL_CHUNK}.",
    ),
]
NoPrefixCache = Annotated[
    bool,
    typer.Option(
        "--no-prefix-cache", rich_help_panel=_PANEL, help="Compute prompts whole, earlier turns of a session too."
    ),
]
DraftUs = Annotated[
    float | None,
    typer.Option(
        "--draft-us", metavar="µs", rich_help_panel=_PANEL, help="Charge this for drafting, a request and step."
    ),
]
AcceptUs = Annotated[
    float | None,
    typer.Option(
        "--accept-us", metavar="µs", rich_help_panel=_PANEL, help="Charge this for learning an emitted token."
    ),
]
IngestUs = Annotated[
    float | None,
    typer.Option("--ingest-us", metavar="µs", rich_help_panel=_PANEL, help="Charge this for ingesting a prompt token."),
]
ChargeMeasured = Annotated[
    bool,
    typer.Option(
        "--charge-measured",
        rich_help_panel=_PANEL,
        help="Replay once before and charge the times measured then; results differ from run to run.",
    ),
]
Overlap = Annotated[
    bool,
    typer.Option(
        "--overlap", rich_help_panel=_PANEL, help="Learning and ingesting hide behind the model; drafting never."
    ),
]


def chosen_serving(arrivals: str | None, seed: int, charge_measured: bool, **given: Any) -> Serving | None:
    """The server that the options ask for, None where they ask for none.

    `given` are the other settings of `Serving`, None or False where an option was not given; an option without effect
    raises `ConfigError`.
    """
    asked = {name: value for name, value in given.items() if value is not None and value is not False}
    if arrivals is None:
        wrong = ["charge_measured"] if charge_measured else []
        for name in [*asked, *wrong]:
            raise ConfigError(
                f"--{_option(name)} has no effect without --arrivals: leave it out, or say how they arrive"
            )
        return None
    if charge_measured and asked.keys() & {"draft_us", "accept_us", "ingest_us"}:
        raise ConfigError("--charge-measured: other times are given already; leave it or them out")
    if asked.pop("no_prefix_cache", False):
        asked["prefix_cache"] = False
    return Serving(arrivals=cast(Arrivals, arrivals), seed=seed, **asked)


def largest_batch(concurrency: int | None, serving: Serving | None) -> int:
    """`--concurrency`, or its default."""
    if concurrency is not None:
        return concurrency
    return 1 if serving is None or serving.arrivals == "closed" else OPEN_BATCH


def _option(name: str) -> str:
    return name.replace("_", "-")


HEADERS = [
    "",
    *("to first token,\nms: mean", "p50", "p99"),
    *("a token after,\nms: mean", "p50", "p99"),
    *("tokens\na second", "busy", "running,\nmean"),
]


def print_served(console: Console, runs: list[dict[str, Any]]) -> None:
    """Print one table a trace for runs served in modelled time: without speculation, and with each drafter."""
    by_trace: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        if "serving" in run:
            by_trace.setdefault(run["trace"], []).append(run)
    for name, group in by_trace.items():
        console.print(f"{name}: served, modelled", markup=False, style="bold")
        rows = [_cells("without speculation", group[0]["serving"]["plain"])]
        rows += [_cells(run["drafter"], run["serving"]["speculating"]) for run in group]
        console.print(table(HEADERS, rows))


def _cells(name: str, numbers: dict[str, Any]) -> list[str]:
    cells = [name]
    for what, digits in (("ttft_ms", 1), ("tpot_ms", 2)):
        cells += [number((numbers[what] or {}).get(key), digits) for key in ("mean", "p50", "p99")]
    return [
        *cells,
        number(numbers["tokens_per_second"], 0),
        percent(numbers["busy_share"]),
        number(numbers["requests_mean"], 1),
    ]


def served_caveats(runs: list[dict[str, Any]]) -> list[str]:
    """What a reader of served runs has to know, each once."""
    found: dict[str, None] = {}
    for run in runs:
        if "serving" not in run:
            continue
        found[_arrivals(run)] = None
        found |= dict.fromkeys(_extrapolated(run))
        found |= dict.fromkeys(_charged(run))
    return list(found)


def _arrivals(run: dict[str, Any]) -> str:
    how, most = run["config"]["serving"], run["config"]["concurrency"]
    if how["arrivals"] == "poisson":
        sent = f"are sent at random, {how['rate']:g} a second on average (seed {how['seed']})"
    elif how["arrivals"] == "trace":
        sent = "are sent at their time stamps" + (f", {how['speed']:g} times as fast" if how["speed"] != 1.0 else "")
    else:
        sent = "are each sent when there is room"
    compared = "" if how["arrivals"] == "closed" else "; speed-ups compare that with the last token's time"
    return (
        f"{run['trace']}: requests {sent}, at most {most} run at a time; latencies are modelled, and count from when a "
        f"request is sent{compared}"
    )


def _extrapolated(run: dict[str, Any]) -> list[str]:
    cost = run["config"]["cost"]
    known = max(point["n_tokens"] for point in cost["points"])
    most = max(run["serving"][which]["tokens_a_step_most"] for which in ("speculating", "plain"))
    if most <= known:
        return []
    return [
        f"{run['trace']}: steps of up to {most:,} tokens occur, step times {cost['name']} are known up to {known:,}: "
        "beyond, their last line is carried on"
    ]


def _charged(run: dict[str, Any]) -> list[str]:
    serving, name = run["serving"], f"{run['trace']}, {run['drafter']}"
    overlap = run["config"]["serving"]["overlap"]
    how = "learning and ingesting behind the model" if overlap else "all of it exposed"
    if any(serving["charged_us"].values()):
        times = _times(serving["charged_us"])
        measured = ", as measured in a replay before" if run["config"].get("charge_measured") else ""
        return [f"{name}: {times} are charged{measured}, {how}"]
    if "if_charged" not in serving or run["modelled_speedup"] is None:
        return []
    after = serving["if_charged"]
    return [
        f"{name}: its own time is not charged; measured here afterwards, {_times(after['charged_us'])} would make the "
        f"speed-up {after['modelled_speedup']:.2f}, {how}: --charge-measured charges it"
    ]


def _times(us: dict[str, float]) -> str:
    return (
        f"{us['draft']:.3g} µs a draft, {us['accept']:.3g} µs a learned token and {us['ingest']:.3g} µs a prompt token"
    )
