"""`ngramspec tune`: which settings to give an engine for recorded traffic, and whether to draft at all."""

from __future__ import annotations

import json as js
import os
import shlex
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console

from ..errors import ConfigError
from ..replay.options import Shape
from ..replay.results import write_json
from ..replay.trace import Trace
from ..replay.tune import AtBatch, Tuned
from ..replay.tune import tune as search
from ..replay.tune.engines import ENGINES, engine
from ..replay.tune.space import shown
from .calibrate import counts
from .cost import CostFile, ExposedUs, Profile, chosen_cost, source_line
from .files import writable
from .output import FULL, number, percent, progress, stdout, table
from .replay import ids, load

#: Engines that read a configuration.
CONFIGURED = ("ngramspec", "ngramspec-sglang")
HEADERS = ["batch", "verdict", "speed-up,\nheld out", "95 %", "defaults", "accept\nlength", "verified\na step"]


def tune(
    traces: Annotated[list[Path], typer.Argument(metavar="TRACE...", help="JSONL, JSONL.gz, .npz or Parquet.")],
    name: Annotated[
        str,
        typer.Option(
            "--engine", metavar="|".join(ENGINES), help="Our drafter, ours inside SGLang, or an engine's own drafts."
        ),
    ] = "ngramspec",
    shape: Annotated[
        str | None,
        typer.Option(metavar="ideal|vllm|sglang", help="For ngramspec, what the engine around it verifies."),
    ] = None,
    cost: CostFile = None,
    profile: Profile = None,
    exposed_us: ExposedUs = 0.0,
    batches: Annotated[str, typer.Option(metavar="B,...", help="Requests at a time.")] = "1,8,32",
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=A,B,...", help="Values to try instead of the usual; one fixes it. Repeat."),
    ] = None,
    trials: Annotated[int, typer.Option(metavar="N", help="Settings that Optuna proposes.")] = 48,
    held_out: Annotated[float, typer.Option(metavar="SHARE", help="Requests that are only judged by.")] = 0.5,
    min_gain: Annotated[float, typer.Option(metavar="SHARE", help="Gain below which drafting is not worth it.")] = 0.01,
    workers: Annotated[int | None, typer.Option(metavar="N", help="Processes. Default: one a core.")] = None,
    storage: Annotated[
        str | None, typer.Option(metavar="URL", help="Database of a study that machines share, sqlite:///tune.db say.")
    ] = None,
    ray: Annotated[bool, typer.Option("--ray", help="Replay on a Ray cluster.")] = False,
    seed: Annotated[int, typer.Option(metavar="S", min=0, help="Seed of split, search and intervals.")] = 0,
    eos: Annotated[
        str | None, typer.Option(metavar="ID,...", help="Ids that end an output, instead of the trace's own.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Only the first N requests of each trace.")
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave bad rows out instead of stopping at the first.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write what to set to FILE, for NGRAMSPEC_CONFIG say."),
    ] = None,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write every number to FILE.")] = None,
) -> None:
    """Search the best settings for recorded traffic, and judge them on sessions held out.

    Says what to set, the modelled speed-up at each batch size, what each setting matters, or not to draft at all.
    Several traces count as one. Needs step times: --cost or --profile.
    """
    writable(output, json, reads=[*traces, cost])
    model = chosen_cost(cost, profile, exposed_us)
    if model is None:
        raise ConfigError("step times: missing; give --cost or --profile")
    if ray and workers is not None:
        raise ConfigError("--workers has no effect with --ray, where the cluster's CPUs decide: leave it out")
    asked = chosen_settings(sets or [], name)
    if output is not None and name not in CONFIGURED:
        raise ConfigError(
            f"--output: {name} is told by flags, printed below the table; allowed for {', '.join(CONFIGURED)}"
        )
    trace = Trace.concat(load(traces, limit, skip_bad))
    with progress() as start:
        bars: dict[str, Any] = {}

        def on_progress(what: str, done: int, total: int) -> None:
            if done == 1:
                bars[what] = start(what, total)
            bars[what](done)

        found = search(
            trace,
            model,
            engine=name,
            shape=cast(Shape | None, shape),
            batches=counts(batches),
            settings=asked,
            trials=trials,
            held_out=held_out,
            min_gain=min_gain,
            seed=seed,
            n_workers=_cores() if workers is None else workers,
            storage=storage,
            ray=ray,
            eos_ids=None if eos is None else ids(eos),
            on_progress=on_progress,
        )
    show(stdout(), found)
    if output is not None and found.verdict != "do not enable":
        write_json(found.advice["config"], output)
    if json is not None:
        write_json(found.describe(), json)


