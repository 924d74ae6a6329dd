"""What holds for every test: a compile cache that fits the sources, and deterministic Hypothesis profiles."""

import importlib.util
import os

from hypothesis import HealthCheck, settings

from tests.numba_cache import folder

# numba reads this once, when the package first imports it: nothing above may import ngramspec.
os.environ["NUMBA_CACHE_DIR"] = str(folder())

# tests/sglang runs where sglang is installed (`make test-sglang`).
collect_ignore = [] if importlib.util.find_spec("sglang") else ["sglang"]

# The first example compiles kernels, so that time limits on examples say nothing about the code.
_common = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}
settings.register_profile("ci", derandomize=True, max_examples=100, **_common)
settings.register_profile("jit_off", derandomize=True, max_examples=20, **_common)
settings.register_profile("dev", max_examples=1000, **_common)
_without_jit = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "jit_off" if _without_jit else "ci"))
