"""The compiled core for tests: built once; where there is no compiler, tests are passed over, but never with CI set."""

import os
import shutil

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
        missing(str(error))
    return library()


def needed(program):
    """A program's name; skips the test where it is not installed."""
    if shutil.which(program) is None:
        missing(f"no {program} here")
    return program


def missing(message):
    """Pass a test over for want of a tool; with CI set, where every tool is installed, fail it."""
    pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
