"""Every setting of every class refuses by its name what can be no setting; no error of Python gets out."""

from dataclasses import fields

import numpy as np
import pytest

from ngramspec import Drafter, DrafterConfig, FrozenCorpus, HashConfig, TrieConfig
from ngramspec.drafting.profiles import profile
from ngramspec.engines.sglang.config import EngineConfig, RecordConfig, SnapshotConfig
from ngramspec.errors import ConfigError
from ngramspec.replay import Budget, CostModel, Options, Trace, build, inspect, run, tune, write
from ngramspec.replay.calibrate import Settings
from ngramspec.replay.drafters import Facts
from ngramspec.replay.serving.settings import Serving

COST = profile("dense-8b-h100")
CLASSES = [
    (HashConfig, {}), (TrieConfig, {}), (DrafterConfig, {}), (EngineConfig, {}), (RecordConfig, {"folder": "f"}),
    (SnapshotConfig, {"path": "p"}), (Options, {}), (Serving, {}), (Settings, {}),
    (CostModel, {"decode": COST.decode, "verify": COST.verify}),
    (Budget, {"mode": "fixed", "max_draft": 4}), (Budget, {"mode": "threshold", "min_prob": 0.1}),
    (Budget, {"mode": "cost", "cost": COST, "uniform_width": True}),
]  # fmt: skip
#: What no setting may be: no number, no text, no list of either, and nothing that has one truth value.
NOTHING = [object(), 1j, np.zeros((2, 2)), [[object()]], {"a": 1}, int]
CASES = [
    (kind, others, field.name, wrong)
    for kind, others in CLASSES
    for field in fields(kind)
    if field.init
    for wrong in NOTHING
]


@pytest.mark.parametrize(
    ("kind", "others", "name", "wrong"), CASES, ids=[f"{kind.__name__}-{name}-{type(w)}" for kind, _, name, w in CASES]
)
def test_what_can_be_no_setting_is_refused_by_name(kind, others, name, wrong):
    with pytest.raises(ConfigError, match=rf"^{name}(\[0\])?(\[0\])?: "):
        kind(**others | {name: wrong})


TRACE = Trace.of([[1, 2, 3, 1, 2]] * 4, [[3, 1, 2, 3, 1]] * 4)
NONE = np.zeros(0, np.int32)


def small():
    return Drafter(DrafterConfig(capacity_tokens=2_048, vocab_size=9, max_requests=2, max_sessions=2))


CALLS = {
    "trace of run": ("trace: got None", lambda: run(None, "none", Options())),
    "options of run": ("options: got None", lambda: run(TRACE, "none", None)),
    "seed of run": ("seed: got -1", lambda: run(TRACE, "none", Options(), seed=-1)),
    "warm-up of run": ("warm_up: got None, must be a list", lambda: run(TRACE, "none", Options(), warm_up=None)),
    "traces of a warm-up": (r"warm_up\[0\]: got 1", lambda: run(TRACE, "none", Options(), warm_up=[1])),
    "name of a drafter": (r"drafter: got \[\]", lambda: build([], Facts(vocab_size=9))),
    "options of a drafter": ("drafter_options: got 1", lambda: build("none", Facts(vocab_size=9), 1)),
    "trace to write": ("trace: got None", lambda: write(None, "t.npz")),
    "trace to inspect": ("trace: got None", lambda: inspect(None)),
    "trace of tune": ("trace: got None", lambda: tune(None, COST)),
    "cost of tune": ("cost: got None", lambda: tune(TRACE, None)),
    "settings of tune": ("settings: got 5", lambda: tune(TRACE, COST, settings=5)),
    "ends of tune": ("eos_ids: must be a flat list", lambda: tune(TRACE, COST, eos_ids=5)),
    "engine of tune": (r"engine: got \[\]", lambda: tune(TRACE, COST, engine=[])),
    "documents": ("documents: got None, must be a list", lambda: FrozenCorpus.build("c", None, vocab_size=9)),
    "orders": ("orders: got 5, must be a list", lambda: FrozenCorpus.build("c", [[1]], vocab_size=9, orders=5)),
    "lengths": (r"lengths\[0\]: got 'x'", lambda: FrozenCorpus.nbytes_for(["x"])),
    "corpora": ("corpora: got 5, must be a list", lambda: FrozenCorpus.merge(5)),
    "one of the corpora": (r"corpora\[0\]: got 'c', must be a FrozenCorpus", lambda: FrozenCorpus.merge(["c"])),
    "a corpus": ("corpus: got None, must be a FrozenCorpus", lambda: small().add_corpus(None)),
    "name of a corpus": (r"corpus: no \[\] among", lambda: small().remove_corpus([])),
    "arrays of drafts": ("out: got None, must be a DraftBatch", lambda: small().draft_batch(NONE, None, max_draft=1)),
    "ends of a rule": (
        "eos_ids: got 'x', must be a list",
        lambda: build("rest", Facts(vocab_size=9), {"eos_ids": "x"}),
    ),
    "profile": (r"profile: got \[\]", lambda: profile([])),
    "points": ("points: got None", lambda: CostModel.from_points(None)),
    "a point": (r"points\[0\].point: got 5", lambda: CostModel.from_points([5])),
    "rows": ("rows: got None, must be a flat list of numbers below 4", lambda: TRACE.select(None)),
    "a row": (r"rows: got \[9\]", lambda: TRACE.select([9])),
    "rows of rows": (r"rows: got \[\[1\]\]", lambda: TRACE.select([[1]])),
    "traces": ("traces: got None", lambda: Trace.concat(None)),
    "one of the traces": (r"traces\[0\]: got 'x', must be a Trace", lambda: Trace.concat(["x"])),
    "tokens of the KV cache": ("kv_tokens: got None", lambda: COST.step_ms(4, 2, None)),
    "a batch": ("batch: got None", lambda: COST.breakeven_accept_length(None)),
}


@pytest.mark.parametrize("case", CALLS)
def test_a_wrong_argument_is_refused_by_name(case):
    text, call = CALLS[case]
    with pytest.raises(ConfigError, match=text):
        call()
