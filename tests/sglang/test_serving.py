"""The real engine on a CPU: greedy text must not depend on who drafts, nor on anything of ours that fails."""

from datetime import datetime
from itertools import pairwise

import pytest

from ngramspec import Drafter
from ngramspec.engines.sglang.config import EngineConfig, SnapshotConfig
from ngramspec.engines.sglang.snapshots import Snapshots
from ngramspec.replay import Options, Trace, read, simulate
from ngramspec.replay.recorded.steps import recorded_steps
from tests.sglang.drive import BUILT_IN
from tests.sglang.served import EVERYBODY, NGRAM, Variant, texts
from tests.sglang.tiny_llama import EOS, make  # noqa: F401 (by `conftest`)

#: FOLDER stands for the variant's own.
VARIANTS = {
    "none": Variant(flags=()),
    "built-in": Variant(BUILT_IN, flags=()),
    "ours": Variant(
        NGRAM | {"enable_metrics": True},
        EVERYBODY
        | {"record": {"folder": "FOLDER/record", "salt": "salt"}, "snapshot": {"path": "FOLDER/learned.ngs"}}
        | {"max_bytes": 64 * 2**20},
        flags=("corpora",),
    ),
    "chains": Variant(NGRAM, EVERYBODY | {"topology": "chain", "width": "measured"}, widths="1,4,12,2", flags=()),
    # On two ranks, of which the first drafts.
    "faults": Variant(
        NGRAM | {"tp_size": 2},
        EVERYBODY
        | {"record": {"folder": "FOLDER/record", "seconds": 1}, "snapshot": {"path": "FOLDER/damaged.ngs"}}
        | {"width": "measured", "capture": True},
        faults="kernel,disk",
        widths="12,12,1",
    ),
    # On two ranks, of which each drafts; the rows are compared.
    "each rank": Variant(NGRAM | {"tp_size": 2}, EVERYBODY | {"ranks": "local", "debug": True}),
    "contract": Variant(BUILT_IN, EVERYBODY, faults="contract"),
    "unknown key": Variant(BUILT_IN, {"shares": "all users"}),
    "too small": Variant(BUILT_IN, EVERYBODY | {"max_bytes": 2**20}),
}

#: Where SGLang's own knows nothing and ours has read the prompt.
COPYING = ("copy", "flushed", "long")


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "none"])
def test_text_is_that_of_no_speculation(served, name):
    for workload in texts(served[name].said):
        assert served[name].text(workload) == served["none"].text(workload), workload


def test_some_requests_were_put_back_and_resumed(served):
    for name in ("none", "ours"):
        assert "KV cache pool is full. Retract requests" in served[name].log


def test_ours_needs_no_more_steps_than_the_built_in(served):
    # What a random model emits is chance, and so is a step of sixty; Gemma's text has to be above, in `test_gemma`.
    steps = {
        workload: [sum(r["verify_steps"] for r in served[name].said[workload]) for name in ("ours", "built-in")]
        for workload in texts(served["ours"].said)
    }
    print(steps)
    assert all(ours <= built_in + 2 for ours, built_in in steps.values()), steps
    assert sum(ours for ours, _ in steps.values()) < sum(built_in for _, built_in in steps.values())


@pytest.mark.parametrize("workload", COPYING)
def test_ours_accepts_two_tokens_more_where_the_output_copies_the_prompt(served, workload):
    assert served["ours"].accept_length(workload) >= served["built-in"].accept_length(workload) + 2


def test_chains_of_changing_width_draft_too(served):
    assert served["chains"].accept_length("copy") >= 2.5
    log = served["chains"].log
    assert "drafts chains of up to 11 tokens" in log and "1/3/6/12 rows a request and step" in log


def test_ours_says_once_what_it_does_and_nothing_failed(served):
    log = served["ours"].log
    assert log.count("ngramspec: drafts trees of up to 11 tokens (attention torch_native/torch_native)") == 1
    assert "failed" not in log.replace("request_failed", "")
    assert "'salt': 'set'" in log


def test_endpoints_of_external_corpora_answer_as_they_do_without_us(served):
    added, twice, other, both, removed, unknown, left = served["ours"].said["corpora"]
    assert added == {"success": True, "message": "Loaded corpus 'cycle' with 516 tokens.", "tokens": 516}
    assert not twice["success"] and "is there already" in twice["message"]
    assert other["success"] and both["tokens"] == {"cycle": 516, "other": 4}
    assert removed["success"] and not unknown["success"] and "is not there" in unknown["message"]
    assert left["tokens"] == {"cycle": 516}


def test_a_corpus_is_drafted_from(served):
    assert served["ours"].accept_length("from_corpus") >= served["built-in"].accept_length("from_corpus") + 1


def metric(served, name, **labels):
    """Value of a metric in the run of ours."""
    found = [
        value
        for known, its_labels, value in served["ours"].said["metrics"]
        if known == f"ngramspec:{name}" and labels.items() <= its_labels.items()
    ]
    assert len(found) == 1, (name, found)
    return found[0]


