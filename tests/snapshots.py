"""Snapshot files as an attacker sees them: bytes that may be changed and sealed again. Knows the format by itself."""

import hashlib

import numpy as np

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
