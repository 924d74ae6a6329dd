"""A real model on the real engine: text that people and programs write, and greedy output that no draft changes."""

import subprocess
import sys

import pytest

from ngramspec import Drafter
from ngramspec.engines.sglang.config import EngineConfig
from ngramspec.replay import Options, Trace, read, simulate
from tests.sglang import gemma
from tests.sglang.drive import BUILT_IN
from tests.sglang.served import EVERYBODY, NGRAM, Variant, texts
from tests.sources import ROOT

FLAGS = ("gemma",)
IDS = {"skip_tokenizer_init": True}  # three processes would hold the tokenizer, half a gigabyte each
VARIANTS = {
    "none": Variant(IDS, flags=FLAGS),
    "ours": Variant(IDS | NGRAM, EVERYBODY | {"record": {"folder": "FOLDER/record"}}, flags=FLAGS),
    "built-in": Variant(IDS | BUILT_IN, flags=FLAGS),
    # One row is a step without draft.
    "widths": Variant(IDS | NGRAM, EVERYBODY | {"width": "measured"}, widths="4,1,12,1,2", flags=FLAGS),
}


def make(folder):
    """The model's folder; made in a process that gives its memory back."""
    subprocess.run([sys.executable, "-m", "tests.sglang.gemma", str(gemma.FOLDER)], cwd=ROOT, check=True)
    return gemma.FOLDER


@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "none"])
def test_text_is_that_of_no_speculation(served, name):
    for workload in texts(served[name].said):
        assert served[name].text(workload) == served["none"].text(workload), workload


def test_the_model_writes_what_was_asked_for(served):
    copied, prompt = served["none"].said["alone"][0]["ids"], gemma.prompts(gemma.FOLDER)["copy"]
    assert any(prompt[i : i + 40] == copied[4:44] for i in range(len(prompt)))  # it begins with a line of its own


def test_ours_accepts_two_tokens_more_where_the_output_copies_the_prompt(served):
    copied = {name: served[name].said["alone"][0]["accept_length"] for name in ("ours", "built-in")}
    assert copied["ours"] >= copied["built-in"] + 2, copied


@pytest.mark.parametrize("workload", ["alone", "together"])
def test_ours_accepts_no_less_than_the_built_in(served, workload):
    assert served["ours"].accept_length(workload) >= served["built-in"].accept_length(workload)


def test_varying_widths_draft_too(served):
    assert served["widths"].accept_length("together") > 1.5


def test_replay_of_the_record_predicts_the_engines_own_accept_length(served):
    folder = served["ours"].folder / "record"
    trace = Trace.concat([read(path) for path in sorted(folder.glob("*.jsonl.gz"))])
    config = EngineConfig().drafter(vocab_size=262_144, eos_ids=(1, 106), max_requests=8)
    drafter, begin = Drafter(config), 0
    for workload, together in (("alone", 1), ("together", len(gemma.PROMPTS))):
        rows = range(begin, begin := begin + len(served["ours"].said[workload]))
        options = Options(max_draft=11, concurrency=together, eos_ids=(), share="all")
        steps = simulate(trace.select(rows), drafter, options).per_row[:, 0].sum()
        emitted = trace.output.lengths[list(rows)].sum() - len(rows)
        assert emitted / steps == pytest.approx(served["ours"].accept_length(workload), rel=0.01), workload
