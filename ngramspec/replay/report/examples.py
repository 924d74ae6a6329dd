"""The requests that a drafter served best and worst, and one step of each with its tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from ...caches.base import Cache
from ...draft import Draft, DraftBatch
from ...drafting.budget import Budget
from ...drafting.cost_file import parse
from ...kernels.verify import EMITTED, STEPS
from ..drafters import Facts, build
from ..options import Options
from ..simulator import simulate
from ..trace import Int32, Int64, Trace
from ..verify import verify

#: Requests shown of each kind, and the least number of steps that makes one worth showing.
N_SHOWN, MIN_STEPS = 2, 8

#: Tokens shown before and after a step.
N_CONTEXT = 12

#: Settings of a run that decide its drafts; those that only decide what is counted are left out.
SETTINGS = ("max_draft", "topology", "min_prob", "concurrency", "share", "max_tokens", "shape")


@dataclass(frozen=True)
class Step:
    """One step of a request."""

    draft: Draft  #: what was offered
    pos: int  #: tokens of the output that were emitted before
    n_emitted: int  #: tokens that the step emitted


class Watcher:
    """Passes a replay's calls to a drafter and remembers each request's most and least fruitful step.

    Parameters
    ----------
    cache : Cache
        The drafter.
    """

    def __init__(self, cache: Cache) -> None:
        self._cache = cache
        self._row_of: dict[int, int] = {}
        self._pos: dict[int, int] = {}
        self._out: DraftBatch | None = None
        self.most: dict[int, Step] = {}
        self.least: dict[int, Step] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def begin(self, request_id: str, *args: Any, **kwargs: Any) -> int:
        """Note which row has the slot; see `Cache.begin`."""
        slot = self._cache.begin(request_id, *args, **kwargs)
        self._row_of[slot] = int(request_id)
        self._pos[slot] = 1  # the first output token comes from prefill
        return slot

    def draft_batch(self, slots: Int32, out: DraftBatch, **kwargs: Any) -> None:
        """Note where the drafts are; see `Cache.draft_batch`."""
        self._cache.draft_batch(slots, out, **kwargs)
        self._out = out

    def accept_batch(self, slots: Int32, tokens: Int32, offsets: Int32) -> None:
        """Compare each step with what is remembered; see `Cache.accept_batch`."""
        self._cache.accept_batch(slots, tokens, offsets)
        out = self._out
        if out is None:
            return
        emitted = np.diff(offsets[: len(slots) + 1]).tolist()
        drafted = out.n_draft[: len(slots)].tolist()
        for i, slot in enumerate(slots.tolist()):
            row, pos = self._row_of[slot], self._pos[slot]
            self._pos[slot] += emitted[i]
            most, least = self.most.get(row), self.least.get(row)
            if drafted[i] and (most is None or emitted[i] > most.n_emitted):
                self.most[row] = Step(out.row(i), pos, emitted[i])
            if emitted[i] == 1 and (least is None or drafted[i] > len(least.draft)):
                self.least[row] = Step(out.row(i), pos, emitted[i])


@dataclass(frozen=True)
class Line:
    """One token of a drawn tree."""

    text: str
    accepted: bool


@dataclass(frozen=True)
class Example:
    """A request worth a look.

    Attributes
    ----------
    request_id, category : str
        As recorded.
    n_prompt, n_output, n_steps : int
        Its tokens and verify steps.
    accept_length : float
        Its own.
    what : str
        Which of its steps is drawn; empty where none is.
    before, after : str
        Tokens before the step, and those that the record goes on with.
    lines : list of Line
        The tree.
    """

    request_id: str
    category: str
    n_prompt: int
    n_output: int
    n_steps: int
    accept_length: float
    what: str
    before: str
    after: str
    lines: list[Line]


@dataclass(frozen=True)
class Watched:
    """Every request's accept length, and the best and worst of them.

    Attributes
    ----------
    per_row : int64[n_rows, 6]
        See `Counts`.
    best, worst : list of Example
        The best first; the worst first.
    """

    per_row: Int64
    best: list[Example]
    worst: list[Example]


def watch(trace: Trace, run: dict[str, Any], decode: Callable[[list[int]], str] | None = None) -> Watched:
    """Replay once more with the settings of `run`, with an eye on single requests.

    Parameters
    ----------
    trace : Trace
        What was replayed; without its warm-up.
    run : dict
        Names drafter and settings.
    decode : callable, optional
        Turns token ids into text.
    """
    config = run["config"]
    facts = Facts(**{name: config[name] for name in Facts.__dataclass_fields__})
    # A run's settings hold all ids that end an output; those of the trace itself end each row by its own.
    eos_ids = None if tuple(facts.eos_ids) == trace.eos_ids else tuple(facts.eos_ids)
    options = Options(**{name: config[name] for name in SETTINGS}, eos_ids=eos_ids, budget=_budget(config))
    watcher = Watcher(build(run["drafter"], facts))
    # `Watcher` answers to every name of the protocol; a type checker cannot see through `__getattr__`.
    per_row = simulate(trace, cast(Cache, watcher), options).per_row
    rows = np.flatnonzero(per_row[:, STEPS] >= min(MIN_STEPS, int(per_row[:, STEPS].max(initial=0))))
    lengths = per_row[rows, EMITTED] / np.maximum(per_row[rows, STEPS], 1)
    order = rows[np.argsort(-lengths, kind="stable")].tolist()
    n = min(N_SHOWN, len(order) // 2) or len(order)
    best = [_example(trace, row, per_row, watcher.most.get(row), "most", decode) for row in order[:n]]
    worst = [_example(trace, row, per_row, watcher.least.get(row), "least", decode) for row in order[::-1][:n]]
    return Watched(per_row, best, worst)


def _budget(config: dict[str, Any]) -> Budget | None:
    """The budget that a run's settings describe."""
    told = config.get("budget")
    if told is None:
        return None
    cost = None if told["cost"] is None else parse(config["cost"])
    return Budget(**(told | {"cost": cost, "widths": tuple(told["widths"])}))


