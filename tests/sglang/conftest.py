"""Engines run two at a time; warnings of torch and SGLang, which speak at import, are theirs."""

from concurrent.futures import ThreadPoolExecutor

import pytest


def pytest_configure(config):
    """Here, unlike in the rest of the suite, a warning is no error."""
    config.addinivalue_line("filterwarnings", "default")


@pytest.fixture(scope="session")
def pool():
    """Where engines wait for their turn: an engine fills one core and takes 2 GB."""
    with ThreadPoolExecutor(2) as made:
        yield made
        made.shutdown(cancel_futures=True)
