"""`ngramspec corpus build|info` and `snapshot inspect`: documents as they are, files whole or not at all."""

import json
import os
import threading

import numpy as np
import pytest

from ngramspec import FrozenCorpus
from ngramspec.cli import main
from ngramspec.replay import write
from ngramspec.snapshot import save
from tests.kinds import make
from tests.made_files import make_tokenizer
from tests.naive_replay import make_trace
from tests.snapshots import trained


@pytest.fixture
def tokenizer(tmp_path):
    return make_tokenizer(tmp_path / "model")


@pytest.fixture
def folder(tmp_path):
    """Text in two folders, and files that are not asked for."""
    (tmp_path / "docs" / "sub").mkdir(parents=True)
    (tmp_path / "docs" / ".hidden").mkdir()
    for name, text in (("b.md", "the dog sat"), ("sub/a.md", "the cat"), ("c.txt", "mat"), (".hidden/d.md", "no")):
        (tmp_path / "docs" / name).write_text(text)
    return tmp_path / "docs"


def built(tmp_path, *arguments, tokenizer=None):
    """Documents of the corpus that the command makes."""
    assert main(["corpus", "build", *map(str, arguments), "-o", str(tmp_path / "out.ngs")]) == 0
    corpus = FrozenCorpus.load(tmp_path / "out.ngs", tokenizer=tokenizer)
    return corpus, [document.tolist() for document in corpus.documents()]


def test_text_of_folders_is_tokenised_file_by_file_in_order(tokenizer, folder, tmp_path, capsys):
    mark = (tmp_path / "model" / "tokenizer.json").read_bytes()
    asked = [folder, "--glob", "*.md", "--tokenizer", tmp_path / "model", "--name", "docs", "--orders", "1,3"]
    corpus, documents = built(tmp_path, *asked, "--max-match", 40, tokenizer=mark)
    expected = [tokenizer.encode(text, add_special_tokens=False).ids for text in ("the dog sat", "the cat")]
    assert documents == expected
    assert (corpus.name, corpus.orders, corpus.max_match) == ("docs", (1, 3), 40)
    assert corpus.vocab_size == 1 + max(tokenizer.get_vocab().values())
    said = capsys.readouterr().out
    assert f"2 documents, {sum(map(len, expected))} tokens, {corpus.nbytes:,} bytes" in said
    assert f"vocab_size={corpus.vocab_size} and orders=1,3" in said


def test_each_line_of_a_jsonl_of_text_is_a_document(tokenizer, tmp_path):
    path, mark = tmp_path / "t.jsonl", (tmp_path / "model" / "tokenizer.json").read_bytes()
    texts = [f"the cat {'sat ' * (n % 5)}" for n in range(150)]
    path.write_text("".join(json.dumps(text if i % 2 else {"text": text}) + "\n\n" for i, text in enumerate(texts)))
    asked = [path, "--from", "text", "--tokenizer", tmp_path / "model" / "tokenizer.json", "--vocab-size", "1000"]
    corpus, documents = built(tmp_path, *asked, tokenizer=mark)
    assert documents == [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    assert corpus.vocab_size == 1000 and corpus.name == "out"


def test_ids_come_from_lines_and_arrays(tmp_path):
    lists, numbers, one, table = (tmp_path / name for name in ("a.jsonl", "b.txt", "c.npy", "d.npy"))
    lists.write_text("[1, 2, 3]\n\n[]\n[-1, 4]\n")
    numbers.write_text("5 6\n7\n")
    np.save(one, np.array([8, 9], np.uint16))
    np.save(table, np.array([[1, 2], [3, 4]]))
    _, documents = built(tmp_path, lists, numbers, one, table, "--from", "ids", "--vocab-size", "10")
    assert documents == [[1, 2, 3], [-1, 4], [5, 6], [7], [8, 9], [1, 2], [3, 4]]
    _, documents = built(tmp_path, one, "--vocab-size", "10")
    assert documents == [[8, 9]]


def test_a_mark_of_the_order_of_bytes_is_no_text(tokenizer, tmp_path):
    bom = b"\xef\xbb\xbf"
    lists, text, model = tmp_path / "a.jsonl", tmp_path / "t.txt", tmp_path / "model" / "tokenizer.json"
    for path, content in ((lists, b"[1, 2]\n[3]\n"), (text, b"the cat"), (model, model.read_bytes())):
        path.write_bytes(bom + content)
    assert built(tmp_path, lists, "--from", "ids", "--vocab-size", "10")[1] == [[1, 2], [3]]
    _, documents = built(tmp_path, text, "--tokenizer", model, tokenizer=model.read_bytes())
    assert documents == [tokenizer.encode("the cat", add_special_tokens=False).ids]


def test_ids_may_come_from_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text("1 2\n3\n"), daemon=True)
    writer.start()
    assert built(tmp_path, pipe, "--from", "ids", "--vocab-size", "10")[1] == [[1, 2], [3]]
    writer.join(timeout=60)


