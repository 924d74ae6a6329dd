"""Wrong calls on every cache: each is refused by name, says what to do, and changes nothing."""

import numpy as np
import pytest

from ngramspec.draft import DraftBatch
from ngramspec.errors import CapacityError, ConfigError
from tests.checks import drafts
from tests.kinds import DRAFTING, KINDS, make

pytestmark = pytest.mark.jit_off

every_cache = pytest.mark.parametrize("name", KINDS)
drafting_caches = pytest.mark.parametrize("name", DRAFTING)


def slots_of(*values):
    return np.array(values, np.int32)


REFUSED = {
    "begin twice": (lambda c: c.begin("a", [1]), r"'a' is running; finish it first or use another id"),
    "finish unknown": (lambda c: c.finish("z"), r"'z' is not running; begin it first"),
    "draft unknown": (lambda c: c.draft("z", max_draft=1), r"'z' is not running"),
    "accept unknown": (lambda c: c.accept("z", [1]), r"'z' is not running"),
    "ingest unknown": (lambda c: c.ingest("z"), r"'z' is not running"),
    "truncate unknown": (lambda c: c.truncate("z", 0), r"'z' is not running"),
    "explain unknown": (lambda c: c.explain("z"), r"'z' is not running"),
    "share": (lambda c: c.begin("b", [1], share="some"), r"share: got 'some', allowed 'outputs', 'all', 'none'"),
    "topology": (
        lambda c: c.draft("a", max_draft=1, topology="star"),
        r"topology: got 'star', allowed 'chain' or 'tree'",
    ),
    "min_prob": (lambda c: c.draft("a", max_draft=1, min_prob=1.5), r"min_prob: got 1.5, allowed 0 to 1"),
    "min_prob nan": (lambda c: c.draft("a", max_draft=1, min_prob=float("nan")), r"min_prob: got nan"),
    "max_draft": (lambda c: c.draft("a", max_draft=-1), r"max_draft: got -1, must be an integer of at least 0"),
    "max_draft float": (lambda c: c.draft("a", max_draft=1.0), r"max_draft: got 1.0"),
    "max_draft beyond any": (
        lambda c: c.draft("a", max_draft=2**70),
        rf"max_draft: got {2**70}, must be an integer of at least 0 and at most {2**16}",
    ),
    "max_draft text": (lambda c: c.draft("a", max_draft="x"), r"max_draft: got 'x'"),
    "max_draft array": (lambda c: c.draft("a", max_draft=np.ones(2, np.int32)), r"max_draft: got array"),
    "truncate beyond any": (lambda c: c.truncate("a", 2**70), rf"n_tokens: got {2**70}, request 'a' has 5 tokens"),
    "remaining": (lambda c: c.draft("a", max_draft=1, remaining=-1), r"remaining: got -1"),
    "max_tokens": (lambda c: c.begin("b", [1, 2], max_tokens=-1), r"max_tokens: got -1"),
    "truncate too long": (lambda c: c.truncate("a", 6), r"n_tokens: got 6, request 'a' has 5 tokens"),
    "truncate negative": (lambda c: c.truncate("a", -1), r"n_tokens: got -1"),
    "truncate float": (lambda c: c.truncate("a", 2.5), r"n_tokens: got 2.5, must be an integer of at least 0"),
    "truncate bool": (lambda c: c.truncate("a", True), r"n_tokens: got True"),
    "truncate nothing": (lambda c: c.truncate("a", None), r"n_tokens: got None"),
    "min_prob text": (lambda c: c.draft("a", max_draft=1, min_prob="x"), r"min_prob: got 'x', allowed 0 to 1"),
    "min_prob nothing": (lambda c: c.draft("a", max_draft=1, min_prob=None), r"min_prob: got None"),
    "share list": (lambda c: c.begin("b", [1], share=["all"]), r"share: got \['all'\], allowed 'outputs'"),
    "id a number": (lambda c: c.begin(5, [1]), r"request_id: got 5, must be text"),
    "id a list": (lambda c: c.draft(["a"], max_draft=1), r"\['a'\] is not running"),
    "tenant a number": (lambda c: c.begin("b", [1], tenant=5), r"tenant: got 5, must be text or None"),
    "session a list": (lambda c: c.begin("b", [1], session=["s"]), r"session: got \['s'\], must be text or None"),
    "ragged prompt": (lambda c: c.begin("b", [[1], [2, 3]]), r"prompt: must be a flat list"),
    "empty prompt of lists": (lambda c: c.begin("b", [[]]), r"prompt: .*of 2 dimensions"),
    "prompt of floats": (lambda c: c.begin("b", [1.0]), r"prompt: must be a flat list of integer .*got float64"),
    "prompt of lists": (lambda c: c.begin("b", [[1], [2]]), r"prompt: .*of 2 dimensions"),
    "prompt of words": (lambda c: c.begin("b", "text"), r"prompt: must be a flat list"),
    "id too large": (lambda c: c.begin("b", [1, 2**31]), rf"prompt: got token id {2**31}, allowed .* to {2**31 - 1}"),
    "id too small": (lambda c: c.accept("a", [1, -(2**31) - 1]), rf"tokens: got token id {-(2**31) - 1}"),
    "slot unknown": (lambda c: drafts(c, [7]), r"slots\[0\]: no running request has slot 7"),
    "slot negative": (lambda c: drafts(c, [-1]), r"slots\[0\]: no running request has slot -1"),
    "slots dtype": (
        lambda c: c.draft_batch(np.zeros(1, np.int64), DraftBatch.allocate(1, 1), max_draft=1),
        r"slots: must be int32 of one dimension, got int64",
    ),
    "slots shape": (
        lambda c: c.accept_batch(np.zeros((1, 1), np.int32), slots_of(1), slots_of(0, 1)),
        r"slots: must be int32 of one dimension, got int32 of 2",
    ),
    "out too short": (
        lambda c: c.draft_batch(slots_of(0), DraftBatch.allocate(0, 4), max_draft=1),
        r"out: holds 0 rows, the batch has 1; allocate a larger DraftBatch",
    ),
    "max_draft per row": (lambda c: drafts(c, [0], max_draft=slots_of()), r"max_draft: got 0 values, need 1"),
    "remaining per row": (lambda c: drafts(c, [0], remaining=slots_of()), r"remaining: got 0 values, need 1"),
    "max_draft dtype": (lambda c: drafts(c, [0], max_draft=np.ones(1)), r"max_draft.*int32.*float64"),
    "remaining dtype": (lambda c: drafts(c, [0], remaining=np.ones(1, np.int64)), r"remaining.*int32.*int64"),
    "offsets too few": (
        lambda c: c.accept_batch(slots_of(0), slots_of(1), slots_of(0)),
        r"offsets: got 1 values, need 2",
    ),
    "offsets past the end": (lambda c: c.accept_batch(slots_of(0), slots_of(1), slots_of(0, 2)), r"offsets"),
    "offsets below 0": (lambda c: c.accept_batch(slots_of(0), slots_of(1), slots_of(-1, 1)), r"offsets"),
    "offsets falling": (lambda c: c.accept_batch(slots_of(0), slots_of(1), slots_of(1, 0)), r"offsets"),
    "offsets dtype": (
        lambda c: c.accept_batch(slots_of(0), slots_of(1), np.array([0, 1])),
        r"offsets: .*int32.*got int64",
    ),
    "tokens dtype": (
        lambda c: c.accept_batch(slots_of(0), np.array([1]), slots_of(0, 1)),
        r"tokens: .*int32.*got int64",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
@every_cache
def test_a_wrong_call_is_refused_by_name_and_changes_nothing(name, case):
    call, text = REFUSED[case]
    cache = make(name)
    assert cache.begin("a", [1, 2, 3, 1, 2]) == 0
    before = cache.digest()
    with pytest.raises(ConfigError, match=text):
        call(cache)
    assert cache.digest() == before
    cache.check_integrity()
    assert cache.stats()["running_requests"] == 1


@every_cache
def test_names_may_be_any_text(name):
    cache = make(name)
    cache.begin("\ud800", [1, 2, 1], tenant="\ud800", session="\0")
    cache.finish("\ud800")
    cache.check_integrity()


@every_cache
def test_what_waits_of_a_prompt_does_not_change_with_the_callers_array(name):
    prompt = np.array([1, 2, 3, 1, 2], np.int32)
    one, other = make(name), make(name)
    one.begin("a", prompt, max_tokens=0)
    prompt[:] = 9
    one.ingest("a")
    other.begin("a", [1, 2, 3, 1, 2], max_tokens=0)
    other.ingest("a")
    assert one.digest() == other.digest()


@every_cache
def test_a_limit_beyond_any_output_is_no_limit(name):
    cache = make(name)
    cache.begin("a", [1, 2, 3, 1, 2])
    free = cache.draft("a", max_draft=2).tokens.tolist()
    assert cache.draft("a", max_draft=2, remaining=2**40).tokens.tolist() == free
    assert cache.draft("a", max_draft=2, remaining=2**70).tokens.tolist() == free
    assert cache.begin("b", [1, 2, 3], max_tokens=2**70) == 1 and cache.ingest("b", 2**70) == 0


@drafting_caches
def test_the_largest_id_is_a_placeholder_in_lists_and_arrays(name):
    for prompt in ([1, 2**31 - 1, 1], np.array([1, 2**31 - 1, 1], np.int32)):
        cache = make(name)
        cache.begin("a", prompt)
        assert len(cache.draft("a", max_draft=2)) == 0


@every_cache
def test_too_many_requests_are_refused_until_one_ends(name):
    cache = make(name, max_requests=2)
    cache.begin("a", [1])
    cache.begin("b", [1])
    with pytest.raises(CapacityError, match="2 requests are running, max_requests=2: finish some or raise"):
        cache.begin("c", [1])
    cache.finish("a")
    cache.begin("c", [1])
    assert cache.stats()["running_requests"] == 2


@every_cache
def test_a_slot_is_refused_once_its_request_ended(name):
    cache = make(name)
    slot = cache.begin("a", [1])
    cache.finish("a")
    with pytest.raises(ConfigError, match=f"no running request has slot {slot}"):
        drafts(cache, [slot])


@pytest.mark.parametrize("max_requests", [1, 2, 7])
@drafting_caches
def test_a_capacity_below_the_smallest_is_refused_and_the_smallest_named(name, max_requests):
    config = KINDS[name].config
    smallest = config(max_requests=max_requests).min_capacity_tokens
    for wrong in (0, -1, 4, smallest - 1, 2**31 - 1, None, 1e6):
        with pytest.raises(ConfigError, match=f"capacity_tokens: got .* allowed integers from {smallest} to"):
            config(capacity_tokens=wrong, max_requests=max_requests)
    cache = KINDS[name].build(capacity_tokens=smallest, max_requests=max_requests)
    cache.begin("a", [1, 2, 3, 1, 2])
    assert cache.draft("a", max_draft=1).tokens.tolist() == [3]
