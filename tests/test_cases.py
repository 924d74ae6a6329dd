"""Every row of `cases/drafting.json` over every cache, with the value that is right."""

import json
from pathlib import Path

import numpy as np
import pytest

from ngramspec.baselines.vllm_ngram import VllmNgram
from ngramspec.draft import DraftBatch, Reason
from ngramspec.errors import ConfigError
from ngramspec.replay import verify
from tests.kinds import KINDS, smallest_capacity

pytestmark = pytest.mark.jit_off

CASES = {
    case["name"]: case
    for case in json.loads(Path(__file__).with_name("cases").joinpath("drafting.json").read_text())["cases"]
}
STEPS = {name: case for name, case in CASES.items() if "steps" in case}
DEFAULTS = {"vocab_size": 1 << 20, "eos_ids": (), "max_requests": 8, "max_sessions": 8, "capacity_tokens": 16_384}

#: Rivals' rules that a case may name beside the caches.
RULES = {
    f"vllm-ngram {tie}": (lambda tie=tie, **common: VllmNgram(min_n=1, tie=tie, **common))
    for tie in ("oldest", "recent")
}


def text(written):
    """A list of ids from how a case writes it."""
    if isinstance(written, list):
        return written
    if "repeat" in written:
        return written["repeat"] * written["times"]
    return list(range(written["from"], written["from"] + written["n"]))


def build(name, case):
    settings = DEFAULTS | {key: tuple(v) if isinstance(v, list) else v for key, v in case.get("config", {}).items()}
    if name in RULES:
        return RULES[name](vocab_size=settings["vocab_size"])
    if settings["capacity_tokens"] == "smallest":
        settings["capacity_tokens"] = smallest_capacity(name, max_requests=settings["max_requests"])
    return KINDS[name].build(**settings)


def check(name, draft, expect):
    tokens = draft.tokens.tolist()
    if name == "none":
        assert tokens == [] and draft.reason is Reason.DISABLED
        return
    known = {"tokens", "first", "never", "never_first", "at_least", "at_most", "match_length", "reason"}
    assert set(expect) <= known, "a misspelt expectation would always hold"
    first = [token for token, parent in zip(tokens, draft.parents) if parent < 0]
    assert tokens == expect.get("tokens", tokens)
    assert first[:1] == ([expect["first"]] if "first" in expect else first[:1])
    assert not set(tokens) & set(expect.get("never", ()))
    assert not set(first) & set(expect.get("never_first", ()))
    assert expect.get("at_least", 0) <= len(tokens) <= expect.get("at_most", len(tokens))
    assert draft.match_length == expect.get("match_length", draft.match_length)
    assert draft.reason.name.lower() == expect.get("reason", draft.reason.name.lower())


class Runner:
    """Takes a case's steps, one call each, and checks what they expect."""

    def __init__(self, name, case):
        self.name = name
        self.cache = build(name, case)
        self.slots = {}

    def take(self, step):
        verb = next(iter(step))
        getattr(self, verb)(step[verb], **{key: value for key, value in step.items() if key != verb})

    def again(self, steps, times):
        for step in steps * times:
            self.take(step)

    def begin(self, request_id, prompt, **settings):
        self.slots[request_id] = self.cache.begin(request_id, text(prompt), **settings)

    def ingest(self, request_id, left, max_tokens=None):
        assert self.cache.ingest(request_id, max_tokens) == left

    def accept(self, request_id, tokens):
        self.cache.accept(request_id, text(tokens))

    def accept_batch(self, emitted):
        tokens = [token for row in emitted.values() for token in row]
        offsets = np.cumsum([0, *map(len, emitted.values())]).astype(np.int32)
        self.cache.accept_batch(self.rows(emitted), np.array(tokens, np.int32), offsets)

    def truncate(self, request_id, n_tokens):
        self.cache.truncate(request_id, n_tokens)

    def finish(self, request_id):
        self.cache.finish(request_id)

    def draft(self, request_id, expect, expect_of=(), topology="chain", **settings):
        draft = self.cache.draft(request_id, topology=topology, **settings)
        check(self.name, draft, dict(expect_of).get(self.name, expect))

    def draft_batch(self, ids, expect, max_draft):
        out = DraftBatch.allocate(len(ids), max_draft)
        self.cache.draft_batch(self.rows(ids), out, max_draft=max_draft, topology="chain")
        assert len(expect) == len(ids)
        for i, expected in enumerate(expect):
            check(self.name, out.row(i), expected)

    def same(self, ids, max_draft):
        one, *others = (self.cache.draft(i, max_draft=max_draft) for i in ids)
        for other in others:
            assert one.tokens.tolist() == other.tokens.tolist()
            assert KINDS[self.name].learns or one.probs.tolist() == other.probs.tolist()

    def check(self, really):
        assert really
        self.cache.check_integrity()

    def rows(self, ids):
        return np.array([self.slots[i] for i in ids], np.int32)


@pytest.mark.parametrize("case", STEPS)
@pytest.mark.parametrize("name", KINDS)
def test_a_cache_does_what_the_case_says(name, case):
    runner = Runner(name, CASES[case])
    for step in CASES[case]["steps"]:
        runner.take(step)
    runner.cache.check_integrity()


@pytest.mark.parametrize(
    ("name", "case"), [(rule, name) for name, case in CASES.items() for rule in case.get("rules", ())]
)
def test_a_rivals_rule_does_what_the_case_says(name, case):
    runner = Runner(name, CASES[case])
    for step in CASES[case]["steps"]:
        runner.take(step)


@pytest.mark.parametrize("case", [name for name, case in CASES.items() if "refused" in case])
@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.config])
def test_what_a_case_says_is_refused_is_refused_by_name(name, case):
    for setting, value in CASES[case]["refused"].items():
        with pytest.raises(ConfigError, match=f"{setting}: got {value}, allowed integers from [1-9]"):
            KINDS[name].config(**{setting: value})


@pytest.mark.parametrize("case", [name for name, case in CASES.items() if "verify" in case])
def test_a_verified_draft_emits_what_the_case_says(case):
    assert verify(**CASES[case]["verify"]).emitted == CASES[case]["emitted"]


def test_every_case_is_run_by_something_and_named_once():
    written = json.loads(Path(__file__).with_name("cases").joinpath("drafting.json").read_text())["cases"]
    assert len(CASES) == len(written)
    assert all({"steps", "refused", "verify"} & set(case) and case["why"] for case in written)
