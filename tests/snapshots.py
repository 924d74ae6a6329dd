"""Caches to save, what is drafted from them, and files as an attacker sees them: changed and sealed again.

The format of the file is known here by itself, not from the package.
"""

import hashlib

import numpy as np
import pytest

from ngramspec import SnapshotError
from ngramspec.snapshot import load, map
from tests.checks import drafts
from tests.kinds import make
from tests.strategies import VOCAB_SIZE

SAVED = ("rolling-hash", "ngramspec")

HEAD = 512  # bytes
CHECKSUM = slice(32, 64)


def sealed(data):
    """The bytes of a file with the checksum that belongs to them."""
    blank = bytearray(data)
    blank[CHECKSUM] = bytes(32)
    blank[CHECKSUM] = hashlib.blake2b(bytes(blank), digest_size=32).digest()
    return bytes(blank)


def with_words(data, changes):
    """The bytes of a file with some int64 words of its first headers set, sealed again."""
    words = np.frombuffer(bytearray(data), np.int64)
    for word, value in changes.items():
        words[word] = value
    return sealed(words.tobytes())


def feed(cache, seed, n_requests=4, *, prefix="old", finish=True, private=True):
    """Requests with repeating text, one after the other: two tenants, sessions, and every way of sharing."""
    rng = np.random.default_rng(seed)
    for i in range(n_requests):
        request_id = f"{prefix}{i}"
        prompt, output = rng.integers(0, VOCAB_SIZE - 1, (2, 40))
        cache.begin(
            request_id,
            prompt[: int(rng.integers(1, 40))],
            tenant=(None, "x")[i % 2],
            session=(None, None, "s")[i % 3],
            share=("outputs", "all", "outputs", "none" if private else "outputs")[i % 4],
        )
        for step in output.reshape(-1, 4):
            cache.draft(request_id, max_draft=5)
            cache.accept(request_id, [*step, *step])
        if finish:
            cache.finish(request_id)


def trained(name, private=True, **changed):
    cache = make(name, **changed)
    feed(cache, 1, private=private)
    return cache


def shared_drafts(cache, seed, n_steps=6):
    """Drafts of new requests of both tenants while they learn; they end behind it."""
    rng = np.random.default_rng(seed)
    slots = [cache.begin(f"new{i}", rng.integers(0, 7, 12), tenant=(None, "x")[i % 2]) for i in range(4)]
    found = []
    for _ in range(n_steps):
        found += [
            (row.tokens.tolist(), row.parents.tolist(), row.probs.tolist(), row.sources.tolist(), row.reason)
            for row in drafts(cache, slots)
        ]
        for i in range(4):
            cache.accept(f"new{i}", rng.integers(0, 7, 3))
    for i in range(4):
        cache.finish(f"new{i}")
    return found


def mapped(cache, path, **settings):
    """A cache of the same kind and configuration over the file's pages."""
    settings["engine"] = getattr(cache, "engine", None)
    return map(type(cache), getattr(cache, "config", None), path, **settings)


def refused(cache, path, text="", **settings):
    """Loading is refused for the reason given, names the file, and changes nothing; so is mapping."""
    before = cache.digest()
    for way in (load, mapped) if cache.stats()["running_requests"] == 0 else (load,):
        with pytest.raises(SnapshotError) as error:
            way(cache, path, **settings)
        assert text in str(error.value)
        assert str(error.value).startswith(f"{path}: ")
    assert cache.digest() == before
