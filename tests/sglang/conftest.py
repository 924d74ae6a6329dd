"""Warnings of torch and SGLang, which speak at import, are theirs."""


def pytest_configure(config):
    """Here, unlike in the rest of the suite, a warning is no error."""
    config.addinivalue_line("filterwarnings", "default")
