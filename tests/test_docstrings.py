"""Docstrings name exactly the parameters there are, and public things have docstrings."""

import pytest

from tests.docstrings import NEEDS_SECTION, definitions, section
from tests.sources import modules

#: Help texts of commands are written for the terminal; kernels describe their views in prose.
WITHOUT_SECTIONS = ("ngramspec.cli", "ngramspec.kernels")

#: Its methods are documented once; classes that keep the protocol may leave their own docstrings out.
PROTOCOL_MODULE = "ngramspec.caches.base"


def everything():
    return [(module, item) for module, path in modules().items() for item in definitions(path.read_text())]


def inherited():
    """Documented parameters of the protocol's methods, by method name."""
    base = definitions(modules()[PROTOCOL_MODULE].read_text())
    return {item.name.split(".")[-1]: item for item in base if item.name.startswith("Cache.")}


def test_parameter_sections_equal_signatures():
    wrong = [
        f"{module}.{item.name}: documents {item.documented}, takes {item.parameters}"
        for module, item in everything()
        if item.documented is not None and item.documented != item.parameters
    ]
    assert wrong == []


def test_functions_with_many_parameters_document_them():
    protocol = inherited()
    missing = []
    for module, item in everything():
        above = protocol.get(item.name.split(".")[-1]) if "." in item.name else None
        if not item.public or module.startswith(WITHOUT_SECTIONS) or len(item.parameters) < NEEDS_SECTION:
            continue
        if item.documented is None and (above is None or above.parameters != item.parameters):
            missing.append(f"{module}.{item.name}: {item.parameters}")
    assert missing == []


def test_public_methods_have_docstrings():
    protocol = inherited()
    missing = [
        f"{module}.{item.name}"
        for module, item in everything()
        if item.public and not item.docstring and item.name.split(".")[-1] not in protocol
    ]
    assert missing == []


def test_the_check_sees_the_protocol():
    begin = inherited()["begin"]
    assert begin.parameters[:2] == ["request_id", "prompt"]
    assert begin.documented == begin.parameters


@pytest.mark.parametrize(
    ("source", "parameters", "documented"),
    [
        ("def f(a, b=1, *c, d, **e): ...", ["a", "b", "*c", "d", "**e"], None),
        ("class A:\n def f(self, a): ...", ["a"], None),
        ("class A:\n @staticmethod\n def f(a): ...", ["a"], None),
        ("class A:\n def __init__(self, a): ...", ["a"], None),
        (
            "@dataclass(frozen=True)\nclass A:\n a: int\n b: ClassVar[int]\n c: int = field(init=False)",
            ["a"],
            None,
        ),
        (
            'def f(a, b):\n    """Do.\n\n    Parameters\n    ----------\n    a, b : int\n        Two.\n\n'
            '    Returns\n    -------\n    int\n    """',
            ["a", "b"],
            ["a", "b"],
        ),
        (
            '@dataclass\nclass A:\n    """Hold.\n\n    Attributes\n    ----------\n    a : int\n    """\n    a: int',
            ["a"],
            ["a"],
        ),
        ("@dataclass\nclass A:\n a: int  #: one\n b: int", ["a", "b"], ["a"]),
        ("@dataclass\nclass Base:\n pass\n@dataclass\nclass A(Base):\n b: int", ["b"], None),
    ],
)
def test_definitions_are_read(source, parameters, documented):
    item = next(i for i in definitions(source) if i.parameters)
    assert item.parameters == parameters
    assert item.documented == documented


def test_a_section_ends_where_the_next_begins():
    text = "Do.\n\nParameters\n----------\nx : int\n    It.\nRaises\n------\nConfigError\n    Never."
    assert section(text, "Parameters") == ["x"]
    assert section(text, "Raises") == ["ConfigError"]
    assert section(text, "Returns") is None


def test_a_dataclass_takes_the_fields_of_its_bases():
    source = "@dataclass\nclass A:\n a: int\n@dataclass\nclass B(A):\n b: int"
    assert [item.parameters for item in definitions(source)] == [["a"], ["a", "b"]]
