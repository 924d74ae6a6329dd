"""Compiled kernels and the same kernels as plain Python do the same, byte for byte."""

import json
import os
import subprocess
import sys

import pytest

from tests.kinds import KINDS
from tests.scripted import scripted
from tests.sources import ROOT

pytestmark = pytest.mark.jit_off


@pytest.mark.parametrize("name", KINDS)
def test_state_and_drafts_are_the_same_with_and_without_compilation(name):
    """Whichever way this process runs, another one runs the other way."""
    off = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "0" if off else "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.scripted", name],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == scripted(name)
