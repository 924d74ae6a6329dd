"""What holds for every test: deterministic Hypothesis profiles, and examples that do not depend on the order."""

import contextlib
import importlib
import importlib.util
import os
import pkgutil

from hypothesis import HealthCheck, settings

# tests/sglang runs where sglang is installed (`make test-sglang`).
collect_ignore = [] if importlib.util.find_spec("sglang") else ["sglang"]

# The first example compiles kernels, so that time limits on examples say nothing about the code.
_common = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "print_blob": True}
settings.register_profile("ci", derandomize=True, max_examples=100, **_common)
settings.register_profile("jit_off", derandomize=True, max_examples=20, **_common)
settings.register_profile("dev", max_examples=1000, **_common)
_without_jit = os.environ.get("NUMBA_DISABLE_JIT", "0") != "0"
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "jit_off" if _without_jit else "ci"))


def pytest_collection_finish():
    """Import the whole package: Hypothesis draws from the constants of all modules loaded so far.

    Without this the examples would depend on which tests ran before in the same process.
    """
    import ngramspec

    for module in pkgutil.walk_packages(ngramspec.__path__, "ngramspec."):
        with contextlib.suppress(ImportError):  # needs an extra that is not installed
            importlib.import_module(module.name)