def _cores() -> int:
    """Cores that this process may use; all there are where the system cannot tell."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def chosen_settings(texts: list[str], name: str) -> dict[str, list[Any]]:
    """Values to try, by setting, from `name=a,b`; raises `ConfigError` for an unknown setting or a bad value."""
    known = {setting.name: setting for setting in engine(name).settings}
    found: dict[str, list[Any]] = {}
    for text in texts:
        what, _, values = text.partition("=")
        if what not in known or not values:
            raise ConfigError(f"--set: got {text!r}, allowed NAME=VALUE,... for {', '.join(known)}")
        if what in found:
            raise ConfigError(f"--set: {what} is given twice, name all its values at once")
        found[what] = known[what].read(values)
    return found


def show(console: Console, found: Tuned) -> None:
    """Print the answer, what to set, and how much each setting matters."""
    tuning, held_out = found.task.parts
    console.print(
        f"{tuning.name}: tuned on {len(tuning):,} requests, judged by {len(held_out):,} others; "
        f"{found.n_points:,} settings{' (all there are)' if found.whole_grid else ''} replayed at "
        f"{len(found.batches)} batch sizes",
        markup=False,
        style="bold",
    )
    console.print(table(HEADERS, [_cells(row) for row in found.batches], left=2))
    for line in answer(found):
        console.print(line, markup=False, soft_wrap=True)
    if found.sensitivity:
        rows = [
            [s.name, shown(s.chosen), percent(s.loss), "  ".join(f"{shown(v)}: {x:.3f}" for v, x in s.alone.items())]
            for s in found.sensitivity
        ]
        console.print(table(["setting", "chosen", "worst\nloses", "speed-up when only this changes"], rows, left=4))
    for line in notes(found):
        console.print(f"note: {line}", markup=False, soft_wrap=True)


def answer(found: Tuned) -> list[str]:
    """What to do, in words."""
    off = [row for row in found.batches if row.verdict == "do not enable"]
    lines = []
    if off:
        lines.append(f"Do not enable speculation at batch {', '.join(str(row.batch) for row in off)}: {_why(off)}.")
    if len(off) == len(found.batches):
        return lines
    advice = found.advice
    if "flags" in advice:
        lines.append(f"Set: {shlex.join(advice['flags'])}")
    if "config" in advice:
        where = " in the file that NGRAMSPEC_CONFIG names" if "flags" in advice else ""
        lines.append(f"Set{where}: {js.dumps(advice['config'])}")
    return lines


def _why(rows: list[AtBatch]) -> str:
    best = max(row.held_out.interval_95[1] if row.held_out.interval_95 else row.held_out.speedup for row in rows)
    return f"the best settings found come to at most {best:.3f} times the speed without it"


def notes(found: Tuned) -> list[str]:
    """What a reader has to know."""
    lines = [f"speed-ups are {found.label}; {source_line(found.task.cost)}"]
    for row in found.batches:
        if row.alone is not None:
            settings = {k: v for k, v in row.alone[0].items() if v != found.settings[k]}
            change = ", ".join(f"{k}={shown(v)}" for k, v in settings.items())
            lines.append(f"batch {row.batch} alone would do {row.alone[1].speedup:.3f} with {change}")
        if row.held_out.batch_mean < FULL * row.batch:
            lines.append(
                f"batch {row.batch}: {row.held_out.batch_mean:.1f} requests ran at a time on average"
                f"{'' if row.filled else ', too few for a verdict'}; a longer trace fills the batch"
            )
    slowest = max(found.batches, key=lambda row: row.held_out.drafting_us)
    lines.append(
        f"drafting took up to {slowest.held_out.drafting_us:.0f} µs a request and step on this CPU (measured-cpu); "
        + (
            f"{found.task.cost.exposed_us:g} µs are charged"
            if found.task.cost.exposed_us
            else "none of it is charged: --exposed-us charges what your engine does not hide"
        )
    )
    for row in found.batches:
        if row.verdict != "do not enable" and row.held_out.exposed_speedup <= 1 + row.min_gain:
            lines.append(
                f"batch {row.batch}: only where the engine drafts while the model runs; with this CPU's drafting time "
                f"on top the speed-up is {row.held_out.exposed_speedup:.3f}"
            )
    ends = [s for s in found.sensitivity if s.at_end]
    if ends and found.verdict != "do not enable":
        told = ", ".join(f"{s.name} at {shown(s.chosen)}" for s in ends)
        lines.append(f"{told}: the end of what was tried; try values beyond it with --set")
    for name, value in found.left_out.items():
        lines.append(f"{name} changes no draft on this trace; left at {shown(value)}")
    if retokenised := sum(part.n_retokenised for part in found.task.parts):
        lines.append(f"{retokenised} requests re-tokenised from text, which usually flatters")
    if note := engine(found.task.engine).note:
        lines.append(note)
    if found.batches[-1].batch > 1:
        lines.append("requests in file order, not at their recorded times")
    return lines


def _cells(row: AtBatch) -> list[str]:
    interval = row.held_out.interval_95
    return [
        str(row.batch),
        row.verdict,
        number(row.held_out.speedup, 3),
        "–" if interval is None else f"{interval[0]:.3f}–{interval[1]:.3f}",
        number(row.default.speedup, 3),
        number(row.held_out.accept_length),
        number(row.held_out.verified_per_step),
    ]
