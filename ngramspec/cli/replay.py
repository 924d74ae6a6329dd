"""`ngramspec replay`: what drafters would have saved on recorded traffic."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast, get_args

import typer

from ..caches.base import Share
from ..drafting.budget import MODES
from ..errors import ConfigError
from ..replay.drafters import DEFAULT_CAPACITY, DRAFTERS
from ..replay.formats import read
from ..replay.options import Options, Shape
from ..replay.report import further
from ..replay.results import document, run, write_json
from ..replay.tokenizer import decoder
from ..replay.trace import Trace
from . import report as reports
from .cost import CostFile, ExposedUs, Profile, chosen_budget, chosen_cost
from .files import writable
from .output import caveats, print_runs, progress, stdout
from .serving import (
    OPEN_BATCH,
    AcceptUs,
    Arriving,
    ChargeMeasured,
    DraftUs,
    IngestUs,
    NoPrefixCache,
    Overlap,
    PrefillChunk,
    Rate,
    Speed,
    chosen_serving,
    largest_batch,
    print_served,
    served_caveats,
)


def ids(text: str) -> tuple[int, ...]:
    """Token ids from `1,2,3`; raises `ConfigError` for anything else."""
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        found = (-1,)
    if min(found) < 0:
        raise ConfigError(f"--eos: got {text!r}, allowed token ids from 0, separated by commas")
    return found


def names(text: str) -> list[str]:
    """Drafter names from `a,b`, all known and each once; raises `ConfigError` otherwise."""
    found = [part.strip() for part in text.split(",")]
    for name in found:
        if name not in DRAFTERS:
            raise ConfigError(f"--drafter: got {name!r}, allowed {', '.join(DRAFTERS)}")
    if len(set(found)) < len(found):
        raise ConfigError(f"--drafter: got {text!r}, name each drafter once")
    return found


def load(paths: list[Path], limit: int | None, skip_bad: bool) -> list[Trace]:
    """Read traces, the first `limit` requests of each; bad rows raise, or are left out with `skip_bad`."""
    traces = [read(path, skip_bad=skip_bad) for path in paths]
    return traces if limit is None else [trace.select(range(min(limit, len(trace)))) for trace in traces]


def replay(
    context: typer.Context,
    traces: Annotated[list[Path], typer.Argument(metavar="TRACE...", help="JSONL, JSONL.gz, .npz or Parquet.")],
    drafter: Annotated[str, typer.Option(metavar="NAME[,NAME...]", help=f"Of {', '.join(DRAFTERS)}.")] = "ngramspec",
    topology: Annotated[str, typer.Option(metavar="tree|chain", help="Shape of the drafts.")] = "tree",
    max_draft: Annotated[int, typer.Option(metavar="N", help="Most tokens drafted a step.")] = 11,
    min_prob: Annotated[
        float, typer.Option(metavar="P", help="Path probability below which a token is not drafted.")
    ] = 0.0,
    concurrency: Annotated[
        int | None,
        typer.Option(
            metavar="C", help=f"Requests that run at a time, at most. Default: 1; {OPEN_BATCH} with open --arrivals."
        ),
    ] = None,
    share: Annotated[
        str, typer.Option(metavar="outputs|all|none", help="What later requests see of earlier ones.")
    ] = "outputs",
    eos: Annotated[
        str | None, typer.Option(metavar="ID,...", help="Ids that end an output, instead of the trace's own.")
    ] = None,
    shape: Annotated[
        str,
        typer.Option(
            metavar="ideal|vllm|sglang", help="What the engine verifies: any draft, chains, one padded width."
        ),
    ] = "ideal",
    budget: Annotated[
        str | None,
        typer.Option(metavar="|".join(MODES), help="Verify --max-draft, what reaches --min-prob, or what is fastest."),
    ] = None,
    widths: Annotated[
        str | None, typer.Option(metavar="N,...", help="Drafted tokens a request for which sglang has graphs.")
    ] = None,
    cost: CostFile = None,
    profile: Profile = None,
    exposed_us: ExposedUs = 0.0,
    arrivals: Arriving = None,
    rate: Rate = None,
    speed: Speed = None,
    prefill_chunk: PrefillChunk = None,
    no_prefix_cache: NoPrefixCache = False,
    draft_us: DraftUs = None,
    accept_us: AcceptUs = None,
    ingest_us: IngestUs = None,
    charge_measured: ChargeMeasured = False,
    overlap: Overlap = False,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Only the first N requests of each trace.")
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="S", min=0, help="Seed of the 95 % interval, and of poisson arrivals.")
    ] = 0,
    capacity: Annotated[
        int, typer.Option(metavar="TOKENS", help="Tokens of text that a drafter keeps.")
    ] = DEFAULT_CAPACITY,
    warm_up: Annotated[
        list[Path] | None, typer.Option(metavar="TRACE", help="Replay this first, uncounted. May be repeated.")
    ] = None,
    upper_bound: Annotated[
        bool, typer.Option("--upper-bound", help="Let the warm-up hold the trace's own requests.")
    ] = False,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave bad rows out instead of stopping at the first.")
    ] = False,
    calibration: Annotated[
        bool, typer.Option("--calibration", help="Compare predicted probabilities with what was emitted.")
    ] = False,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write every number to FILE.")] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write figures and advice to FILE (HTML).")
    ] = None,
    frontier: Annotated[
        bool, typer.Option("--frontier", help="For --report, replay other budgets too; with step times, batch sizes.")
    ] = False,
    tokenizer: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="For --report, tokenizer.json or its folder: trees show text, not ids."),
    ] = None,
) -> None:
    """Replay recorded requests through drafters: accepted length, rates and the drafters' own time.

    Every drafter starts cold on every trace. Accept length is the mean number of tokens emitted a verify step.

    With --arrivals, requests are served in modelled time: times to first token and per output token, with and without
    speculation, under the same load. Try --profile dense-8b-h100 --arrivals poisson --rate 8 --concurrency 32.
    """
    if upper_bound and not warm_up:
        raise ConfigError("--upper-bound has no effect without --warm-up: leave it out")
    reports.checked(report, frontier, tokenizer)
    chosen = names(drafter)
    model = chosen_cost(cost, profile, exposed_us)
    serving = chosen_serving(
        arrivals,
        seed,
        charge_measured,
        rate=rate,
        speed=speed,
        prefill_chunk=prefill_chunk,
        no_prefix_cache=no_prefix_cache,
        draft_us=draft_us,
        accept_us=accept_us,
        ingest_us=ingest_us,
        overlap=overlap,
    )
    if serving is not None and model is None:
        raise ConfigError("--arrivals needs step times, by which its clock advances: give --cost or --profile")
    if serving is not None and frontier:
        raise ConfigError(
            "--frontier has no effect with --arrivals, whose load other batch sizes would change: leave it out"
        )
    options = Options(
        max_draft=max_draft,
        topology=topology,
        min_prob=0.0 if budget == "threshold" else min_prob,
        concurrency=largest_batch(concurrency, serving),
        share=_share(share),
        eos_ids=None if eos is None else ids(eos),
        calibration=calibration or report is not None,
        shape=_shape(shape),
        budget=chosen_budget(budget, max_draft, min_prob, model, shape, widths),
        cost=model,
        serving=serving,
    )
    writable(json, report, reads=[*traces, *(warm_up or []), cost, tokenizer])
    loaded, warm = load(traces, limit, skip_bad), load(warm_up or [], None, skip_bad)
    decode = None if tokenizer is None else decoder(tokenizer, loaded)
    common: dict[str, Any] = {"seed": seed, "capacity_tokens": capacity, "warm_up": warm, "upper_bound": upper_bound}
    runs = replay_all(loaded, chosen, options, charge_measured=charge_measured, **common)
    for result in runs:
        result["config"]["limit"] = limit
    show(runs)
    if json is not None:
        write_json(document(runs), json)
    if report is not None:
        for name, other in further(loaded, chosen, options) if frontier else []:
            runs += replay_all(loaded, [name], other, **common)
        reports.write(runs, loaded, report, context, decode=decode)


def _shape(text: str) -> Shape:
    for known in get_args(Shape):
        if text == known:
            return cast(Shape, text)
    raise ConfigError(f"--shape: got {text!r}, allowed {', '.join(get_args(Shape))}")


def _share(text: str) -> Share:
    for known in ("outputs", "all", "none"):
        if text == known:
            return known
    raise ConfigError(f"--share: got {text!r}, allowed outputs, all or none")


def replay_all(traces: list[Trace], drafters: list[str], options: Options, **settings: Any) -> list[dict[str, Any]]:
    """Run every drafter on every trace, with a progress bar; `settings` go to `ngramspec.replay.run`."""
    with progress() as start:
        return [
            run(trace, name, options, on_progress=start(f"{trace.name} · {name}", len(trace)), **settings)
            for trace in traces
            for name in drafters
        ]


def show(runs: list[dict[str, Any]]) -> None:
    """Print a table of the runs and what a reader has to know about them."""
    console = stdout()
    print_runs(console, runs)
    print_served(console, runs)
    for line in caveats(runs) + served_caveats(runs):
        console.print(f"note: {line}")
