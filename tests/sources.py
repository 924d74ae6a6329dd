"""The project's own source files and the import graph of the package, for tests about the code itself."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "ngramspec"
FOLDERS = ("ngramspec", "native", "benchmarks", "tests")
SUFFIXES = {".py", ".c", ".h", ".cmake"}


def source_files() -> list[Path]:
    """Every source file written by hand."""
    found = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES]
    return sorted(path for path in found if "build" not in path.relative_to(ROOT).parts)


def modules(package: Path = PACKAGE) -> dict[str, Path]:
    """Dotted name and file of every module of the package."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path) -> Iterator[str]:
    """Dotted names that a module imports anywhere, relative ones resolved; type-checking imports count too.

    `from a.b import c` yields `a.b.c`, whether c is a module or a name in one.
    """
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text(), filename=str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = base + (node.module.split(".") if node.module else [])
            yield from (".".join([*base, alias.name]) for alias in node.names)
