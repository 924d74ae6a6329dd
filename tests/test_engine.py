"""The SGLang adapter without SGLang: rows, requests and their ends, tenants, and what happens after a failure."""

import numpy as np
import pytest

from ngramspec import Draft
from ngramspec.engines.sglang.followed import tenant_of
from ngramspec.engines.sglang.guard import MAX_PAUSE, Guard
from ngramspec.kernels.rows import fill_rows
from tests.engine_requests import N_ROWS, FakeRequest, make, rows_of, serve

TREES = [
    ([], []),
    ([7], [-1]),
    ([7, 8, 9], [-1, 0, 1]),
    ([7, 8, 9, 5], [-1, -1, 0, 1]),
    ([7, 8, 9, 5, 4], [-1, 0, 0, -1, 1]),
]


@pytest.mark.jit_off
@pytest.mark.parametrize("chain", [False, True])
def test_rows_are_the_draft_and_padding_that_no_model_is_misled_by(chain):
    trees = [tree for tree in TREES if not chain or tree[1] == list(range(-1, len(tree[1]) - 1))]
    n = len(trees)
    tokens, parents = np.zeros((n, N_ROWS - 1), np.int32), np.full((n, N_ROWS - 1), 77, np.int32)
    n_draft = np.array([len(t) for t, _ in trees], np.int32)
    for i, (t, p) in enumerate(trees):
        tokens[i, : len(t)], parents[i, : len(t)] = t, p
    ids, mask = np.full(n * N_ROWS, -9, np.int64), np.ones(n * N_ROWS**2, np.bool_)
    fill_rows(n, tokens, parents, n_draft, np.arange(50, 50 + n), chain, N_ROWS, ids, mask)
    for i, (t, p) in enumerate(trees):
        pads = N_ROWS - 1 - len(t)
        padding = list(range(len(t) - 1, len(t) - 1 + pads)) if chain else [-1] * pads
        full = Draft(np.array([*t, *[0] * pads], np.int32), np.array([*p, *padding], np.int32), np.ones(5, np.float32))
        assert ids.reshape(n, -1)[i].tolist() == [50 + i, *t, *[0] * pads]
        assert (mask.reshape(n, N_ROWS, N_ROWS)[i] == full.mask()).all()


def test_a_prompt_is_drafted_from_in_the_first_step():
    drafts, request = make(), FakeRequest("a", [1, 2, 3, 4, 5, 6, 1, 2])
    drafts.prefilled([request])
    request.output_ids.append(3)
    assert rows_of(drafts, request)[0][:4] == [3, 4, 5, 6]


def test_the_latest_tokens_may_come_beside_the_record():
    behind, beside = FakeRequest("a", [1, 2, 3, 4, 5, 6, 1]), FakeRequest("a", [1, 2, 3, 4, 5, 6, 1])
    first, second = make(), make()
    first.prefilled([behind])
    second.prefilled([beside])
    for step, token in enumerate([2, 3, 4, 9, 1, 2]):
        behind.output_ids.append(token)
        assert rows_of(first, behind) == rows_of(second, beside, latest=[[token]]), step
        beside.output_ids.append(token)


def test_a_batch_keeps_its_order_around_requests_that_are_not_drafted_for():
    drafts = make()
    requests = [
        FakeRequest("a", [1, 2, 3, 1]),
        FakeRequest("off", [1, 2, 3, 1], custom={"ngramspec": "off"}),
        FakeRequest("b", [5, 6, 7, 5]),
    ]
    drafts.prefilled(requests)
    for request, token in zip(requests, (2, 2, 6)):
        request.output_ids.append(token)
    a, off, b = rows_of(drafts, *requests)
    assert (a[:2], off, b[:2]) == ([2, 3], [2, 0, 0, 0, 0, 0], [6, 7])


def test_a_reused_id_is_another_request():
    drafts = make(share="nothing")
    first, second = FakeRequest("x", [1, 2, 3, 4, 1]), FakeRequest("x", [2, 9, 8, 7, 2])
    drafts.prefilled([first])
    first.output_ids.append(2)
    assert rows_of(drafts, first)[0][:2] == [2, 3]
    drafts.prefilled([second])
    second.output_ids.append(9)
    assert rows_of(drafts, second)[0][:3] == [9, 8, 7]
    assert len(drafts.requests) == 1


