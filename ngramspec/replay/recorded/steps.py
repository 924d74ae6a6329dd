"""Verify steps that a trace records: the field `spec` of its rows, read and checked against their outputs.

`spec` is an object. Steps are taken from the first of these fields that it has:

accept_lengths : list of int
    Tokens emitted by each step in its order, the bonus token included. The first output token comes from prefill and
    belongs to no step, so that they add up to one less than the output is long; or to more, where the last step was
    cut off.
spec_correct_drafts_histogram : list of int
    Entry k: steps of which k drafted tokens were accepted, in no order (SGLang's `meta_info`).
spec_verify_ct, n_steps : int
    Steps; what they emitted is spread evenly (SGLang's name and ours).
spec_accept_length, accept_length : float
    Output tokens a step, as SGLang has it with the first token, or without it; rounded to whole steps.

Beside it may stand:

n_drafted : int or list of int
    Tokens drafted in every step or in each, real ones: what the engine verifies on top of the last committed token.
spec_num_proposed_drafts : int
    Tokens drafted in all steps together (SGLang's, which counts padding too).
draft_us : float
    Time of the drafter a request and step that the engine does not hide, µs: what the trained drafter itself costs.
drafter : str
    Its name.

Fields that are not recorded are taken at their least, and the result says so: no more drafted than accepted, no time.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isfinite
from typing import Any

from ...errors import TraceError
from ..trace import Trace

#: Largest count; outputs are far shorter.
MAX_COUNT = 2**31 - 1

#: Fields of which one says how many steps there were.
STEP_FIELDS = (
    *("accept_lengths", "spec_correct_drafts_histogram", "spec_verify_ct", "n_steps"),
    *("spec_accept_length", "accept_length"),
)


@dataclass(frozen=True)
class RecordedSteps:
    """Verify steps of every row of a trace.

    Attributes
    ----------
    lengths : list of list of int
        Tokens that each step of each row emitted, had the last one not been cut.
    drafted : list of list of int
        Tokens that each step drafted, at least those it accepted.
    drafted_known : bool
        Whether `drafted` is recorded; otherwise it is what was accepted.
    draft_us : float or None
        Time of the drafter a request and step, mean over steps; None where some row does not say.
    drafters : tuple of str
        Names recorded, in order of appearance.
    """

    lengths: list[list[int]]
    drafted: list[list[int]]
    drafted_known: bool
    draft_us: float | None
    drafters: tuple[str, ...]

    @property
    def max_draft(self) -> int:
        """Most tokens drafted in one step."""
        return max((n for row in self.drafted for n in row), default=0)


def recorded_steps(trace: Trace) -> RecordedSteps:
    """Read them.

    Raises
    ------
    TraceError
        Some row of more than one output token has no steps recorded, or numbers that cannot be its own.
    """
    specs = [_decoded(text) for text in trace.spec.names]
    lengths: list[list[int]] = []
    drafted: list[list[int]] = []
    times: list[tuple[float | None, int]] = []
    known = True
    without: list[str] = []
    drafters: dict[str, None] = {}
    n_outputs = trace.output.lengths.tolist()
    for row, code in enumerate(trace.spec.codes.tolist()):
        spec = specs[code] if code >= 0 else {}
        n_emitted = max(n_outputs[row] - 1, 0)
        where = f"{trace.name}, request {trace.ids[row]!r}, spec"
        if n_emitted and not any(name in spec for name in STEP_FIELDS):
            without.append(trace.ids[row])
            continue
        steps = _lengths(spec, n_emitted, where) if n_emitted else []
        offered = _drafted(spec, steps, where)
        known = known and (offered is not None or not steps)
        lengths.append(steps)
        drafted.append([n - 1 for n in steps] if offered is None else offered)
        times.append((_time(spec, where), len(steps)))
        if isinstance(spec.get("drafter"), str):
            drafters[spec["drafter"]] = None
    if without:
        raise TraceError(
            f"{trace.name}: {len(without)} of {len(trace)} requests record no verify steps, the first is "
            f"{without[0]!r}; give each a field spec with accept_lengths, or SGLang's spec_verify_ct, or leave "
            "'recorded' out"
        )
    return RecordedSteps(lengths, drafted, known, _mean(times), tuple(drafters))


def _decoded(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _lengths(spec: dict[str, Any], n_emitted: int, where: str) -> list[int]:
    """Tokens that each step emitted, the last one uncut."""
    name = next(name for name in STEP_FIELDS if name in spec)
    value, field = spec[name], f"{where}.{name}"
    if name == "accept_lengths":
        return _checked(_counts(value, field, 1), n_emitted, field)
    if name == "spec_correct_drafts_histogram":
        return _checked(_shuffled(_counts(value, field, 0), n_emitted), n_emitted, field)
    if name in ("spec_verify_ct", "n_steps"):
        n_steps = _counts([value], field, 1)[0]
    else:
        n_tokens = n_emitted + (name == "spec_accept_length")
        n_steps = round(n_tokens / _number(value, field, 1.0))
    if not 1 <= n_steps <= n_emitted:
        raise TraceError(f"{field}: got {value}, {n_steps} steps for {n_emitted} tokens; allowed at most one a token")
    return _spread(n_emitted, n_steps)


def _checked(lengths: list[int], n_emitted: int, field: str) -> list[int]:
    total = sum(lengths)
    if total - (lengths or [0])[-1] < n_emitted <= total:
        return lengths
    raise TraceError(
        f"{field}: {len(lengths)} steps emit {total} tokens, but {n_emitted} stand behind the first of the output; "
        "are bonus tokens left out, or is it another request's?"
    )


def _shuffled(histogram: list[int], n_emitted: int) -> list[int]:
    """Steps in an order that favours no part of the output; a long one last, where the end has cut one off."""
    if sum(histogram) > n_emitted:  # more steps than tokens, to be refused without unrolling them
        return [1] * min(sum(histogram), n_emitted + 2)
    lengths = [k + 1 for k, n in enumerate(histogram) for _ in range(n)]
    lengths = [lengths[i] for i in sorted(range(len(lengths)), key=lambda i: i * 2_654_435_769 % 2**32)]
    if lengths and sum(lengths) > n_emitted:
        lengths.append(lengths.pop(lengths.index(max(lengths))))
    return lengths


def _drafted(spec: dict[str, Any], lengths: list[int], where: str) -> list[int] | None:
    """Tokens that each step drafted, None where that is not recorded."""
    n = len(lengths)
    if "n_drafted" in spec:
        field, value = f"{where}.n_drafted", spec["n_drafted"]
        found = _counts(value, field, 0) if isinstance(value, list) else _counts([value], field, 0) * n
        if len(found) != n:
            raise TraceError(f"{field}: got {len(found)} entries for {n} steps; give one a step, or one number")
    elif "spec_num_proposed_drafts" in spec and n:
        field = f"{where}.spec_num_proposed_drafts"
        found = _spread(_counts([spec["spec_num_proposed_drafts"]], field, 0)[0], n)
    else:
        return None
    if any(n_drafted < length - 1 for n_drafted, length in zip(found, lengths, strict=True)):
        raise TraceError(f"{field}: a step drafted fewer tokens than were accepted; is this another drafter's number?")
    return found


def _spread(total: int, n: int) -> list[int]:
    """`n` counts as equal as can be that add up to `total`."""
    return [total * (k + 1) // n - total * k // n for k in range(n)]


def _counts(value: Any, field: str, low: int, high: int = MAX_COUNT) -> list[int]:
    if not isinstance(value, list) or not all(type(item) is int and low <= item <= high for item in value):
        raise TraceError(f"{field}: got {value!r:.60}, allowed integers from {low} to {high}")
    return value


def _number(value: Any, field: str, low: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value < low:
        raise TraceError(f"{field}: got {value!r:.60}, allowed a number from {low:g}")
    return float(value)


def _time(spec: dict[str, Any], where: str) -> float | None:
    return None if "draft_us" not in spec else _number(spec["draft_us"], f"{where}.draft_us", 0.0)


def _mean(times: list[tuple[float | None, int]]) -> float | None:
    """Mean over steps; None where rows with steps lack it, or there are none."""
    found = [(us, n) for us, n in times if n]
    if not found or any(us is None for us, _ in found):
        return None
    return sum((us or 0.0) * n for us, n in found) / sum(n for _, n in found)
