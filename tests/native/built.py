"""The compiled core for tests: built once; where there is no compiler, tests are passed over, but never with CI set."""

import os

import pytest

from ngramspec.errors import NativeError
from ngramspec.native.build import build
from ngramspec.native.library import library

#: Caches that the C core has.
NATIVE = ("rolling-hash", "ngramspec", "suffix-trie")


def built():
    """The library; skips the test where it cannot be had."""
    try:
        build()
    except NativeError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    return library()
