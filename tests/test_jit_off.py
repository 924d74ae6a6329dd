"""Compiled kernels and the same kernels as plain Python do the same, byte for byte."""

import os

import pytest

from tests.kinds import KINDS
from tests.scripted import elsewhere, scripted

pytestmark = pytest.mark.jit_off


@pytest.mark.parametrize("name", KINDS)
def test_state_and_drafts_are_the_same_with_and_without_compilation(name):
    """Whichever way this process runs, another one runs the other way."""
    off = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"
    assert elsewhere(name, NUMBA_DISABLE_JIT="0" if off else "1") == scripted(name)
