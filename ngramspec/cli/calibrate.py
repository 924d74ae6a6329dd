"""`ngramspec calibrate`: measure a live server's step times and write them as a cost model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from ..drafting.cost import CostModel
from ..drafting.cost_file import load
from ..errors import ConfigError
from ..replay.calibrate import Calibration, Settings, Step
from ..replay.calibrate import calibrate as measure
from ..replay.reproduction import TOLERANCE, calibrated
from ..replay.results import write_json
from .files import writable
from .output import number, percent, progress, stdout, table

HEADERS = ["batch", "tokens\na step", "KV tokens", "ms a step", "between\nruns", "tokens/s,\nheld out"]


def calibrate(
    url: Annotated[str, typer.Option(metavar="URL", help="Address of the server; no other is contacted.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Cost model to write, .json.")],
    api: Annotated[str, typer.Option(metavar="auto|openai|sglang", help="How to speak to it.")] = "auto",
    model: Annotated[str | None, typer.Option(metavar="NAME", help="Which model, if several are served.")] = None,
    kind: Annotated[
        str | None,
        typer.Option(metavar="measured-gpu|measured-cpu", help="What it runs on, if the server does not say so."),
    ] = None,
    batches: Annotated[str, typer.Option(metavar="B,...", help="Requests at a time.")] = "1,2,4,8,16,32",
    prompt_tokens: Annotated[int, typer.Option(metavar="N", help="Tokens of each prompt, about.")] = 512,
    output_tokens: Annotated[int, typer.Option(metavar="N", help="Tokens of each output.")] = 128,
    repeat: Annotated[int, typer.Option(metavar="N", help="Runs a batch size.")] = 3,
    add: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the points of this earlier calibration of the same model.")
    ] = None,
    timeout: Annotated[float, typer.Option(metavar="S", help="Seconds of silence that fail a request.")] = 60.0,
    time_limit: Annotated[float, typer.Option(metavar="S", help="Seconds for everything.")] = 900.0,
    api_key_env: Annotated[
        str | None, typer.Option(metavar="NAME", help="Environment variable that holds the server's API key.")
    ] = None,
) -> None:
    """Measure the step times of a live, idle server: decode, and verify where SGLang counts its steps.

    Run it without speculation first, then, for SGLang, with speculation on and --add FILE, once for each of two numbers
    of draft tokens: from one, nothing is known of others. The file serves --cost of the other commands.
    """
    if output.suffix != ".json":
        raise ConfigError(f"--output: got {output.name!r}, must end in .json")
    settings = Settings(
        batches=counts(batches),
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        repeat=repeat,
        silence_s=timeout,
        time_limit_s=time_limit,
    )
    earlier = None if add is None else load(add)
    key = None if api_key_env is None else _secret(api_key_env)
    writable(output)  # not `add`: adding to the file itself is what one does
    with progress() as start:
        found = measure(
            url,
            settings,
            api=api,
            model=model,
            kind=kind,
            add=earlier,
            api_key=key,
            on_progress=start("requests", settings.n_requests),
        )
    write_json(found.cost.describe(), output)
    show(found, output)


def counts(text: str) -> tuple[int, ...]:
    """Batch sizes from `1,2,4`; raises `ConfigError` for anything but integers."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"--batches: got {text!r}, allowed integers separated by commas") from None


def show(found: Calibration, output: Path) -> None:
    """Print what was measured and what the file is good for."""
    console = stdout()
    console.print(f"{found.cost.name}: {found.cost.note}", markup=False)
    console.print(table(HEADERS, [_cells(step) for step in found.steps]))
    console.print(f"{output}: {verdict(found.cost, found.reproductions)}", markup=False, soft_wrap=True)
    for remark in found.remarks:
        console.print(f"note: {remark}", markup=False, soft_wrap=True)


def verdict(cost: CostModel, ratios: tuple[float, ...]) -> str:
    """In one sentence, how far the model can be trusted."""
    n = len(cost.decode) + len(cost.verify)
    text = f"{n} points, {cost.kind}"
    if not ratios:
        return f"{text}; uncalibrated, nothing was measured without speculation"
    worst = max(abs(ratio - 1.0) for ratio in ratios)
    found = f"{text}; tokens a second of runs held out are reproduced within {percent(worst)}"
    if calibrated(cost):
        return f"{found}: calibrated"
    why = "verify steps are not measured" if worst <= TOLERANCE else f"that is more than {percent(TOLERANCE)}"
    return f"{found}: uncalibrated, {why}"


def _cells(step: Step) -> list[str]:
    rate = number(step.tokens_per_second, 1) if step.plain else "–"
    return [
        str(step.batch),
        number(step.n_tokens),
        number(step.kv_tokens),
        number(step.ms, 3),
        f"±{percent(step.spread / 2)}",
        rate,
    ]


def _secret(name: str) -> str:
    if not os.environ.get(name):
        raise ConfigError(f"--api-key-env: the environment has no variable {name!r}, or it is empty; set it")
    return os.environ[name]