def test_tokens_beyond_the_stop_are_taken_back():
    drafts = make()
    request = FakeRequest("a", [1, 2])
    drafts.prefilled([request])
    rows_of(drafts, request, latest=[[3, 4, 5, 6]])
    request.output_ids += [3, 4, 5, 6]
    request.ended = 2
    drafts.decoded([])
    assert len(drafts.requests) == 0 and drafts.guard.failures == 0
    other = FakeRequest("b", [1, 2])
    drafts.prefilled([other])
    other.output_ids.append(3)
    assert rows_of(drafts, other)[0] == [3, 4, 0, 0, 0, 0]


def test_the_last_tokens_arrive_with_the_end():
    drafts = make()
    request = FakeRequest("a", [1, 2])
    drafts.prefilled([request])
    request.output_ids.append(3)
    rows_of(drafts, request)
    request.output_ids += [4, 5]
    request.ended = 3
    drafts.decoded([])
    other = FakeRequest("b", [1, 2])
    drafts.prefilled([other])
    other.output_ids.append(3)
    assert rows_of(drafts, other)[0][:3] == [3, 4, 5]


def test_a_retracted_request_goes_on_where_it_was():
    drafts, request = make(), FakeRequest("a", [1, 2, 3, 4, 5, 1])
    drafts.prefilled([request])
    request.output_ids.append(2)
    rows_of(drafts, request)
    drafts.decoded([])  # out of the batch, not ended
    drafts.prefilled([request])
    request.output_ids.append(3)
    assert rows_of(drafts, request)[0][:3] == [3, 4, 5]
    assert len(drafts.requests) == 1 and drafts.guard.failures == 0


def test_a_record_that_became_shorter_is_known_anew():
    drafts, request = make(), FakeRequest("a", [1, 2, 3, 1])
    drafts.prefilled([request])
    request.output_ids += [2, 3, 9]
    rows_of(drafts, request)
    request.output_ids = [2]
    assert rows_of(drafts, request)[0] == [2, 0, 0, 0, 0, 0]
    assert rows_of(drafts, request)[0][:2] == [2, 3]
    assert drafts.guard.failures == 0


def test_a_long_prompt_is_read_over_several_steps_and_drafted_from_after_the_last():
    drafts = make(prompt_tokens_per_step=256)
    request = FakeRequest("a", [*([1, 2, 3] * 190), 1])
    drafts.prefilled([request])
    request.output_ids.append(2)
    assert [rows_of(drafts, request)[0][1] for _ in range(4)] == [0, 0, 3, 3]


def test_more_requests_than_there_is_room_for_are_served_without_drafts():
    drafts = make(max_requests=2)
    requests = [FakeRequest(str(i), [1, 2, 3, 1]) for i in range(3)]
    drafts.prefilled(requests)
    for request in requests:
        request.output_ids.append(2)
    assert [row[1] for row in rows_of(drafts, *requests)] == [3, 3, 0]
    assert drafts.requests.n_unfollowed > 0 and drafts.guard.failures == 0


def test_one_that_left_the_batch_without_a_notice_makes_room():
    drafts = make(max_requests=2)
    gone, stays, new = (FakeRequest(name, [1, 2, 3, 1]) for name in ("gone", "stays", "new"))
    drafts.prefilled([gone, stays])
    for token, batch in ((2, [gone, stays]), (3, [stays])):
        for request in batch:
            request.output_ids.append(token)
        rows_of(drafts, *batch)
    drafts.prefilled([new])
    new.output_ids.append(2)
    assert [row[1] for row in rows_of(drafts, stays, new)] == [1, 3]
    assert drafts.requests.n_unfollowed == 0 and drafts.guard.failures == 0


@pytest.mark.parametrize(
    ("share", "first", "second", "met"),
    [
        ("tenant", {}, {}, False),
        ("tenant", {"cache_salt": "x"}, {"cache_salt": "x"}, True),
        ("tenant", {"cache_salt": "x"}, {"cache_salt": "y"}, False),
        ("tenant", {"extra_key": "x"}, {"extra_key": "x"}, True),
        ("tenant", {"extra_key": "x"}, {"cache_salt": "x"}, False),
        ("tenant", {"extra_key": "L", "lora_id": "L"}, {"extra_key": "L", "lora_id": "L"}, False),
        ("tenant", {"extra_key": "xL", "lora_id": "L"}, {"extra_key": "xL", "lora_id": "L"}, True),
        ("tenant", {"session_id": "s"}, {"session_id": "s"}, True),
        ("tenant", {"cache_salt": "x", "custom": {"ngramspec": "private"}}, {"cache_salt": "x"}, False),
        ("all users", {}, {}, True),
        ("all users", {"cache_salt": "x"}, {}, True),
        ("all users", {"extra_key": "L", "lora_id": "L"}, {}, False),
        ("everything", {}, {"cache_salt": "x"}, True),
        ("everything", {"custom": {"ngramspec": "private"}}, {}, False),
        ("nothing", {"cache_salt": "x"}, {"cache_salt": "x"}, False),
    ],
)
def test_who_meets_whose_output(share, first, second, met):
    drafts = make(share=share)
    serve(drafts, FakeRequest("a", [1, 2], **first), [3, 4, 5, 6])
    other = FakeRequest("b", [1, 2], **second)
    drafts.prefilled([other])
    other.output_ids.append(3)
    assert (rows_of(drafts, other)[0][1] == 4) is met


