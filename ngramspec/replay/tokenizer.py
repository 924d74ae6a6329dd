"""A local tokenizer: reading its file, and turning recorded ids back into text. Nothing is ever downloaded."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..errors import ConfigError
from .trace import Trace

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def content(path: Path) -> bytes:
    """The bytes of a `tokenizer.json`, or of the one in a folder, which tell it apart; raises `ConfigError`."""
    file = path / "tokenizer.json" if os.path.isdir(path) else path
    try:
        return file.read_bytes()
    except FileNotFoundError:
        why = "does not exist"
    except OSError as error:
        why = f"cannot be read ({error.strerror})"
    raise ConfigError(f"--tokenizer: {file} {why}, allowed a tokenizer.json or a folder that has one")


def load(path: Path, written: bytes | None = None) -> Tokenizer:
    """A tokenizer from its file.

    Parameters
    ----------
    path : Path
        `tokenizer.json` or a folder that has one.
    written : bytes, optional
        Its `content`, where that was read already: a pipe gives it once.

    Raises
    ------
    ConfigError
        The file is missing or not what it should be.
    """
    written = content(path) if written is None else written
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_buffer(written.removeprefix(codecs.BOM_UTF8))
    except Exception as error:  # the package raises plain Exception
        raise ConfigError(f"--tokenizer: {path} is not a tokenizer.json: {error}") from None
    # Some files ask for cutting at a length, which would cut prompts without a word.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


def decoder(path: Path, traces: Sequence[Trace]) -> Callable[[list[int]], str]:
    """What turns token ids of these traces into text, special tokens included.

    Ids that the tokenizer does not know stand as `<id>`: engines put such ids in the place of images.

    Parameters
    ----------
    path : Path
        `tokenizer.json` or a folder that has one.
    traces : sequence of Trace
        Whose ids will be shown.

    Returns
    -------
    callable
        From a list of ids to their text as it stands within other text: a leading space is kept.

    Raises
    ------
    ConfigError
        The file is no tokenizer, or an output holds an id that the tokenizer does not know: then it is another
        model's, and its text would mislead.
    """
    tokenizer = load(path)
    known = np.array(sorted(tokenizer.get_vocab(with_added_tokens=True).values()))
    for trace in traces:
        unknown = np.setdiff1d(trace.output.tokens, known)
        if len(unknown):
            raise ConfigError(
                f"--tokenizer: {path} does not know id {unknown[0]}, which {trace.name} has in an output, so it is not "
                "the tokenizer of that model; name the model's own"
            )
    strange = set(np.unique(np.concatenate([trace.prompt.tokens for trace in traces])).tolist()) - set(known.tolist())

    def text(ids: list[int]) -> str:
        """Some tokenizers drop a space at the start of a text; behind another copy of the same ids it stays."""
        once = str(tokenizer.decode(ids, skip_special_tokens=False))
        twice = str(tokenizer.decode(ids + ids, skip_special_tokens=False))
        return twice[len(once) :] if twice.startswith(once) else once

    def decode(ids: list[int]) -> str:
        parts: list[list[int]] = [[]]
        for token in ids:
            if token in strange:
                parts += [[token], []]
            else:
                parts[-1].append(token)
        return "".join(f"<{part[0]}>" if part and part[0] in strange else text(part) for part in parts)

    return decode
