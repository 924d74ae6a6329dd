"""Snapshot files: a head, then an arena's bytes as they lie in memory. Written whole or not at all; trusted in nothing.

The head is int64[64]: magic, format and layout version, length and checksum of what follows, whose token ids these are
(tokenizer, vocabulary, ends), and what it is (kind and name). The checksum covers the head too. What it cannot cover is
a file made to deceive; `untrusted.py` looks for that.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from ..arena import (
    A_COMPONENTS,
    K_ROWS,
    LAYOUT_VERSION,
    MAX_EOS,
    MAX_ORDERS,
    S_BLOCKS,
    S_ORDER0,
    S_ORDERS,
    S_TOP,
    WORDS,
    Arena,
    Component,
    digest63,
)
from ..errors import CapacityError, ConfigError, SnapshotError
from .files import StrPath, replacing
from .mapping import private_pages

MAGIC = int.from_bytes(b"ngrmsnap", "little")
FORMAT_VERSION = 1
HEAD_NBYTES = 8 * WORDS

# Words of the head.
H_MAGIC, H_FORMAT, H_LAYOUT, H_NBYTES, H_CHECKSUM = 0, 1, 2, 3, 4  # checksum: 4 words
H_TOKENIZER, H_VOCAB, H_N_EOS = 8, 10, 11  # fingerprint: 2 words
H_NAME, H_KIND, H_EOS0 = 12, 28, 32
MAX_NAME_NBYTES, MAX_KIND_NBYTES = 8 * (H_KIND - H_NAME), 8 * (H_EOS0 - H_KIND)

_STORE_WORDS = {S_BLOCKS: "blocks of text", S_ORDERS: "number of orders", S_TOP: "max_match"}
_STORE_WORDS |= {S_ORDER0 + i: f"orders[{i}]" for i in range(MAX_ORDERS)}
#: What the words that shape a component mean to whoever chose the settings.
_LABELS = {"shared": _STORE_WORDS, "frozen": _STORE_WORDS, "counts": {K_ROWS: "counted rows"}}


@dataclass(frozen=True)
class Head:
    """What a snapshot says about itself.

    Attributes
    ----------
    kind : str
        Name of the cache whose shared state it is, or `"frozen"`.
    vocab_size : int
        Token ids are below it.
    eos_ids : tuple of int
        Ids that end a request.
    tokenizer : str, optional
        Fingerprint, 32 hex digits; None when saved without one.
    name : str
        Of a frozen corpus.
    """

    kind: str
    vocab_size: int
    eos_ids: tuple[int, ...] = ()
    tokenizer: str | None = None
    name: str = ""

    def shape_digest(self, components: Sequence[Component]) -> int:
        """63-bit digest of everything a state must share with the configuration that reads it."""
        parts = [(c.name, sorted(c.words.items()), list(c.sections)) for c in components]
        return digest63(repr((self.kind, self.vocab_size, self.eos_ids, parts)).encode())


def fingerprint(tokenizer: str | bytes | None) -> str | None:
    """Fingerprint of a tokenizer's name, or of its file's bytes: 32 hex digits, the same in every process."""
    if tokenizer is None:
        return None
    data = tokenizer.encode(errors="surrogatepass") if isinstance(tokenizer, str) else tokenizer
    if not isinstance(data, bytes) or not data:
        raise ConfigError(
            f"tokenizer: got {tokenizer!r}, allowed a name, the bytes of tokenizer.json, or None: "
            "pass what tells your tokenizers apart"
        )
    return hashlib.blake2b(data, digest_size=16).hexdigest()


@contextlib.contextmanager
def naming(path: StrPath) -> Iterator[None]:
    """What is raised about a file names it, and is a `SnapshotError` whatever part of it was wrong."""
    try:
        yield
    except (ConfigError, CapacityError, SnapshotError) as error:
        raise SnapshotError(f"{path}: {error}") from None


def check_name(name: str) -> str:
    """`name`, short enough for the head."""
    try:
        n_bytes = len(name.encode())
    except (AttributeError, UnicodeEncodeError):
        n_bytes = 0
    if not 1 <= n_bytes <= MAX_NAME_NBYTES or "\0" in name:
        raise ConfigError(f"name: got {name!r}, allowed 1 to {MAX_NAME_NBYTES} bytes of text")
    return name


def write(path: StrPath, head: Head, arena: Arena) -> None:
    """Write a snapshot in the place of `path`, as `replacing` does. Only its owner can read it: it holds users' text.

    Parameters
    ----------
    path : str or path
        File to replace; a symbolic link is followed.
    head : Head
        What it is.
    arena : Arena
        What is written after the head.

    Raises
    ------
    ConfigError
        `path` is no path.
    OSError
        The file could not be written; the old one is still there.
    """
    words = _pack(head, arena.nbytes)
    words[H_CHECKSUM : H_CHECKSUM + 4] = _checksum(words, [arena.buffer.data])
    with replacing(path, private=True) as file:
        file.write(words.data.cast("B"))
        file.write(arena.buffer.data)


def read_head(file: BinaryIO) -> NDArray[np.int64]:
    """The head's words, int64[64], of a file whose length is what they say; its checksum is not verified yet.

    Parameters
    ----------
    file : binary file
        At its start; read up to the arena.

    Raises
    ------
    SnapshotError
        It is no snapshot of this version, or shorter or longer than it was written.
    """
    words = np.zeros(WORDS, np.int64)
    size, n_read = os.fstat(file.fileno()).st_size, file.readinto(words.data.cast("B"))  # type: ignore[attr-defined]
    if n_read < 8 or words[H_MAGIC] != MAGIC:
        raise SnapshotError("does not start as a snapshot does: check the path")
    if n_read < HEAD_NBYTES:
        raise SnapshotError(f"truncated, got {n_read} bytes of a {HEAD_NBYTES}-byte head: save it again")
    for field, word, allowed in (
        ("format version", H_FORMAT, FORMAT_VERSION),
        ("layout version", H_LAYOUT, LAYOUT_VERSION),
    ):
        if words[word] != allowed:
            raise SnapshotError(
                f"{field} is {int(words[word])}, must be {allowed}: "
                "another version of ngramspec wrote it; save it again with this one"
            )
    nbytes = int(words[H_NBYTES])
    if size != HEAD_NBYTES + nbytes or nbytes % 64:
        raise SnapshotError(
            f"truncated or damaged, got {size} bytes, its head says {HEAD_NBYTES + nbytes}: save it again"
        )
    return words


def read(file: BinaryIO, *, mapped: bool = False) -> tuple[Head, NDArray[np.uint8]]:
    """Head and arena bytes of a snapshot, as they were written.

    Parameters
    ----------
    file : binary file
        At its start.
    mapped : bool
        The file's own pages in the place of a copy; see `mapping.py` for what may be mapped.

    Returns
    -------
    head : Head
        What it is.
    buffer : uint8[nbytes]
        Writable and private, aligned to 8; the file never changes.

    Raises
    ------
    SnapshotError
        It is no snapshot of this version, or not as it was written.
    OSError
        It cannot be read.
    """
    words = read_head(file)
    if mapped:
        buffer = private_pages(file)[HEAD_NBYTES:]
    else:
        buffer = np.zeros(int(words[H_NBYTES]) // 8, np.int64).view(np.uint8)
        if file.readinto(buffer.data) != len(buffer):  # type: ignore[attr-defined]
            raise SnapshotError("became shorter while it was read: save it again")
    return verify(words, [buffer.data]), buffer


def verify(words: NDArray[np.int64], pieces: Iterable[bytes | memoryview]) -> Head:
    """The head, once its checksum is that of itself and of what follows it, which is given in pieces."""
    if not np.array_equal(_checksum(words, pieces), words[H_CHECKSUM : H_CHECKSUM + 4]):
        raise SnapshotError("checksum differs, some of its bytes are not as written: save it again")
    return unpack(words)


def same_tokenizer(head: Head, allowed: str | None) -> None:
    """Raise `SnapshotError` unless the file was saved with the tokenizer of this fingerprint (or both without)."""
    if head.tokenizer != allowed:
        raise SnapshotError(
            f"tokenizer is {head.tokenizer}, must be {allowed}: "
            "its token ids mean other text; load it with the tokenizer it was saved with, named in the same way"
        )


def attach(head: Head, buffer: NDArray[np.uint8], components: Sequence[Component]) -> Arena:
    """The arena of a snapshot, refused unless it consists of exactly these components.

    Parameters
    ----------
    head : Head
        The file's.
    buffer : uint8[nbytes]
        The file's.
    components : sequence of Component
        What the reader's configuration needs.

    Raises
    ------
    SnapshotError
        Something differs.
    """
    n = len(components)
    n_found = int(buffer[: 8 * WORDS].view(np.int64)[A_COMPONENTS]) if len(buffer) >= 8 * WORDS else 0
    if n_found != n or len(buffer) < 8 * WORDS * (1 + n):
        raise SnapshotError(f"holds {n_found} components, must be {n}: it is the state of another cache")
    headers = buffer[: 8 * WORDS * (1 + n)].view(np.int64).reshape(-1, WORDS)
    for i, component in enumerate(components):
        labels = _LABELS.get(component.name, {})
        for word, allowed in component.words.items():
            got = int(headers[i + 1, word])
            if got != allowed:
                raise SnapshotError(
                    f"{component.name}: {labels.get(word, f'word {word}')} is {got}, must be {allowed}: "
                    "load it with the settings it was saved with"
                )
    return Arena(components, head.shape_digest(components), buffer)


def _checksum(words: NDArray[np.int64], pieces: Iterable[bytes | memoryview]) -> NDArray[np.int64]:
    blank = words.copy()
    blank[H_CHECKSUM : H_CHECKSUM + 4] = 0
    state = hashlib.blake2b(blank.tobytes(), digest_size=32)
    for piece in pieces:
        state.update(piece)
    return np.frombuffer(state.digest(), np.int64)


def _pack(head: Head, nbytes: int) -> NDArray[np.int64]:
    words = np.zeros(WORDS, np.int64)
    words[H_MAGIC], words[H_FORMAT], words[H_LAYOUT], words[H_NBYTES] = MAGIC, FORMAT_VERSION, LAYOUT_VERSION, nbytes
    words[H_VOCAB], words[H_N_EOS] = head.vocab_size, len(head.eos_ids)
    words[H_EOS0 : H_EOS0 + len(head.eos_ids)] = head.eos_ids
    if head.tokenizer is not None:
        words[H_TOKENIZER : H_TOKENIZER + 2] = np.frombuffer(bytes.fromhex(head.tokenizer), np.int64)
    for text, first, most in ((head.kind, H_KIND, MAX_KIND_NBYTES), (head.name, H_NAME, MAX_NAME_NBYTES)):
        words[first : first + most // 8] = np.frombuffer(text.encode().ljust(most, b"\0"), np.int64)
    return words


def unpack(words: NDArray[np.int64]) -> Head:
    """What the head's words say."""
    n_eos, vocab_size = int(words[H_N_EOS]), int(words[H_VOCAB])
    try:
        kind, name = (words[a:b].tobytes().rstrip(b"\0").decode() for a, b in ((H_KIND, H_EOS0), (H_NAME, H_KIND)))
    except UnicodeDecodeError:
        raise SnapshotError("kind or name is not text: save it again") from None
    if not 0 <= n_eos <= MAX_EOS:
        raise SnapshotError(f"number of eos_ids is {n_eos}, allowed 0 to {MAX_EOS}: save it again")
    mark = words[H_TOKENIZER : H_TOKENIZER + 2]
    tokenizer = mark.tobytes().hex() if mark.any() else None
    return Head(kind, vocab_size, tuple(words[H_EOS0 : H_EOS0 + n_eos].tolist()), tokenizer, name)