def test_outputs_of_traces_come_with_their_prompts_where_they_are_asked_for(tmp_path, capsys):
    trace = make_trace([{"prompt": [1, 2], "output": [3, 4]}, {"prompt": [90_000], "output": [5]}])
    write(trace, tmp_path / "t.npz")
    asked = [tmp_path / "t.npz", "--vocab-size", "10"]
    assert built(tmp_path, *asked)[1] == [[3, 4], [5]]
    assert "note" not in capsys.readouterr().out
    assert built(tmp_path, *asked, "--prompts")[1] == [[1, 2, 3, 4], [-1, 5]]
    assert "note: 1 ids are not of the vocabulary" in capsys.readouterr().out


def test_bad_rows_of_traces_are_left_out_where_it_is_asked_for(tmp_path, capsys):
    path = tmp_path / "t.jsonl"
    write(make_trace([{"prompt": [1, 2], "output": [3, 4]}]), path)
    path.write_text(path.read_text() + "{}\n")
    assert main(["corpus", "build", str(path), "--vocab-size", "10", "-o", str(tmp_path / "o.ngs")]) == 2
    assert not (tmp_path / "o.ngs").exists()
    assert built(tmp_path, path, "--vocab-size", "10", "--skip-bad")[1] == [[3, 4]]


def test_a_corpus_made_of_text_is_drafted_from(tokenizer, tmp_path):
    (tmp_path / "a.md").write_text("the cat sat on the mat while the dog sat on the log")
    mark = (tmp_path / "model" / "tokenizer.json").read_bytes()
    corpus, [document] = built(tmp_path, tmp_path / "a.md", "--tokenizer", tmp_path / "model", tokenizer=mark)
    drafter = make("ngramspec", vocab_size=corpus.vocab_size, eos_ids=())
    drafter.add_corpus(corpus)
    drafter.begin("a", document[:8])
    assert drafter.draft("a", max_draft=3, topology="chain").tokens.tolist() == document[8:11]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{f}/none.md", "--vocab-size", "9"], "none.md: does not exist; name a file or a folder"),
        (["{f}", "--glob", "*.rs", "--vocab-size", "9"], "has no file that matches '*.rs'"),
        (["{f}/c.txt", "--vocab-size", "9"], "is text; give the model's tokenizer.json"),
        (["{f}/c.txt", "--from", "words", "--vocab-size", "9"], "--from: got 'words', allowed text, ids, trace"),
        (["{f}/ids", "--from", "ids"], "--vocab-size: needed without --tokenizer"),
        (["{f}/ids", "--from", "text"], "ids is text; give the model's tokenizer.json"),
        (["{f}/ids", "--from", "ids", "--vocab-size", "3"], "ids has id 3; allowed from 4"),
        (["{f}/ids", "--from", "ids", "--vocab-size", "9", "--orders", "1,x"], "--orders: got '1,x', allowed"),
        (["{f}/ids", "--from", "ids", "--vocab-size", "9", "--orders", "2,1"], "orders: got"),
        (["{f}/ids", "--from", "ids", "--vocab-size", "9", "--name", ""], "name: got ''"),
        (["{f}/ids", "--from", "ids", "--vocab-size", "9", "--prompts"], "--prompts has no effect"),
        (["{f}/ids", "--from", "ids", "--vocab-size", "9", "--skip-bad"], "--skip-bad has no effect"),
        (["{f}/ids", "--from", "ids", "--vocab-size", "9", "--glob", "*"], "--glob has no effect"),
        (["{f}/c.txt", "--from", "ids", "--vocab-size", "9"], "c.txt, line 1: got \"['mat']\", allowed token ids"),
        (["{f}/big", "--from", "ids", "--vocab-size", "9"], "big, line 1: got '[4294967296]', allowed token ids"),
        (["{f}/cut", "--from", "ids", "--vocab-size", "9"], "cut, line 2: not JSON"),
        (["{f}/empty", "--from", "ids", "--vocab-size", "9"], "got no token, at least one is needed"),
        (["{f}/raw", "--from", "ids", "--vocab-size", "9"], "raw, line 2: is not UTF-8 text, got byte 0xff"),
        (["{f}/raw", "--tokenizer", "{m}"], "raw, line 2: is not UTF-8 text, got byte 0xff; mend or leave it out"),
        (["{f}/raw.jsonl", "--from", "text", "--tokenizer", "{m}"], "raw.jsonl, line 2: is not UTF-8 text, got byte"),
        (["{f}/half.jsonl", "--from", "text", "--tokenizer", "{m}"], "half.jsonl, line 2: got half a character"),
        (["{f}", "--glob", "/etc/*", "--tokenizer", "{m}"], "--glob: got '/etc/*', allowed names below a folder"),
        (["{f}", "--glob", "", "--tokenizer", "{m}"], "has no file that matches ''; name another folder"),
        (["{f}", "--glob", "a**", "--tokenizer", "{m}"], "--glob: got 'a**', allowed names below a folder"),
        (["x" * 300, "--vocab-size", "9"], "xxx: does not exist; name a file or a folder"),
        (["{f}/c.txt", "--tokenizer", "x" * 300], "xxx cannot be read (File name too long), allowed a tokenizer.json"),
        (["{f}/bad.npy", "--vocab-size", "9"], "bad.npy: cannot be read: no array of numbers; check the file"),
        (["{f}/cube.npy", "--vocab-size", "9"], "cube.npy: allowed one row of ids or a table"),
        (["{f}/floats.npy", "--vocab-size", "9"], "floats.npy: got"),
        (["{f}/x.jsonl", "--from", "text", "--tokenizer", "{m}"], "x.jsonl, line 1: got '[1]', allowed a JSON string"),
        (["{f}/c.txt", "--tokenizer", "{f}"], "tokenizer.json does not exist"),
    ],
)  # fmt: skip
def test_wrong_input_is_refused_in_one_line(tokenizer, folder, tmp_path, arguments, message, capsys):
    for name, text in (
        ("ids", "1 2 3"),
        ("big", "[4294967296]"),
        ("cut", "[1]\n[2"),
        ("empty", "\n"),
        ("x.jsonl", "[1]"),
    ):
        (folder / name).write_text(text)
    (folder / "raw").write_bytes(b"1\n2\xff")
    (folder / "raw.jsonl").write_bytes(b'"a"\n"\xff"\n')
    (folder / "half.jsonl").write_text('"a"\n{"text": "\\ud800"}\n')
    (folder / "bad.npy").write_bytes(b"no array")
    np.save(folder / "cube.npy", np.zeros((2, 2, 2), np.int32))
    np.save(folder / "floats.npy", np.zeros(3))
    asked = [part.format(f=folder, m=tmp_path / "model") for part in arguments]
    assert main(["corpus", "build", *asked, "-o", str(tmp_path / "out.ngs")]) == 2
    said = capsys.readouterr()
    assert message in said.err and said.err.count("\n") == 1 and said.out == ""
    assert not (tmp_path / "out.ngs").exists()


