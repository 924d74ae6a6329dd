"""Documents for frozen corpora: token ids out of text, files of ids, and recorded traces."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError, TraceError
from .formats import read

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Int32 = NDArray[np.int32]

#: What a file may hold.
KINDS = ("text", "ids", "trace")

#: Texts handed to the tokenizer at a time, which it spreads over the cores.
BATCH = 64

_TRACES = (".jsonl", ".jsonl.gz", ".npz", ".parquet")


@dataclass(frozen=True)
class Reading:
    """How files become documents.

    Attributes
    ----------
    tokenizer : Tokenizer, optional
        For text.
    vocab_size : int
        Ids of text and of files of ids are below it; a trace may hold others, in the place of images.
    prompts : bool
        Whether the documents of a trace are prompts and outputs, or outputs alone.
    skip_bad : bool
        Leave bad rows of traces out instead of raising at the first.
    """

    tokenizer: Tokenizer | None
    vocab_size: int
    prompts: bool = False
    skip_bad: bool = False

    def of(self, path: Path, kind: str) -> Iterator[Int32]:
        """Documents of one file of this kind, int32[n] each; raises `TraceError`, or `ConfigError` for a setting."""
        if kind == "trace":
            return _recorded(path, self.prompts, self.skip_bad)
        if kind == "ids":
            return _within(_ids(path), self.vocab_size, path)
        if self.tokenizer is None:
            raise ConfigError(f"--tokenizer: {path} is text; give the model's tokenizer.json, or --from ids or trace")
        return _within(_tokenised(self.tokenizer, _texts(path)), self.vocab_size, path)


def n_ids(tokenizer: Tokenizer) -> int:
    """Ids that a tokenizer can give: the highest and one."""
    return 1 + max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)


def kind_of(path: Path) -> str:
    """What a file holds, by its name: `.npy` ids; `.jsonl`, `.jsonl.gz`, `.npz` and `.parquet` a trace; others text."""
    if path.name.endswith(".npy"):
        return "ids"
    return "trace" if path.name.endswith(_TRACES) else "text"


def files(sources: Iterable[Path], pattern: str) -> list[Path]:
    """Files in the order given, folders replaced by what is in them and matches, sorted by path.

    Parameters
    ----------
    sources : iterable of Path
        Files and folders.
    pattern : str
        For folders, such as `"*.py"`; hidden files and folders are passed over.

    Raises
    ------
    TraceError
        Something is not there, or a folder has no such file.
    ConfigError
        `pattern` is none.
    """
    found: list[Path] = []
    for source in sources:
        if not os.path.exists(source):
            raise TraceError(f"{source}: does not exist; name a file or a folder")
        inside = [source]
        if source.is_dir():
            try:
                below = list(source.rglob(pattern))
            except (NotImplementedError, ValueError):
                raise ConfigError(f"--glob: got {pattern!r}, allowed names below a folder, such as '*.md'") from None
            inside = sorted(p for p in below if os.path.isfile(p) and not _hidden(p.relative_to(source)))
        if not inside:
            raise TraceError(f"{source}: has no file that matches {pattern!r}; name another folder or --glob")
        found += inside
    return found


def n_steps(path: Path, kind: str) -> int:
    """How far there is to go through a file: its lines where each is a document, or 1; raises `TraceError`."""
    whole = kind == "trace" or path.suffix == ".npy" or (kind == "text" and path.suffix != ".jsonl")
    if whole or not os.path.isfile(path):  # a pipe can be read once
        return 1
    try:
        with path.open("rb") as file:
            return sum(1 for _ in file) or 1
    except OSError as error:
        raise _unreadable(path, error) from None


def _texts(path: Path) -> Iterator[str]:
    """The texts of a file: itself, or the `text` of each line of a `.jsonl`; raises `TraceError`."""
    if path.suffix != ".jsonl":
        yield "".join(_lines(path))
        return
    for where, value in _json_lines(path):
        text = value.get("text") if isinstance(value, dict) else value
        if not isinstance(text, str):
            raise TraceError(f'{where}: got {_short(value)}, allowed a JSON string or an object with "text"')
        if half := HALF.search(text):
            raise TraceError(f"{where}: got half a character, {half[0]!r}, allowed Unicode text; mend or drop the line")
        yield text


def _tokenised(tokenizer: Tokenizer, pieces: Iterable[str]) -> Iterator[Int32]:
    """Token ids of each text, without the special tokens that a tokenizer puts around one."""
    waiting = iter(pieces)
    while some := list(islice(waiting, BATCH)):
        for encoding in tokenizer.encode_batch(some, add_special_tokens=False):
            yield np.array(encoding.ids, np.int32)


def _ids(path: Path) -> Iterator[Int32]:
    """Documents of `.npy`, one or one a row, or of lines, each a JSON list or numbers between spaces."""
    if path.suffix == ".npy":
        yield from _npy(path)
        return
    for number, line in enumerate(_lines(path), 1):
        if line.strip():
            yield _id_line(f"{path}, line {number}", line)


def _recorded(path: Path, prompts: bool, skip_bad: bool) -> Iterator[Int32]:
    """Outputs of a trace, each behind its prompt with `prompts`."""
    trace = read(path, skip_bad=skip_bad)
    for row in range(len(trace)):
        yield np.concatenate([trace.prompt[row], trace.output[row]]) if prompts else trace.output[row]


def _within(documents: Iterable[Int32], vocab_size: int, path: Path) -> Iterator[Int32]:
    """The same documents; raises `ConfigError` at an id that the vocabulary has not."""
    for i, document in enumerate(documents):
        highest = int(document.max(initial=-1))
        if highest >= vocab_size:
            raise ConfigError(
                f"--vocab-size: got {vocab_size}, but document {i + 1} of {path} has id {highest}; "
                f"allowed from {highest + 1}, and the drafter's own"
            )
        yield document


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


#: Half a character of Unicode: what no UTF-8 holds, and no tokenizer takes.
HALF = re.compile("[\ud800-\udfff]")


def _lines(path: Path) -> Iterator[str]:
    """Lines of a file in UTF-8; raises `TraceError` that names the first that is not."""
    try:
        # Bytes that are no text become half characters, which tells their line.
        with path.open(encoding="utf-8-sig", errors="surrogateescape") as file:
            for number, line in enumerate(file, 1):
                if half := HALF.search(line):
                    raise TraceError(
                        f"{path}, line {number}: is not UTF-8 text, got byte {ord(half[0]) - 0xDC00:#x}; mend or leave "
                        "it out, see --glob"
                    )
                yield line
    except OSError as error:
        raise _unreadable(path, error) from None


def _json_lines(path: Path) -> Iterator[tuple[str, Any]]:
    for number, line in enumerate(_lines(path), 1):
        if line.strip():
            yield f"{path}, line {number}", _json(f"{path}, line {number}", line)


def _json(where: str, line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{where}: not JSON ({error}): got {_short(line)}") from None


#: An id as text: longer ones fit no 32 bits, and Python refuses to read very long ones.
NUMBER = re.compile(r"-?[0-9]{1,20}")


def _id_line(where: str, line: str) -> Int32:
    if line.lstrip().startswith("["):
        values = _json(where, line)
    else:
        values = [int(part) if NUMBER.fullmatch(part) else part for part in line.split()]
    return _checked(where, values)


def _npy(path: Path) -> Iterator[Int32]:
    try:
        array = np.load(path, allow_pickle=False)
    except OSError as error:
        raise _unreadable(path, error) from None
    except (ValueError, EOFError, MemoryError):
        raise TraceError(f"{path}: cannot be read: no array of numbers; check the file") from None
    if not isinstance(array, np.ndarray) or array.ndim not in (1, 2):
        raise TraceError(f"{path}: allowed one row of ids or a table with a document a row, got another kind of array")
    yield from (_checked(str(path), row) for row in np.atleast_2d(array))


def _checked(where: str, values: Any) -> Int32:
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.zeros(0, np.object_)
    if array.size == 0 and array.dtype != np.object_:
        return np.zeros(0, np.int32)
    if array.ndim != 1 or array.dtype.kind not in "iu" or not -(2**31) <= int(array.min()) <= int(array.max()) < 2**31:
        raise TraceError(f"{where}: got {_short(values)}, allowed token ids, integers below 2**31")
    return array.astype(np.int32)


def _unreadable(path: Path, error: OSError) -> TraceError:
    return TraceError(f"{path}: cannot be read: {error.strerror or error}; check the file")


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return repr(text[:40].strip())