def test_metrics_are_what_was_served(served):
    said = served["ours"].said
    results = [result for workload in texts(said) for result in said[workload]]
    steps = sum(result["verify_steps"] for result in results)
    # A request that was aborted, and those that were put back, count on one side only.
    assert metric(served, "known_steps_total") == pytest.approx(steps, rel=0.05)
    emitted = sum(len(result["ids"]) - 1 for result in results)
    assert metric(served, "emitted_total") == pytest.approx(emitted, rel=0.05)
    assert metric(served, "drafted_total") > metric(served, "accepted_total") > 0.8 * (emitted - steps)
    assert metric(served, "drafted_by_source_total", source="own") > 0
    assert metric(served, "drafted_by_source_total", source="frozen") > 0
    assert metric(served, "empty_drafts_total", reason="no_match") > 0
    assert metric(served, "draft_us_count") > 100 and metric(served, "ingest_us_count") > 10
    assert metric(served, "cache_bytes") <= 64 * 2**20
    # The last file is written after the last request, and with it the last look at the metrics.
    assert len(recorded(served)) - 4 <= metric(served, "recorded_total") <= len(recorded(served))
    assert metric(served, "record_dropped_total") == metric(served, "failures_total") == 0


def recorded(served):
    """The traffic of ours as it was recorded."""
    return Trace.concat([read(path) for path in sorted((served["ours"].folder / "record").glob("*.jsonl.gz"))])


def test_the_record_is_what_was_served(served):
    trace, said = recorded(served), served["ours"].said
    outputs = [trace.output[row].tolist() for row in range(len(trace))]
    for workload in texts(said):
        assert all(result["ids"] in outputs for result in said[workload]), workload
    assert [trace.output[row].tolist() for row in range(6)] == [result["ids"] for result in said["alone"]]
    assert {"length", "abort"} <= set(trace.finish_reason.names)
    first = trace.select(range(6))
    assert [len(steps) for steps in recorded_steps(first).lengths] == [r["verify_steps"] for r in said["alone"]]


@pytest.mark.parametrize(("workload", "rows", "concurrency"), [("alone", range(6), 1), ("copy", range(6, 10), 4)])
def test_replay_of_the_record_predicts_the_engines_own_accept_length(served, workload, rows, concurrency):
    config = EngineConfig(max_bytes=64 * 2**20).drafter(vocab_size=512, eos_ids=(EOS,), max_requests=8)
    drafter, trace = Drafter(config), recorded(served)
    for these, together in ((range(6), 1), (range(6, 10), 4)):  # the same schedule
        options = Options(max_draft=11, concurrency=together, eos_ids=(), share="all")
        counts = simulate(trace.select(these), drafter, options)
        if these == rows:
            break
    emitted = trace.output.lengths[list(rows)].sum() - len(rows)
    assert emitted / counts.per_row[:, 0].sum() == pytest.approx(served["ours"].accept_length(workload), rel=0.01)


def test_what_was_learned_outlives_the_server(served):
    path = served["ours"].folder / "learned.ngs"
    config = EngineConfig(max_bytes=64 * 2**20).drafter(vocab_size=512, eos_ids=(EOS,), max_requests=8)
    snapshots = Snapshots(SnapshotConfig(path=str(path)), str(served["ours"].model))
    drafter = Drafter(config)
    assert snapshots.load(drafter) and drafter.stats()["shared_tokens"] > 64
    other = Snapshots(SnapshotConfig(path=str(path)), "another model")
    assert not other.load(Drafter(config))


def test_the_built_in_runs_where_ours_is_not_asked_for(served):
    assert "ngramspec:" not in served["built-in"].log
    assert "ngramspec:" not in served["none"].log


def times_of(lines):
    """When each line was logged."""
    return [datetime.strptime(line[1:20], "%Y-%m-%d %H:%M:%S") for line in lines]


@pytest.mark.parametrize(
    ("doing", "why"),
    [("drafting", "MemoryError: made to fail by a test"), ("recording", "No space left on device")],
)
def test_a_failure_costs_drafts_or_a_record_and_a_line_a_minute(served, doing, why):
    log = served["faults"].log
    said = [line for line in log.splitlines() if f"{doing} failed" in line]
    assert said and why in log
    assert all((later - earlier).total_seconds() >= 59 for earlier, later in pairwise(times_of(said))), said


def test_drafting_goes_on_between_failures(served):
    assert 1 < served["faults"].accept_length("copy") < served["ours"].accept_length("copy")
    assert not list((served["faults"].folder / "record").iterdir())


def test_of_two_ranks_the_first_drafts(served):
    said = [line for line in served["faults"].log.splitlines() if "ngramspec: " in line]
    assert len([line for line in said if "drafts trees of up to 11 tokens" in line and "1/12 rows" in line]) == 1, said
    assert all(" TP0]" in line for line in said), said


def test_where_each_rank_drafts_the_rows_are_those_of_one(served):
    said = [line for line in served["each rank"].log.splitlines() if "ngramspec: " in line]
    assert [line for line in said if "drafts trees of up to 11 tokens" in line and "ranks='local'" in line], said
    assert not [line for line in said if " failed (" in line], said  # drafting, or comparing rows
    assert served["each rank"].accept_length("copy") >= served["built-in"].accept_length("copy") + 2


def test_a_damaged_snapshot_is_refused_with_the_reason(served):
    assert "the snapshot is refused, the server starts without it" in served["faults"].log


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("contract", "NGRAMWorker._prepare_draft_tokens: takes (self, batch, hint), ours (self, batch)"),
        ("unknown key", "$.shares: unknown setting; allowed are max_bytes, share"),
        ("too small", "max_bytes: got 1048576, these settings need at least"),
    ],
)
def test_ours_stands_aside_with_one_clear_line(served, name, words):
    lines = [line for line in served[name].log.splitlines() if "stands aside" in line]
    assert lines and all(words in line for line in lines)
    # SGLang's own drafts, which know nothing of the prompt, and so the same in all of these.
    assert 1 < served[name].accept_length("copy") == served["contract"].accept_length("copy") < 2
