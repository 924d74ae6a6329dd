"""Importing: files of any known format become one trace."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import ConfigError, TraceError
from ..rows import Row, Rows
from ..trace import Trace
from .base import Context, Importer, Record
from .encoder import Encoder
from .failure import Bad
from .registry import IMPORTERS
from .source import Source


@dataclass(frozen=True)
class Imported:
    """What came of an import.

    Attributes
    ----------
    trace : Trace
        The good rows, in the files' order.
    formats : tuple of str
        The format of each file.
    reasons : dict of int
        Records left out, by reason, the most frequent first.
    """

    trace: Trace
    formats: tuple[str, ...]
    reasons: dict[str, int]


def load(
    paths: Sequence[str | os.PathLike[str]],
    *,
    format: str | None = None,
    tokenizer: str | os.PathLike[str] | None = None,
    chat_template: str | os.PathLike[str] | None = None,
    allow_pickle: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> Imported:
    """Read traces of other formats.

    Parameters
    ----------
    paths : sequence of path
        Files, gzip-compressed or not. Those of one format are read together.
    format : str, optional
        A name in `IMPORTERS`. None: each file's first record decides.
    tokenizer : path, optional
        A local `tokenizer.json`, or a folder that has one: turns text into token ids.
    chat_template : path, optional
        A Jinja file. None: the one beside the tokenizer.
    allow_pickle : bool
        Read pickled dumps. Only the expected types are made, and none of their code is loaded.
    on_progress : callable, optional
        Called with the number of bytes read so far, of all files together.

    Returns
    -------
    Imported
        The trace, and what was left out.

    Raises
    ------
    ConfigError
        An unknown format, a tokenizer or template that cannot be read, or one that nothing needed.
    TraceError
        A file cannot be read, has no known format, is refused whole, or no row is left.
    """
    if format is not None and format not in IMPORTERS:
        raise ConfigError(f"--format: got {format!r}, allowed {', '.join(IMPORTERS)}")
    encoder = Encoder(
        None if tokenizer is None else Path(tokenizer), None if chat_template is None else Path(chat_template)
    )
    context = Context(encoder, allow_pickle)
    rows = Rows("+".join(Path(path).name for path in paths), skip_bad=True)
    reasons: Counter[str] = Counter()

    def add(record: Record, item: Row | Bad) -> None:
        if isinstance(item, Bad):
            reasons[item.kind] += 1
            rows.bad(TraceError(item.at(record.where)))
        else:
            rows.add(item)

    made: dict[str, Importer] = {}
    formats: list[str] = []
    before = 0
    for path in map(Path, paths):
        source = Source(path)
        name = format or _recognise(source)
        formats.append(name)
        importer = made.setdefault(name, IMPORTERS[name]())
        source.done = 0
        for record in importer.records(source, context):
            for item in _items(record, importer, context):
                add(record, item)
            if on_progress is not None:
                on_progress(before + source.done)
        before += source.size
    for importer in made.values():
        for record, item in importer.rest(context):
            add(record, item)
    if formats and not rows.rows and not rows.n_skipped:
        read = "; ".join(f"{name}: {IMPORTERS[name].about}" for name in dict.fromkeys(formats))
        raise TraceError(f"{rows.name}: no rows; got no whole request in {read}; check file and format")
    trace = rows.trace()
    _refuse_idle_options(context, tokenizer is not None, chat_template is not None, "sglang-dump" in formats)
    if on_progress is not None:
        on_progress(before)
    return Imported(trace, tuple(formats), dict(reasons.most_common()))


def _recognise(source: Source) -> str:
    for name, importer in IMPORTERS.items():
        if importer().matches(source):
            return name
    if source.first is None:
        raise TraceError(
            f"{source.path}: no record of any known format; allowed {_formats()}; text alone is no trace, "
            "ngramspec corpus build makes a corpus of it"
        )
    fields = ", ".join(sorted(source.fields)[:12]) or type(source.first).__name__
    raise TraceError(f"{source.path}: got records of {fields}; allowed {_formats()}; --format names one")


def _formats() -> str:
    return "; ".join(f"{name}: {importer.about}" for name, importer in IMPORTERS.items())


def _items(record: Record, importer: Importer, context: Context) -> Iterator[Row | Bad]:
    """The rows of a record, and what was bad about it, if anything."""
    if isinstance(record.value, Bad):
        yield record.value
        return
    try:
        yield from importer.rows(record, context)
    except Bad as bad:
        yield bad


def _refuse_idle_options(context: Context, tokenizer: bool, template: bool, pickled: bool) -> None:
    """An option that nothing needed was meant for another file."""
    idle = {
        "--chat-template": template and not context.encoder.used_template,
        "--tokenizer": tokenizer and not context.encoder.used,
        "--allow-pickle": context.allow_pickle and not pickled,
    }
    for option, unused in idle.items():
        if unused:
            raise ConfigError(f"{option}: has no effect on these files; leave it out")
