"""Options about cost: step times from a file, a named example or two numbers, and the budget that they pay for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..drafting.budget import Budget
from ..drafting.cost import CostModel
from ..drafting.cost_file import load
from ..drafting.profiles import PROFILES, profile
from ..errors import ConfigError

CostFile = Annotated[
    Path | None,
    typer.Option(
        "--cost", metavar="FILE", help="Step times: calibrate's .json, or .csv of batch,n_tokens,kv_tokens,ms."
    ),
]
Profile = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help=f"Example step times, not measured here: {', '.join(PROFILES)}."),
]
ExposedUs = Annotated[
    float, typer.Option("--exposed-us", metavar="µs", help="Drafting a request and step that the engine does not hide.")
]


def chosen_cost(
    file: Path | None,
    name: str | None,
    exposed_us: float,
    baseline_tps: float | None = None,
    verify_ms: float | None = None,
) -> CostModel | None:
    """The cost model that the options ask for, None where they ask for none; raises `ConfigError` for two at once."""
    two = baseline_tps is not None or verify_ms is not None
    if (file is not None) + (name is not None) + two > 1:
        raise ConfigError("step times: give one of --cost, --profile, or --baseline-tps with --verify-ms")
    if file is not None:
        model = load(file)
    elif name is not None:
        model = profile(name)
    elif baseline_tps is not None and verify_ms is not None:
        model = CostModel.from_two(baseline_tps, verify_ms)
    elif two:
        missing = "--verify-ms" if verify_ms is None else "--baseline-tps"
        raise ConfigError(f"{missing}: missing; --baseline-tps and --verify-ms belong together")
    elif exposed_us:
        raise ConfigError("--exposed-us has no effect without step times: leave it out, or give --cost or --profile")
    else:
        return None
    return model.with_exposed(exposed_us) if exposed_us else model


def chosen_budget(
    mode: str | None, max_draft: int, min_prob: float, cost: CostModel | None, shape: str, widths: str | None
) -> Budget | None:
    """The budget that the options ask for; raises `ConfigError` where one of them would have no effect."""
    if mode is None:
        if widths is not None:
            raise ConfigError("--widths has no effect without --budget: leave it out")
        return None
    if mode == "cost" and cost is None:
        raise ConfigError("--budget cost needs step times: give --cost or --profile")
    allowed: tuple[int, ...] = ()
    if widths is not None:
        try:
            allowed = tuple(int(part) for part in widths.split(","))
        except ValueError:
            raise ConfigError(f"--widths: got {widths!r}, allowed integers separated by commas") from None
    return Budget(
        mode=mode,
        max_draft=max_draft,
        min_prob=min_prob if mode == "threshold" else None,
        cost=cost if mode == "cost" else None,
        uniform_width=shape == "sglang",
        widths=allowed,
    )


def source_line(model: CostModel) -> str:
    """Where the step times come from and what they leave open, in words."""
    note, caveat = f" ({model.note})" if model.note else "", f"; {model.caveat}" if model.caveat else ""
    return f"step times: {model.name}, {model.kind}{note}{caveat}"
