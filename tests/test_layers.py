"""Imports point one way, and each third-party package has its one place."""

import sys
from graphlib import TopologicalSorter

import pytest

from tests.sources import PACKAGE, imports, modules

#: Lowest first. A module may import from its own layer and from those below.
LAYERS = (
    ("errors", "_jit"),
    ("config", "arena", "draft"),
    ("kernels", "native"),
    ("caches",),
    ("snapshot",),
    ("drafting", "baselines"),
    ("",),  # the package itself: public names of the layers below
    ("replay", "engines"),
    ("cli",),
    ("__main__",),
)

#: Third-party packages (numpy goes anywhere) and the modules that may import them.
PLACES = {
    "numba": ("ngramspec._jit",),
    "llvmlite": ("ngramspec._jit",),
    "sglang": ("ngramspec.engines.sglang",),
    "torch": ("ngramspec.engines.sglang",),
    "prometheus_client": ("ngramspec.engines.sglang",),
    "typer": ("ngramspec.cli",),
    "rich": ("ngramspec.cli",),
    "plotly": ("ngramspec.replay.report",),
    "optuna": ("ngramspec.replay.tune",),
    "ray": ("ngramspec.replay.tune",),
    "msgspec": ("ngramspec.replay",),
    "pyarrow": ("ngramspec.replay",),
    "tokenizers": ("ngramspec.replay",),
    "jinja2": ("ngramspec.replay",),
}


def layer(module):
    """Place of a module in LAYERS; None when its first folder or file has none."""
    part = module.split(".")[1] if "." in module else ""
    return next((level for level, parts in enumerate(LAYERS) if part in parts), None)


def target(imported, known):
    """The module that `from imported` reads: the longest prefix that is one of ours."""
    while imported not in known:
        imported = imported.rpartition(".")[0]
    return imported


def own_imports(known):
    """Map every module to the modules of ours it imports."""
    graph = {}
    for name, path in known.items():
        ours = {target(i, known) for i in imports(name, path) if i.split(".")[0] == "ngramspec"}
        graph[name] = ours - {name}
    return graph


def test_every_module_has_a_layer():
    assert [name for name in modules() if layer(name) is None] == []


def test_imports_point_downward():
    graph = own_imports(modules())
    upward = [f"{name} -> {other}" for name in graph for other in graph[name] if layer(other) > layer(name)]
    assert upward == []


def test_no_import_cycles():
    # A package's __init__ gathers names from its modules; they may import each other, but not the package.
    TopologicalSorter(own_imports(modules())).prepare()


def test_kernels_import_constants_and_each_other_only():
    allowed = {"_jit", "arena", "draft", "kernels"}
    graph = own_imports(modules())
    kernels = [name for name in graph if name.startswith("ngramspec.kernels.")]
    assert kernels != []
    wrong = [(name, other) for name in kernels for other in graph[name] if other.split(".")[1] not in allowed]
    assert wrong == []


def test_third_party_packages_stay_in_their_place():
    wrong = []
    for name, path in modules().items():
        for imported in imports(name, path):
            top = imported.split(".")[0]
            if top in sys.stdlib_module_names or top in ("numpy", "ngramspec"):
                continue
            if not any(name == place or name.startswith(f"{place}.") for place in PLACES.get(top, ())):
                wrong.append(f"{name} -> {top}")
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import os.path", ["os.path"]),
        ("from ..draft import Draft, Reason", ["ngramspec.draft.Draft", "ngramspec.draft.Reason"]),
        ("from . import null", ["ngramspec.caches.null"]),
        ("def f():\n    from numba import njit", ["numba.njit"]),
    ],
)
def test_imports_are_found_and_resolved(tmp_path, text, expected):
    path = tmp_path / "one.py"
    path.write_text(text)
    assert list(imports("ngramspec.caches.one", path)) == expected


def test_target_of_a_name_is_its_module():
    known = modules()
    assert target("ngramspec.errors.ConfigError", known) == "ngramspec.errors"
    assert known["ngramspec.errors"] == PACKAGE / "errors.py"
