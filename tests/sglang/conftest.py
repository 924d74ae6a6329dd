"""Engines run beside each other, one a model; warnings of torch and SGLang, which speak at import, are theirs."""

import pytest


def pytest_configure(config):
    """Here, unlike in the rest of the suite, a warning is no error."""
    config.addinivalue_line("filterwarnings", "default")


@pytest.fixture(scope="session")
def runs(request, tmp_path_factory):
    """Of every module that has variants of a model: those, all begun at once, as an engine fills one core."""
    from tests.sglang.served import Runs

    modules = {item.module for item in request.session.items if hasattr(item.module, "VARIANTS")}
    begun = {
        module: Runs(tmp_path_factory.mktemp(module.__name__.rpartition(".")[2]), module.VARIANTS, module.make)
        for module in sorted(modules, key=lambda module: module.__name__)
    }
    yield begun
    for module_runs in begun.values():
        module_runs.pool.shutdown(cancel_futures=True)


@pytest.fixture(scope="module")
def served(request, runs):
    """Every variant of this module, served once."""
    return runs[request.module]
