"""What of a batch of drafts is worth verifying: one plan over the whole batch, plain decoding among the choices."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..caches.arguments import as_list, one_of, probability
from ..config import check_bool
from ..draft import MAX_SIDE, ONE_Q30, DraftBatch
from ..errors import ConfigError
from ..kernels.plan import plan_fastest_width, plan_rows, plan_tokens, plan_width
from .cost import CostModel

MODES = ("fixed", "threshold", "cost")


class Plan(NamedTuple):
    """What a budget decided for one step of a batch."""

    width: int  #: drafted tokens a request, padding included, where the width is uniform; else of the longest row
    n_tokens: int  #: tokens that the step computes over the whole batch, committed ones and padding included
    expected_emitted: float  #: tokens that the step emits over the whole batch, if path probabilities are right
    expected_ms: float | None  #: time of the step with exposed drafting; None without a cost model


class _Scratch:
    """Arrays that kernels work in, as large as the largest batch so far."""

    def __init__(self, rows: int, width: int) -> None:
        if max(rows, width) > MAX_SIDE:
            raise ConfigError(f"out: got {rows} rows of {width} tokens, at most {MAX_SIDE} each can be planned")
        self.rows, self.width = rows, width
        self.heap: NDArray[np.int64] = np.zeros(rows, np.int64)
        self.taken: NDArray[np.int32] = np.zeros(rows, np.int32)
        self.order: NDArray[np.int32] = np.zeros(rows * width, np.int32)
        self.times: NDArray[np.float64] = np.zeros(rows * width + 1)


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How many drafted tokens a step verifies.

    Parameters
    ----------
    mode : {"fixed", "threshold", "cost"}
        `fixed`: the first `max_draft` of each row. `threshold`: those with a path probability of at least `min_prob`.
        `cost`: those that make expected emitted tokens a second largest over the batch, by `cost`; none at all where
        plain decoding is faster. `cost` takes 5 µs a step and 0.3 µs a request of 11 tokens, the others a tenth.
    max_draft : int, optional
        Most tokens a row; `fixed` needs it. None: as many as were drafted.
    min_prob : float, optional
        For `threshold`, which needs it.
    cost : CostModel, optional
        For `cost`, which needs it. In the other modes it only prices the plan.
    uniform_width : bool
        The engine verifies the same number of tokens for every request, so that shorter rows are padded. Then the
        width is chosen, and rows keep what fits in it, because it is paid for. `fixed`: always `max_draft`;
        `threshold`: the narrowest that holds every token above `min_prob`; `cost`: the fastest.
    widths : tuple of int
        Drafted tokens a request that a uniform width may have; 0, plain decoding, always may be chosen.
        Empty: any, up to `max_draft`.

    Raises
    ------
    ConfigError
        A setting is missing, not allowed, or would have no effect.

    Examples
    --------
    >>> import numpy as np
    >>> import ngramspec as ns
    >>> from ngramspec.replay import Budget, CostModel
    >>> drafter = ns.Drafter(ns.DrafterConfig(capacity_tokens=100_000, vocab_size=1000))
    >>> slots = np.array([drafter.begin("r1", [7, 8, 9, 5, 7, 8]), drafter.begin("r2", [1, 2, 3])], np.int32)
    >>> drafts = ns.DraftBatch.allocate(batch=2, width=11)
    >>> drafter.draft_batch(slots, drafts, max_draft=11)
    >>> budget = Budget(mode="cost", cost=CostModel.from_linear(base_ms=7.1, per_token_ms=0.5))
    >>> plan = budget.apply(drafts, n_rows=2)
    >>> drafts.n_draft, plan.n_tokens
    (array([3, 0], dtype=int32), 5)
    """

    mode: str = "fixed"
    max_draft: int | None = None
    min_prob: float | None = None
    cost: CostModel | None = None
    uniform_width: bool = False
    widths: tuple[int, ...] = ()
    _scratch: list[_Scratch] = field(default_factory=lambda: [_Scratch(0, 0)], init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        one_of(self.mode, "mode", MODES)
        check_bool(self.uniform_width, "uniform_width")
        for mode, name in (("fixed", "max_draft"), ("threshold", "min_prob"), ("cost", "cost")):
            if mode == self.mode and getattr(self, name) is None:
                raise ConfigError(f"{name}: missing, mode {mode!r} needs it")
        if self.mode != "threshold" and self.min_prob is not None:
            raise ConfigError(f"min_prob: has no effect in mode {self.mode!r}, leave it out")
        if self.min_prob is not None:
            probability(self.min_prob, "min_prob")
        if self.cost is not None and not isinstance(self.cost, CostModel):
            raise ConfigError(f"cost: got {self.cost!r}, allowed a CostModel or None")
        most = MAX_SIDE if self.max_draft is None else self.max_draft
        _check_int(most, "max_draft", MAX_SIDE)
        object.__setattr__(self, "widths", tuple(as_list(self.widths, "widths")))
        if self.widths and (not self.uniform_width or self.mode == "fixed"):
            what = "in mode 'fixed'" if self.uniform_width else "without uniform_width"
            raise ConfigError(f"widths: has no effect {what}, leave it out")
        for i, width in enumerate(self.widths):
            _check_int(width, f"widths[{i}]", most)
        if list(self.widths) != sorted(set(self.widths)):
            raise ConfigError(f"widths: got {list(self.widths)}, must rise")

    def apply(self, out: DraftBatch, n_rows: int, kv_tokens: int | None = None) -> Plan:
        """Shorten the first `n_rows` rows of `out` to what is worth verifying; writes `n_draft` and `reason`.

        Parameters
        ----------
        out : DraftBatch
            As `draft_batch` filled it: tokens of a row in falling path probability.
        n_rows : int
            Requests in the batch.
        kv_tokens : int, optional
            Tokens in the KV cache over the batch. Needed where the cost model depends on it.

        Returns
        -------
        Plan
            The same for the same drafts, on every machine.

        Raises
        ------
        ConfigError
            `n_rows` does not fit `out`, or `kv_tokens` is missing.
        """
        _check_int(n_rows, "n_rows", len(out.n_draft))
        if kv_tokens is None and self.cost is not None and self.cost.needs_kv:
            raise ConfigError(f"kv_tokens: missing, step times of cost model {self.cost.name!r} depend on it")
        if n_rows == 0:
            return Plan(0, 0, 0.0, None if self.cost is None else 0.0)
        most = out.width if self.max_draft is None else min(self.max_draft, out.width)
        if self.mode == "cost" and self.cost is not None:
            return self._fastest(self.cost, out, n_rows, most, kv_tokens or 0)
        min_q30 = 0 if self.min_prob is None else round(self.min_prob * ONE_Q30)
        rows = (out.n_draft, out.reason)
        if self.uniform_width:
            width, q30 = plan_width(n_rows, out.path_q30, self._allowed(most), min_q30, *rows)
            n_tokens = n_rows * (1 + width)
        else:
            width, n_drafted, q30 = plan_rows(n_rows, out.path_q30, most, min_q30, *rows)
            n_tokens = n_rows + n_drafted
        ms = None
        if self.cost is not None:
            ms = self.cost.step_ms(n_tokens, n_rows, kv_tokens or 0) + self.cost.exposed_ms(n_rows)
        return Plan(width, n_tokens, n_rows + q30 / ONE_Q30, ms)

    def _fastest(self, cost: CostModel, out: DraftBatch, n: int, most: int, kv_tokens: int) -> Plan:
        """Plan by cost: fill the table of step times, choose, shorten."""
        scratch = self._room(len(out.n_draft), max(out.width, *self.widths, 0))
        rows = (out.n_draft, out.reason)
        if self.uniform_width:
            widths = self._allowed(most)
            times = scratch.times[: int(widths[-1]) + 1]
            cost.fill(times, n, kv_tokens, stride=n)
            width, q30 = plan_fastest_width(n, out.path_q30, widths, times, *rows)
            return Plan(width, n * (1 + width), n + q30 / ONE_Q30, float(times[width]))
        times = scratch.times[: int(np.minimum(out.n_draft[:n], most).sum()) + 1]
        cost.fill(times, n, kv_tokens)
        arrays = (scratch.heap, scratch.taken, scratch.order)
        width, n_drafted, q30 = plan_tokens(n, out.path_q30, most, times, *arrays, *rows)
        return Plan(width, n + n_drafted, n + q30 / ONE_Q30, float(times[n_drafted]))

    def _allowed(self, most: int) -> NDArray[np.int32]:
        """Uniform widths to choose from, ascending."""
        if self.mode == "fixed":
            return np.array([self.max_draft], np.int32)
        return np.array(sorted({0, *self.widths}), np.int32) if self.widths else np.arange(most + 1, dtype=np.int32)

    def _room(self, rows: int, width: int) -> _Scratch:
        if rows > self._scratch[0].rows or width > self._scratch[0].width:
            self._scratch[0] = _Scratch(max(rows, self._scratch[0].rows), max(width, self._scratch[0].width))
        return self._scratch[0]

    def describe(self) -> dict[str, Any]:
        """Settings as JSON can hold them, without the cost model's points."""
        name = None if self.cost is None else self.cost.name
        return {
            "mode": self.mode,
            "max_draft": self.max_draft,
            "min_prob": self.min_prob,
            "cost": name,
            "uniform_width": self.uniform_width,
            "widths": list(self.widths),
        }


def _check_int(value: Any, name: str, high: int) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 0 <= value <= high:
        raise ConfigError(f"{name}: got {value!r}, allowed integers from 0 to {high}")