@pytest.mark.parametrize("output", ["nowhere/o.ngs", "docs", "ids"])
def test_an_output_that_cannot_be_is_refused_before_the_work(folder, tmp_path, output, capsys):
    (tmp_path / "ids").write_text("1 2 3")
    asked = [str(tmp_path / "ids"), "--from", "ids", "--vocab-size", "9", "-o", str(tmp_path / output)]
    assert main(["corpus", "build", *asked]) == 2
    assert "choose another name" in capsys.readouterr().err
    assert (tmp_path / "ids").read_text() == "1 2 3"


def test_a_full_disk_leaves_the_old_corpus_and_says_so(tmp_path, monkeypatch, capsys):
    def fail(*unused):
        raise OSError(28, "No space left on device")

    (tmp_path / "ids").write_text("1 2 3")
    _, documents = built(tmp_path, tmp_path / "ids", "--from", "ids", "--vocab-size", "9")
    (tmp_path / "ids").write_text("4 5")
    monkeypatch.setattr("os.fsync", fail)
    asked = [str(tmp_path / "ids"), "--from", "ids", "--vocab-size", "9", "-o", str(tmp_path / "out.ngs")]
    assert main(["corpus", "build", *asked]) == 2
    assert "cannot be written: No space left on device" in capsys.readouterr().err
    assert [d.tolist() for d in FrozenCorpus.load(tmp_path / "out.ngs").documents()] == documents


