"""`ngramspec corpus`: frozen corpora out of text, ids and traces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from ..caches.base import Int32
from ..caches.frozen import FrozenCorpus
from ..errors import ConfigError, SnapshotError
from ..replay.documents import KINDS, Reading, files, kind_of, n_ids, n_steps
from ..replay.files import told
from ..replay.results import write_json
from ..replay.tokenizer import content, load
from .files import writable
from .output import number, progress, stdout
from .snapshot import File, Json, read, show
from .trace import SkipBad

TokenizerPath = Annotated[Path | None, typer.Option(metavar="PATH", help="tokenizer.json or its folder.")]


def build(
    sources: Annotated[list[Path], typer.Argument(metavar="SOURCE...", help="Files, and folders of files.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Corpus to write or replace.")],
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="|".join(KINDS), help="What the files hold. Default: by their names."),
    ] = None,
    tokenizer: TokenizerPath = None,
    vocab_size: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="The drafter's. Default: all ids of --tokenizer.")
    ] = None,
    prompts: Annotated[
        bool, typer.Option("--prompts", help="Of traces, prompts too, each ahead of its output.")
    ] = False,
    glob: Annotated[str | None, typer.Option(metavar="PATTERN", help="Files of folders, such as '*.md'.")] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Default: the output's, without its ending.")] = None,
    orders: Annotated[
        str, typer.Option(metavar="K,...", help="Context lengths that can be found, the drafter's own.")
    ] = "1,2,4,8",
    max_match: Annotated[
        int, typer.Option(metavar="N", help="Tokens of context compared, at least the drafter's.")
    ] = 32,
    skip_bad: SkipBad = False,
) -> None:
    """Make a corpus that drafts may copy from: documentation, a code base, last week's answers.

    A text file is a document, and so is each line of a .jsonl of {"text": ...} with --from text. Ids: .npy, or a line a
    document, a JSON list or numbers between spaces. A trace: each output. The last document counts as the newest.
    """
    found = files(sources, "*" if glob is None else glob)
    kinds = [_kind(path, from_) for path in found]
    for option, given, used in (
        ("--prompts", prompts, "trace" in kinds),
        ("--skip-bad", skip_bad, "trace" in kinds),
        ("--glob", glob is not None, any(source.is_dir() for source in sources)),
    ):
        if given and not used:
            raise ConfigError(f"{option} has no effect on these files: leave it out")
    writable(output, reads=found)
    mark = None if tokenizer is None else content(tokenizer)
    model = None if tokenizer is None or mark is None else load(tokenizer, mark)
    if vocab_size is None:
        if model is None and "text" in kinds:
            raise ConfigError(f"--tokenizer: {found[kinds.index('text')]} is text; give the model's tokenizer.json")
        if model is None:
            raise ConfigError("--vocab-size: needed without --tokenizer, the drafter's own")
        vocab_size = n_ids(model)
    reading = Reading(model, vocab_size, prompts, skip_bad)
    with progress() as bar:
        documents = list(_documents(reading, found, kinds, bar))
    corpus = FrozenCorpus.build(
        output.stem if name is None else name,
        documents,
        vocab_size=vocab_size,
        orders=_orders(orders),
        max_match=max_match,
    )
    with told(output):
        corpus.save(output, tokenizer=mark)
    console, size = stdout(), corpus.stats()
    console.print(
        f"{output}: {number(size['documents'])} documents, {number(size['tokens'])} tokens, "
        f"{number(corpus.nbytes)} bytes",
        soft_wrap=True,
    )
    n_placeholders = sum(int(((text < 0) | (text >= vocab_size)).sum()) for text in documents)
    if n_placeholders:
        console.print(f"note: {number(n_placeholders)} ids are not of the vocabulary, and are never drafted")
    named = "" if tokenizer is None else ", tokenizer=the bytes of that tokenizer.json"
    console.print(
        f"for drafters with vocab_size={vocab_size} and orders={','.join(map(str, corpus.orders))}: "
        f"Drafter.add_corpus(FrozenCorpus.load({str(output)!r}{named}))",
        soft_wrap=True,
        markup=False,
    )


def info(file: File, tokenizer: TokenizerPath = None, json: Json = None) -> None:
    """Say what a corpus holds; with its --tokenizer, also how many documents, every number in it checked."""
    writable(json, reads=[file])
    facts = read(file)
    if facts["kind"] != "frozen":
        raise SnapshotError(f"{file}: is the shared state of {facts['kind']!r}: see ngramspec snapshot inspect {file}")
    if tokenizer is not None or facts["tokenizer"] is None:
        mark = None if tokenizer is None else content(tokenizer)
        facts["documents"] = FrozenCorpus.load(file, tokenizer=mark).n_documents
    show(facts, "checksum verified")
    if json is not None:
        write_json({"schema": "ngramspec.snapshot-facts/1", "facts": facts}, json)


def _documents(
    reading: Reading, found: list[Path], kinds: list[str], bar: Callable[[str, int], Callable[[int], None]]
) -> Iterator[Int32]:
    steps, done = [n_steps(path, kind) for path, kind in zip(found, kinds, strict=True)], 0
    advance = bar("read", sum(steps))
    for path, kind, n in zip(found, kinds, steps, strict=True):
        for i, document in enumerate(reading.of(path, kind)):
            yield document
            advance(done + min(i, n - 1))
        done += n
        advance(done)


def _kind(path: Path, told: str | None) -> str:
    if told is not None and told not in KINDS:
        raise ConfigError(f"--from: got {told!r}, allowed {', '.join(KINDS)}")
    return told or kind_of(path)


def _orders(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(f"--orders: got {text!r}, allowed context lengths, ascending, such as 1,2,4,8") from None
