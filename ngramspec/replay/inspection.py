"""What a trace holds, and whether a replay of it can be trusted."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from .metrics import ratio
from .schedule import successors
from .trace import Int32, Int64, Trace

#: Length of the n-grams that the repeat estimate looks up.
GRAM = 4


def inspect(trace: Trace) -> dict[str, Any]:
    """Facts about a trace, by name; shares are between 0 and 1, None where they have no meaning.

    `repeats` estimates how much of the outputs an n-gram drafter could find: the share of output 4-grams that also
    stand in the row's own prompt, or in an earlier row's output. It is a look at the text, not an accept length.

    Examples
    --------
    >>> from ngramspec.replay import Trace, inspect
    >>> facts = inspect(Trace.of(prompts=[[1, 2, 3, 4, 5]], outputs=[[1, 2, 3, 4, 5]]))
    >>> facts["requests"], facts["output_tokens"], facts["repeats"]
    (1, 5, {'in_own_prompt': 1.0, 'in_earlier_outputs': 0.0})
    """
    if not isinstance(trace, Trace):
        raise ConfigError(f"trace: got {trace!r}, must be a Trace")
    outputs = trace.output.lengths
    ids = [part.tokens for part in (trace.prompt, trace.output) if len(part.tokens)]
    final = Counter(int(trace.output[row][-1]) for row in np.flatnonzero(outputs).tolist())
    return {
        "requests": len(trace),
        "skipped_rows": trace.n_skipped,
        "prompt_tokens": int(trace.prompt.lengths.sum()),
        "output_tokens": int(outputs.sum()),
        "prompt_tokens_median": _median(trace.prompt.lengths),
        "output_tokens_median": _median(outputs),
        "output_tokens_longest": int(outputs.max(initial=0)),
        "smallest_id": min((int(part.min()) for part in ids), default=None),
        "largest_id": max((int(part.max()) for part in ids), default=None),
        "placeholders": int((trace.prompt.tokens < 0).sum()),
        "sessions": len(trace.session.names),
        "rows_without_session": int((trace.session.codes < 0).sum()),
        "turns_per_session_median": _median(np.bincount(trace.session.codes[trace.session.codes >= 0])),
        "turn_prefix_share": _turn_prefix_share(trace),
        "arrivals": int(np.isfinite(trace.arrival).sum()),
        "categories": _counts(trace.category.tolist()),
        "finish_reasons": _counts(trace.finish_reason.tolist()),
        "eos_ids": list(trace.eos_ids),
        "final_tokens": dict(final.most_common(3)),
        "retokenised": _counts([value for value in trace.retokenised.tolist() if value]),
        "repeated_rows": len(trace) - len({_key(trace, row) for row in range(len(trace))}),
        "repeats": _repeats(trace),
    }


def remarks(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Judge the facts: pairs of `"ok"`, `"note"` or `"problem"` and a sentence."""
    found: list[tuple[str, str]] = []
    if facts["output_tokens"] < 2 * facts["requests"]:
        found.append(("problem", "outputs are shorter than two tokens on average: there is next to nothing to replay"))
    if facts["requests"] < 30:
        found.append(("note", f"{facts['requests']} requests are few: expect wide intervals"))
    if not facts["eos_ids"] and facts["final_tokens"]:
        token, n = next(iter(facts["final_tokens"].items()))
        if n >= 0.5 * facts["requests"]:
            found.append(("note", f"no eos_ids recorded; {n} outputs end with {token}: --eos {token} may be meant"))
        else:
            found.append(("note", "no eos_ids recorded and no common last token: the record's end ends each request"))
    if set(facts["finish_reasons"]) <= {""}:
        found.append(("note", "no finish reasons: outputs that a limit cut off cannot be told from finished ones"))
    if facts["sessions"] and facts["turn_prefix_share"] is not None and facts["turn_prefix_share"] < 0.05:
        found.append(("note", "later turns do not repeat earlier ones: these sessions may not be dialogues"))
    if facts["placeholders"]:
        found.append(("note", f"{facts['placeholders']} placeholder ids in prompts: nothing is matched across them"))
    if facts["retokenised"]:
        parts = ", ".join(f"{part} of {n}" for part, n in facts["retokenised"].items())
        found.append(
            ("note", f"re-tokenised from text ({parts}): ids may differ from those served; it usually flatters")
        )
    if facts["repeated_rows"]:
        found.append(("note", f"{facts['repeated_rows']} requests stand in it more than once, token for token"))
    if facts["skipped_rows"]:
        found.append(("note", f"{facts['skipped_rows']} bad rows were left out"))
    if not any(kind == "problem" for kind, _ in found):
        found.insert(0, ("ok", "suits replay"))
    return found


def _median(values: Int64 | NDArray[np.intp]) -> float | None:
    return float(np.median(values)) if len(values) else None


def _counts(values: list[str | None]) -> dict[str, int]:
    return dict(Counter(value or "" for value in values).most_common())


def _key(trace: Trace, row: int) -> tuple[bytes, bytes]:
    return trace.prompt[row].tobytes(), trace.output[row].tobytes()


def _turn_prefix_share(trace: Trace) -> float | None:
    """Of the tokens of each session's previous prompt and output, the share that the next prompt starts with."""
    same = total = 0
    after = successors(trace)
    for row in np.flatnonzero(after >= 0).tolist():
        earlier = np.concatenate([trace.prompt[row], trace.output[row]])
        later = trace.prompt[int(after[row])]
        n = min(len(earlier), len(later))
        differ = np.flatnonzero(earlier[:n] != later[:n])
        same += int(differ[0]) if len(differ) else n
        total += len(earlier)
    return ratio(same, total)


def _grams(tokens: Int32) -> NDArray[np.uint64]:
    """A 64-bit number for each run of `GRAM` tokens, uint64[max(0, n - GRAM + 1)]."""
    n = max(0, len(tokens) - GRAM + 1)
    mixed = np.zeros(n, np.uint64)
    for k in range(GRAM):
        mixed = (mixed ^ tokens[k : k + n].astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
    return mixed


def _repeats(trace: Trace) -> dict[str, float | None]:
    in_prompt = n_grams = 0
    per_row: list[NDArray[np.uint64]] = []
    for row in range(len(trace)):
        grams = _grams(trace.output[row])
        in_prompt += int(np.isin(grams, _grams(trace.prompt[row])).sum())
        n_grams += len(grams)
        per_row.append(grams)
    flat = np.concatenate(per_row) if per_row else np.zeros(0, np.uint64)
    row_of = np.repeat(np.arange(len(trace)), [len(grams) for grams in per_row])
    _, first, inverse = np.unique(flat, return_index=True, return_inverse=True)
    earlier = int((row_of[first][inverse] < row_of).sum()) if len(flat) else 0
    return {"in_own_prompt": ratio(in_prompt, n_grams), "in_earlier_outputs": ratio(earlier, n_grams)}