def test_info_says_what_a_corpus_holds(tokenizer, folder, tmp_path, capsys):
    built_file, facts = tmp_path / "out.ngs", tmp_path / "facts.json"
    FrozenCorpus.build("c", [[1, 2, 3], [4]], vocab_size=8).save(built_file)
    assert main(["corpus", "info", str(built_file), "--json", str(facts)]) == 0
    said = capsys.readouterr().out
    assert "checksum verified" in said and "tokens 4, blocks 2, orders 1,2,4,8, max_match 32" in said
    assert json.loads(facts.read_text())["facts"]["documents"] == 2
    FrozenCorpus.build("c", [[1, 2, 3], [4]], vocab_size=8).save(built_file, tokenizer=b"x")
    assert main(["corpus", "info", str(built_file)]) == 0
    assert "documents" not in capsys.readouterr().out
    (tmp_path / "model" / "tokenizer.json").write_bytes(b'{"not": "a tokenizer"}')
    assert main(["corpus", "info", str(built_file), "--tokenizer", str(tmp_path / "model")]) == 2
    assert "its token ids mean other text" in capsys.readouterr().err
    assert main(["corpus", "info", str(built_file), "--tokenizer", str(tmp_path / "none")]) == 2
    assert "--tokenizer: " in (said := capsys.readouterr().err) and "none does not exist, allowed a" in said


def test_inspect_says_what_a_snapshot_holds(tmp_path, capsys):
    path = tmp_path / "state.ngs"
    save(trained("ngramspec"), path, tokenizer="m")
    assert main(["snapshot", "inspect", str(path), "--json", str(tmp_path / "facts.json")]) == 0
    said = capsys.readouterr().out
    assert "ngramspec" in said and "counts" in said and "checksum verified" in said and "eos ids" in said
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert facts["schema"] == "ngramspec.snapshot-facts/1" and facts["facts"]["kind"] == "ngramspec"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert main(["snapshot", "inspect", str(path)]) == 2
    assert "checksum differs" in capsys.readouterr().err
    assert main(["snapshot", "inspect", str(path), "--quick"]) == 0
    assert "checksum not verified" in capsys.readouterr().out
    assert main(["corpus", "info", str(path)]) == 2
    assert "checksum differs" in capsys.readouterr().err
    save(trained("ngramspec"), path)
    assert main(["corpus", "info", str(path)]) == 2
    assert "see ngramspec snapshot inspect" in capsys.readouterr().err
    assert main(["snapshot", "inspect", str(tmp_path / "none")]) == 2
    assert "none: cannot be read: No such file or directory" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["corpus", "corpus build", "corpus info", "snapshot", "snapshot inspect"])
def test_every_help_ends_with_an_example(command, capsys):
    assert main([*command.split(), "--help"]) == 0
    assert "Example: ngramspec" in " ".join(capsys.readouterr().out.strip().splitlines()[-2:])
