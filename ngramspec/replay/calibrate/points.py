"""A cost model out of what was measured now, and of an earlier calibration of the same model.

A server without speculation shows decode steps alone. Until its verify steps have been measured with speculation on, a
step that verifies n tokens is taken to cost what a decode step that computes n tokens does; the model then is modelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from ...drafting.cost import CostModel, Kind
from ...drafting.cost_points import Point, Throughput
from ...errors import ConfigError

#: What the note of a model says whose verify steps were not seen.
ASSUMED = "verify steps not measured: taken as decode steps that compute as many tokens"


@dataclass(frozen=True, kw_only=True)
class Step:
    """Steps of one batch, as measured.

    Attributes
    ----------
    batch, n_tokens, kv_tokens : int
        Running requests; tokens that a step computes and the KV cache holds, over all of them.
    ms : float
        Time of a step: median over runs of the median over streams.
    spread : float
        Slowest run over fastest, less 1.
    prompt_tokens, output_tokens : int
        Of each request, on average.
    tokens_per_second : float
        Of one further run that `ms` knows nothing of.
    busy : float
        Share of one core that measuring took, at most.
    """

    batch: int
    n_tokens: int
    kv_tokens: int
    ms: float
    spread: float
    prompt_tokens: int
    output_tokens: int
    tokens_per_second: float
    busy: float

    @property
    def plain(self) -> bool:
        """Without speculation."""
        return self.n_tokens == self.batch

    @property
    def point(self) -> Point:
        """As a point of a cost model."""
        return Point(self.n_tokens, self.batch, self.kv_tokens, self.ms)

    @property
    def throughput(self) -> Throughput:
        """What a simulator has to reproduce."""
        return Throughput(self.batch, self.prompt_tokens, self.output_tokens, self.tokens_per_second)


def as_model(
    steps: Sequence[Step], *, name: str, kind: str, note: str, drafter: str = "", add: CostModel | None = None
) -> CostModel:
    """Make a cost model.

    Parameters
    ----------
    steps : sequence of Step
        What was measured, all with speculation or all without.
    name, kind, note : str
        Served model; `"measured-gpu"` or `"measured-cpu"`; what was measured, when, on which server.
    drafter : str
        What drafted while it was measured, with its time in every step; empty without speculation.
    add : CostModel, optional
        An earlier calibration; what was measured anew takes the place of its points.

    Raises
    ------
    ConfigError
        See `check_add`; or there is a single batch of decode steps, which says nothing of verify steps.
    """
    check_add(add, name, kind, plain=steps[0].plain)
    old_decode = add.decode if add else ()
    old_verify = add.verify if add and _is_measured(add) else ()
    decode = _replaced(old_decode, (step.point for step in steps if step.plain))
    verify = _replaced(old_verify, (step.point for step in steps if not step.plain))
    drafters = [*(add.includes_drafting.split(", ") if add and old_verify else []), drafter]
    measured = {m[:3]: m for m in [*(add.measured if add else ()), *(s.throughput for s in steps if s.plain)]}
    notes = [*([add.note.removesuffix(f"; {ASSUMED}")] if add and add.note else []), note]
    if not verify:
        verify, kind = _assumed(decode), "modelled"
        notes.append(ASSUMED)
    return CostModel(
        decode=decode,
        verify=verify,
        name=name,
        kind=cast(Kind, kind),
        note="; ".join(notes),
        measured=tuple(measured[key] for key in sorted(measured)),
        includes_drafting=", ".join(dict.fromkeys(filter(None, drafters))),
    )


def check_add(add: CostModel | None, name: str, kind: str, *, plain: bool) -> None:
    """Whether an earlier calibration suits a server, before anything is measured.

    Parameters
    ----------
    add : CostModel, optional
        The earlier one.
    name, kind : str
        Model of the server, and where its times are measured.
    plain : bool
        The server does not speculate.

    Raises
    ------
    ConfigError
        It is of another model or another kind; or there is none, though the server shows no decode step.
    """
    if add is None:
        if not plain:
            raise ConfigError(
                "the server speculates and so shows verify steps alone: calibrate it without speculation first, then "
                "with it, adding to that file"
            )
        return
    if add.name != name:
        raise ConfigError(f"add: is of model {add.name!r}, but the server serves {name!r}")
    if _is_measured(add) and add.kind != kind:
        raise ConfigError(f"add: is {add.kind}, but this server's times are {kind}")


def _is_measured(model: CostModel) -> bool:
    return model.kind.startswith("measured-")


def _replaced(old: Iterable[Point], new: Iterable[Point]) -> tuple[Point, ...]:
    """Points of both; where both have one, the new one."""
    return tuple({point[:3]: point for point in [*old, *new]}.values())


def _assumed(decode: Sequence[Point]) -> tuple[Point, ...]:
    """Verify steps that cost what decode steps of as many tokens do.

    They hold for any batch and any length of context. Of two contexts the dearer one counts, so that no verify step
    comes out cheaper than the decode step it is made of.
    """
    ms: dict[int, float] = {}
    for point in decode:
        ms[point.batch] = max(ms.get(point.batch, 0.0), point.ms)
    if len(ms) < 2:
        raise ConfigError("batches: decode steps of one batch size say nothing about verify steps; measure two or more")
    return tuple(Point(batch, 1, 0, ms[batch]) for batch in sorted(ms) if batch > 1)
