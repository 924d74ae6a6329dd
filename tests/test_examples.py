"""The public names, each with an example that runs: what `__all__` lists is what users may rely on."""

import doctest
import enum
import inspect

import pytest

import ngramspec
import ngramspec.replay

#: What other names' examples show: results, and the protocol that every cache keeps.
SHOWN_ELSEWHERE = {"Cache", "Counts", "Labels", "Links", "Plan", "Ragged", "Tuned", "Verified"}
SHOWN_ELSEWHERE |= {"document", "write_json"}


def public():
    """Module and name of everything that needs an example."""
    for module in (ngramspec, ngramspec.replay):
        for name in module.__all__:
            item = getattr(module, name)
            listed = inspect.isclass(item) and issubclass(item, (Exception, enum.Enum))
            if callable(item) and not listed and name not in SHOWN_ELSEWHERE:
                yield module, name


@pytest.mark.parametrize(("module", "name"), list(public()), ids=lambda value: value if isinstance(value, str) else "")
def test_the_example_prints_what_it_says(module, name):
    item = getattr(module, name)
    (found, *_) = doctest.DocTestFinder(recurse=False).find(item, name, globs={})
    assert found.examples, f"{name} needs an Examples section"
    told = []
    doctest.DocTestRunner().run(found, out=told.append)
    assert not told, "".join(told)
