"""What must be true of any draft, whoever made it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ngramspec.draft import Draft, DraftBatch, Reason, Source
from tests.oracle import Oracle

#: Path probabilities are rounded to float32.
ROUNDING = 1e-6


def drafts(cache: Any, slots: Sequence[int], **settings: Any) -> list[Draft]:
    """Drafts of a batch, up to 11 tokens each unless `settings` say otherwise."""
    out = DraftBatch.allocate(len(slots), 11)
    cache.draft_batch(np.array(slots, np.int32), out, **{"max_draft": 11} | settings)
    return [out.row(i) for i in range(len(slots))]


def paths(draft: Draft) -> list[list[int]]:
    """Tokens from a child of the last committed token down to each drafted token."""
    found: list[list[int]] = []
    for i, parent in enumerate(draft.parents.tolist()):
        assert -1 <= parent < i, "a parent comes before its children"
        found.append([*(found[parent] if parent >= 0 else []), int(draft.tokens[i])])
    return found


def check_shape(
    draft: Draft, *, max_draft: int, chain: bool, min_prob: float, remaining: int | None, eos_ids: Sequence[int]
) -> None:
    """Check sizes, order, probabilities and reason: all that needs no text."""
    n = len(draft)
    assert len(draft.parents) == len(draft.probs) == len(draft.sources) == n
    assert n <= max_draft
    assert (draft.reason is Reason.DRAFTED) == (n > 0)
    every = paths(draft)
    assert len(set(map(tuple, every))) == n, "siblings differ"
    if chain:
        assert draft.parents.tolist() == list(range(-1, n - 1))
    if remaining is not None:
        assert max(map(len, every), default=0) <= max(remaining - 1, 0), "the last place is the bonus token's"
    assert all(token not in eos_ids for path in every for token in path[:-1]), "nothing follows an end"
    probs = draft.probs.tolist()
    for i, parent in enumerate(draft.parents.tolist()):
        above = probs[parent] if parent >= 0 else 1.0
        assert max(min_prob - ROUNDING, 0.0) <= probs[i] <= above + ROUNDING


def check_siblings(draft: Draft) -> None:
    """Check that siblings exclude each other: together they are no likelier than their parent."""
    n, probs = len(draft), draft.probs.tolist()
    below = [0.0] * (n + 1)  # the last stands for the last committed token
    for i, parent in enumerate(draft.parents.tolist()):
        below[parent] += probs[i]
    for i in range(n + 1):
        assert below[i] <= (probs[i] if i < n else 1.0) + ROUNDING * n


def check_text(draft: Draft, oracle: Oracle, request_id: str) -> None:
    """Check that each token followed the one before it in text that the request may see."""
    for i, path in enumerate(paths(draft)):
        *before, token = path
        assert token in oracle.allowed(request_id, before), (path, oracle.text(request_id))
        if draft.sources[i] in (Source.OWN, Source.SHARED):
            places = oracle.occurrences(request_id, before)
            shared = {place.shared for place in places if place.token == token}
            assert (draft.sources[i] == Source.SHARED) in shared, (path, draft.sources[i])
        else:
            assert draft.sources[i] in (Source.COUNTS, Source.FROZEN)


def check_reason(
    draft: Draft, oracle: Oracle, request_id: str, *, max_draft: int, min_prob: float, remaining: int | None
) -> None:
    """Check that an empty draft names a true cause."""
    waiting = oracle.running[request_id].waiting
    causes = {
        Reason.TOO_SHORT: bool(waiting) or not oracle.text(request_id),
        Reason.BUDGET: max_draft == 0,
        Reason.LENGTH_LIMIT: remaining is not None and remaining <= 1,
        Reason.BELOW_MIN: min_prob > 0,
    }
    if draft.reason in causes:
        assert causes[draft.reason], draft.reason
    elif draft.reason is Reason.NO_MATCH:
        assert not waiting
    else:
        assert draft.reason is Reason.DRAFTED
    if causes[Reason.TOO_SHORT] or causes[Reason.BUDGET] or causes[Reason.LENGTH_LIMIT]:
        assert len(draft) == 0