def _example(
    trace: Trace, row: int, per_row: Int64, step: Step | None, which: str, decode: Callable[[list[int]], str] | None
) -> Example:
    prompt, output = trace.prompt[row], trace.output[row]
    what = before = after = ""
    lines: list[Line] = []
    if step is not None and len(step.draft):
        name = "its best step" if which == "most" else "a step in vain"
        what = f"{name}: {len(step.draft)} drafted, {step.n_emitted} emitted"
        text = np.concatenate([prompt, output[: step.pos]])[-N_CONTEXT:]
        before, after = _shown(text, decode), _shown(output[step.pos : step.pos + N_CONTEXT], decode)
        lines = drawn(step.draft, output[step.pos : step.pos + step.n_emitted], decode)
    n_steps, n_emitted = int(per_row[row, STEPS]), int(per_row[row, EMITTED])
    return Example(
        request_id=trace.ids[row],
        category=trace.category[row] or "",
        n_prompt=len(prompt),
        n_output=len(output),
        n_steps=n_steps,
        accept_length=n_emitted / max(n_steps, 1),
        what=what,
        before=before,
        after=after,
        lines=lines,
    )


def drawn(draft: Draft, emitted: Int32, decode: Callable[[list[int]], str] | None = None) -> list[Line]:
    """The lines of `Draft.render`, with those marked whose token was accepted.

    Parameters
    ----------
    draft : Draft
        Not empty.
    emitted : int32[n]
        What the step emitted.
    decode : callable, optional
        Turns token ids into text.
    """
    accepted = set(verify(draft.tokens, draft.parents, emitted).accepted)
    children: dict[int, list[int]] = {}
    for i, parent in enumerate(draft.parents.tolist()):
        children.setdefault(parent, []).append(i)
    order: list[int] = []
    stack = children.get(-1, [])[::-1]
    while stack:
        i = stack.pop()
        order.append(i)
        stack += children.get(i, [])[::-1]
    return [Line(text, i in accepted) for text, i in zip(draft.render(decode).split("\n"), order, strict=True)]


def _shown(tokens: Int32, decode: Callable[[list[int]], str] | None) -> str:
    ids: list[int] = tokens.tolist()
    # A line's end would be lost in a paragraph of HTML.
    return decode(ids).replace("\n", "⏎") if decode else " ".join(map(str, ids))