@pytest.mark.parametrize(("share", "met"), [("everything", True), ("all users", False)])
def test_prompts_are_shared_only_with_everything(share, met):
    drafts = make(share=share)
    serve(drafts, FakeRequest("a", [1, 2, 3, 4, 5]), [6])
    other = FakeRequest("b", [1, 2])
    drafts.prefilled([other])
    other.output_ids.append(3)
    assert (rows_of(drafts, other)[0][:3] == [3, 4, 5]) is met


def test_keys_cannot_be_made_to_collide():
    one = FakeRequest("a", [], cache_salt='x", "y')
    two = FakeRequest("b", [], cache_salt="x", extra_key="y")
    assert tenant_of(one, "tenant") != tenant_of(two, "tenant")


def break_(monkeypatch, times):
    """Let the drafter fail so many times."""
    from ngramspec.engines.sglang import drafts as module

    real, left = module.Drafter.draft_batch, [times]

    def draft_batch(self, *args, **named):
        if left[0]:
            left[0] -= 1
            raise ZeroDivisionError("made to fail")
        return real(self, *args, **named)

    monkeypatch.setattr(module.Drafter, "draft_batch", draft_batch)


@pytest.mark.parametrize("chain", [False, True])
def test_a_failure_is_a_step_without_draft_and_drafting_comes_back(monkeypatch, caplog, chain):
    break_(monkeypatch, 2)
    drafts, request = make(chain=chain), FakeRequest("a", [1, 2, 3, 4, 5, 6, 1])
    drafts.prefilled([request])
    seen = []
    for token in [2, 3, 4, 5, 6, 1, 2, 3]:
        request.output_ids.append(token)
        ids, mask, _ = drafts.rows([request])
        seen.append(int(ids[1]))
        assert ids[0] == token and mask.reshape(N_ROWS, N_ROWS)[:, 0].all()
        drafts.decoded([request])
    # Step 0 fails, step 1 is a pause; step 2 knows the request anew and only reads its prompt; step 3 fails, two
    # steps of pause, one of reading; then drafts are right again.
    assert seen == [0, 0, 0, 0, 0, 0, 0, 4]
    assert drafts.guard.failures == 2
    assert len([record for record in caplog.records if "made to fail" in (record.exc_text or "")]) == 1


def test_pauses_double_up_to_a_limit_and_shrink_after_good_steps():
    guard = Guard(lambda: 0.0)
    for expected in (1, 2, 4, 8):
        guard.failed("testing", ValueError())
        assert sum(not guard.ready() for _ in range(expected + 3)) == expected
    for _ in range(20):
        guard.failed("testing", ValueError())
    assert sum(not guard.ready() for _ in range(2 * MAX_PAUSE)) == MAX_PAUSE
    for _ in range(2 * MAX_PAUSE):
        guard.worked()
    guard.failed("testing", ValueError())
    assert sum(not guard.ready() for _ in range(10)) == 1


def test_failures_are_logged_once_a_minute_and_counted(caplog):
    now = [0.0]
    guard = Guard(lambda: now[0])
    for second in (0, 1, 59, 61, 62):
        now[0] = second
        guard.failed("testing", ValueError("x"))
    assert [record.args[1] for record in caplog.records] == [1, 3] and guard.failures == 5


def test_two_requests_of_one_id_in_a_batch_cost_nobody_a_draft():
    drafts = make()
    one, other, third = FakeRequest("r", [1, 2, 3]), FakeRequest("r", [4, 5, 6]), FakeRequest("s", [7, 8, 9] * 4)
    drafts.prefilled([one, third])
    for step in range(4):
        for request in (one, other):
            request.output_ids.append(step)
        third.output_ids.append((7, 8, 9)[step % 3])
        rows = rows_of(drafts, one, other, third)
        assert rows[2][:3] == [(7, 8, 9)[(step + k) % 3] for k in range(3)]
    assert drafts.guard.failures == 0
