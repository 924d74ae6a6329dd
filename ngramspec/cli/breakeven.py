"""`ngramspec breakeven`: above which accept length speculation pays, in one line and as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..drafting.cost import CostModel
from ..errors import ConfigError
from ..replay.results import write_json
from .cost import CostFile, ExposedUs, Profile, chosen_cost, source_line
from .files import writable
from .output import number, stdout, table

BATCHES, WIDTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256), (1, 2, 3, 5, 7, 11, 15, 23, 31)

#: Accept lengths of the table where two numbers say nothing about batch and width.
LENGTHS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0)


def breakeven(
    baseline_tps: Annotated[
        float | None, typer.Option(metavar="TOK/S", help="Tokens a second of one request without speculation.")
    ] = None,
    verify_ms: Annotated[float | None, typer.Option(metavar="MS", help="Time of a verify step.")] = None,
    cost: CostFile = None,
    profile: Profile = None,
    batch: Annotated[
        int | None, typer.Option(metavar="B", min=1, max=65_536, help="Running requests. Default 1.")
    ] = None,
    width: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, max=4096, help="Drafted tokens a request that a step verifies. Default 11."),
    ] = None,
    kv_tokens: Annotated[
        int | None, typer.Option(metavar="TOKENS", min=0, max=2**30, help="Tokens of context a request. Default 1000.")
    ] = None,
    accept_length: Annotated[
        float, typer.Option(metavar="L", help="Tokens emitted a verify step by the drafter in question.")
    ] = 2.0,
    exposed_us: ExposedUs = 0.0,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write every number to FILE.")] = None,
) -> None:
    """Say above which accept length speculation pays.

    Give --baseline-tps and --verify-ms of your server, or step times by --cost or --profile.
    """
    writable(json, reads=[cost])
    model = chosen_cost(cost, profile, exposed_us, baseline_tps, verify_ms)
    if model is None:
        raise ConfigError("step times: missing; give --baseline-tps and --verify-ms, or --cost, or --profile")
    if not 1.0 <= accept_length < 1e6:
        raise ConfigError(f"--accept-length: got {accept_length}, allowed from 1.0, which is decoding")
    for value, name in ((batch, "--batch"), (width, "--width"), (kv_tokens, "--kv-tokens")):
        if value is not None and baseline_tps is not None:
            raise ConfigError(f"{name} has no effect with two numbers: leave it out, or give --cost or --profile")
    two = baseline_tps is not None
    place = (batch or 1, width or 11, 1000 if kv_tokens is None else kv_tokens)
    found = answer(model, *place, accept_length)
    console = stdout()
    console.print(sentence(found, two))
    if two:
        rows = [[number(length, 1), *outcome(length, found)] for length in LENGTHS]
        console.print(table(["accept length", "tokens/s", "against decoding"], rows))
    else:
        console.print(
            f"Accept length needed, modelled, by batch and drafted tokens a request (context {place[2]:,} tokens each):"
        )
        console.print(table(["batch", *map(str, WIDTHS)], grid(model, place[2])))
        console.print(source_line(model))
    if json is not None:
        write_json({"schema": "ngramspec.breakeven/1", **found, "cost": model.describe()}, json)


def answer(model: CostModel, batch: int, width: int, kv_each: int, accept_length: float) -> dict[str, Any]:
    """Numbers of the one-line answer; times in milliseconds, `speedup` against decoding."""
    kv_tokens = batch * kv_each
    needed = model.breakeven_accept_length(batch, width, kv_tokens)
    return {
        "kind": "modelled",
        "batch": batch,
        "width": width,
        "kv_tokens_per_request": kv_each,
        "decode_ms": model.decode_ms(batch, kv_tokens),
        "verify_ms": model.step_ms(batch * (1 + width), batch, kv_tokens),
        "exposed_ms": model.exposed_ms(batch),
        "breakeven_accept_length": needed,
        "accept_length": accept_length,
        "speedup": accept_length / needed,
    }


def sentence(found: dict[str, Any], two: bool) -> str:
    """The answer in words."""
    where = "" if two else f" at batch {found['batch']} with {found['width']} drafted tokens a request"
    exposed = f" and {found['exposed_ms']:.2f} ms of drafting" if found["exposed_ms"] else ""
    return (
        f"Speculation pays{where} above an accept length of {found['breakeven_accept_length']:.2f}: "
        f"a verify step takes {found['verify_ms']:.1f} ms{exposed}, a decode step {found['decode_ms']:.1f} ms. "
        f"An accept length of {found['accept_length']:.1f} {_gain(found['speedup'])} ({found['kind']})."
    )


def outcome(length: float, found: dict[str, Any]) -> list[str]:
    """Tokens a second and change against decoding at an accept length."""
    speedup = length / found["breakeven_accept_length"]
    return [number(1000 * speedup / found["decode_ms"], 1), f"{speedup - 1:+.0%}"]


def grid(model: CostModel, kv_each: int) -> list[list[str]]:
    """Break-even accept lengths, a row a batch size, a column a width."""
    return [[str(b), *(number(model.breakeven_accept_length(b, w, b * kv_each)) for w in WIDTHS)] for b in BATCHES]


def _gain(speedup: float) -> str:
    share = round(100 * (speedup - 1))
    return f"gains {share} %" if share > 0 else f"loses {-share} %" if share < 0 else "makes no difference"
