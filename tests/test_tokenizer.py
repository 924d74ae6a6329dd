"""Ids back to text for reports: what the tokenizer wrote, and a refusal where it is another model's."""

import json
import re

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models

from ngramspec.cli import main
from ngramspec.errors import ConfigError
from ngramspec.replay import drafters, write
from ngramspec.replay.tokenizer import decoder, load
from tests.made_files import make_tokenizer
from tests.naive_replay import NaiveLookup, make_trace


@pytest.fixture
def tokenizer(tmp_path):
    return make_tokenizer(tmp_path / "model")


def trace_of(tokenizer, *texts):
    return make_trace([{"prompt": tokenizer.encode(text).ids, "output": tokenizer.encode(text).ids} for text in texts])


def test_text_comes_back_with_its_spaces_and_special_tokens(tokenizer, tmp_path):
    trace = trace_of(tokenizer, "the cat sat\non the mat</s>")
    decode = decoder(tmp_path / "model", [trace])
    ids = trace.output[0].tolist()
    assert decode(ids) == "<s>the cat sat\non the mat</s>"
    assert "".join(decode([token]) for token in ids) == decode(ids)
    assert decode([]) == ""


def test_a_word_keeps_the_space_before_it_where_a_decoder_drops_it_at_the_start(tmp_path):
    vocab = {"▁the": 0, "▁cat": 1, "s": 2}
    tokenizer = Tokenizer(models.WordLevel(vocab, unk_token="s"))
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    decode = decoder(tmp_path, [make_trace([{"prompt": [0], "output": [1, 2]}])])
    assert tokenizer.decode([1]) == "cat"
    assert decode([1]) == " cat" and decode([0, 1, 2]) == " the cats"


def test_ids_in_the_place_of_images_are_shown_as_ids(tokenizer, tmp_path):
    trace = make_trace([{"prompt": [900_000, *tokenizer.encode("a cat").ids], "output": [5, 6]}])
    decode = decoder(tmp_path / "model" / "tokenizer.json", [trace])
    assert decode([900_000, *tokenizer.encode("a cat").ids]) == "<900000><s>a cat"


def test_a_tokenizer_of_another_model_is_refused(tokenizer, tmp_path):
    with pytest.raises(ConfigError, match=r"does not know id 70000, which made has in an output.*name the model's own"):
        decoder(tmp_path / "model", [make_trace([{"prompt": [1], "output": [2, 70_000]}])])


def test_a_report_shows_text_in_its_trees(tokenizer, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(drafters.DRAFTERS, "naive", lambda facts: NaiveLookup())
    text = "the cat sat on the mat and\nthe dog sat on the log while "
    trace = trace_of(tokenizer, *(text * n for n in (2, 3, 4)))
    write(trace, tmp_path / "t.jsonl")
    asked = ["replay", str(tmp_path / "t.jsonl"), "--drafter", "naive", "--report", str(tmp_path / "r.html")]
    assert main([*asked, "--tokenizer", str(tmp_path / "model")]) == 0
    page = (tmp_path / "r.html").read_text()
    tree = re.search(r"<pre>(.*?)</pre>", page, re.DOTALL)[1]
    token = int(re.search(r"─ (\d+)", tree)[1])
    assert f"{token} &#39;{tokenizer.decode([token])}&#39;" in tree
    assert "sat on the" in re.search(r"Before it: <code>(.*?)</code>", page, re.DOTALL)[1]
    assert main(asked) == 0
    assert "&#39;" not in re.search(r"<pre>(.*?)</pre>", (tmp_path / "r.html").read_text(), re.DOTALL)[1]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--tokenizer", "{folder}"], "--tokenizer has no effect without --report: leave it out"),
        (["--tokenizer", "{folder}/none", "--report", "{folder}/r.html"], "none does not exist, allowed a tokenizer"),
    ],
)
def test_wrong_input_is_refused_before_anything_is_replayed(tokenizer, tmp_path, capsys, more, message):
    write(make_trace([{"prompt": [1], "output": [2, 3]}]), tmp_path / "t.jsonl")
    more = [part.format(folder=tmp_path / "model") for part in more]
    assert main(["replay", str(tmp_path / "t.jsonl"), *more]) == 2
    said = capsys.readouterr()
    assert message in said.err and said.out == ""


def test_the_importers_take_the_same_file(tokenizer, tmp_path):
    ids = load(tmp_path / "model").encode("the cat " * 20, add_special_tokens=False).ids
    assert len(ids) > 8, "its truncation must not hold"
    assert np.array_equal(ids, tokenizer.encode("the cat " * 20, add_special_tokens=False).ids)
    assert json.loads((tmp_path / "model" / "tokenizer.json").read_text())["truncation"]["max_length"] == 8
