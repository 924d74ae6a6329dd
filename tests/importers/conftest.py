"""A tokenizer made on the spot, for every test of the importers."""

import pytest

from tests.made_files import (
    make_tokenizer,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a tokenizer and a chat template."""
    path = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer(path)
    return path


@pytest.fixture(scope="module")
def tokens(folder, tmp_path_factory):
    """Ids of a text, specials in it recognised, nothing added."""
    tokenizer = make_tokenizer(tmp_path_factory.mktemp("same"))
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids
