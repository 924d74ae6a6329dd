"""The worker's drafts on the C core: rows, masks and state are those of numba, step by step."""

import pytest

from tests.engine_requests import FakeRequest, make
from tests.native.built import built

pytestmark = pytest.mark.native

CYCLE = [*range(10, 30), 5, *range(10, 24)]


def script(engine, cost, monkeypatch):
    """Everything that two requests after two others verified, and the state at the end."""
    monkeypatch.setenv("NGRAMSPEC_ENGINE", engine)
    drafts, seen = make(widths=(1, 3, 6), width="cost", cost=str(cost)), []
    assert drafts.drafter.engine == engine
    for turn in range(2):
        pair = [FakeRequest(f"{turn}{k}", [1, 2, k, *CYCLE[: 9 + k]], session_id=f"s{k}") for k in range(2)]
        drafts.prefilled(pair)
        for step in range(12):
            for k, request in enumerate(pair):
                request.output_ids += CYCLE[9 + k + 2 * step :][:2]
            rows = drafts.rows(pair)
            seen.append((rows.n_rows, rows.ids.tolist(), rows.seen.tolist()))
            drafts.decoded(pair)
        for request in pair:
            request.ended = len(request.output_ids)
            drafts.finished(request.rid)
    assert drafts.guard.failures == 0
    return seen, drafts.drafter.digest(), drafts.counters.to_dict()


def test_rows_and_state_are_those_of_numba(tmp_path, monkeypatch):
    built()
    cost = tmp_path / "cost.json"
    cost.write_text('{"base_ms": 7.1, "per_token_ms": 0.1}')
    numba, native = (script(engine, cost, monkeypatch) for engine in ("numba", "native"))
    assert numba == native
    assert numba[2]["drafted"] > 50 and len({width for width, _, _ in numba[0]}) > 1
