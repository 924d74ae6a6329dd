"""Documented parameters of a function or class, and its real ones, read from source without importing it."""

import ast
from dataclasses import dataclass

#: Functions with fewer parameters may name them in a sentence instead of a section.
NEEDS_SECTION = 4


@dataclass(frozen=True)
class Documented:
    """One function, method or class of a module."""

    name: str  # qualified within the module, such as "Cache.begin"
    parameters: list[str]  # in order, without self and cls; "*args" and "**options" keep their stars
    documented: list[str] | None  # names in the numpydoc section, or fields with a `#:` comment; None without either
    docstring: str | None

    @property
    def public(self) -> bool:
        """No part of the name starts with an underscore."""
        return not any(part.startswith("_") for part in self.name.split("."))


def section(docstring: str, *titles: str) -> list[str] | None:
    """Names listed under the first of `titles` that the docstring has; None when it has none of them.

    An entry is a line at the section's own indent; `a, b : int` lists two names.
    """
    lines = docstring.splitlines()
    for i in range(1, len(lines)):
        rule = lines[i].strip()
        if lines[i - 1].strip() not in titles or len(rule) < 3 or set(rule) != {"-"}:
            continue
        indent = len(lines[i]) - len(lines[i].lstrip())
        names: list[str] = []
        for line, below in zip(lines[i + 1 :], [*lines[i + 2 :], ""]):
            if line.strip() and len(below.strip()) > 2 and set(below.strip()) == {"-"}:
                break
            if line.strip() and len(line) - len(line.lstrip()) == indent:
                names += [name.strip() for name in line.split(" : ")[0].split(",")]
        return names
    return None


def definitions(source: str) -> list[Documented]:
    """Every function at the top of a module, every class there, and their methods.

    A dataclass takes its own fields and those of its bases in the same module.
    """
    found: list[Documented] = []
    fields: dict[str, dict[str, bool]] = {}  # of each dataclass: name -> has a `#:` comment
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(_function(node, node.name, skip=0))
        elif isinstance(node, ast.ClassDef):
            methods = [item for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
            found.append(_class(node, methods, fields, source.splitlines()))
            for method in methods:
                skip = 0 if _decorated(method, "staticmethod") else 1
                found.append(_function(method, f"{node.name}.{method.name}", skip))
    return found


def _function(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str, skip: int) -> Documented:
    text = ast.get_docstring(node, clean=False)
    return Documented(name, _parameters(node)[skip:], section(text or "", "Parameters"), text)


def _class(
    node: ast.ClassDef,
    methods: list[ast.FunctionDef | ast.AsyncFunctionDef],
    fields: dict[str, dict[str, bool]],
    lines: list[str],
) -> Documented:
    text = ast.get_docstring(node, clean=False)
    if _decorated(node, "dataclass"):
        known: dict[str, bool] = {}
        for base in node.bases:
            known |= fields.get(ast.unparse(base), {})
        for item in node.body:
            if isinstance(item, ast.AnnAssign) and _is_init_field(item):
                known[ast.unparse(item.target)] = _commented(lines[: item.lineno])
        fields[node.name] = known
        commented = [name for name in known if known[name]] or None
        return Documented(node.name, list(known), section(text or "", "Parameters", "Attributes") or commented, text)
    for method in methods:
        if method.name == "__init__":
            return Documented(node.name, _parameters(method)[1:], section(text or "", "Parameters"), text)
    return Documented(node.name, [], None, text)


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    arguments = node.args
    names = [a.arg for a in [*arguments.posonlyargs, *arguments.args]]
    names += [f"*{arguments.vararg.arg}"] if arguments.vararg else []
    names += [a.arg for a in arguments.kwonlyargs]
    return names + ([f"**{arguments.kwarg.arg}"] if arguments.kwarg else [])


def _commented(lines: list[str]) -> bool:
    return "#:" in lines[-1] or lines[-2].lstrip().startswith("#:")


def _is_init_field(item: ast.AnnAssign) -> bool:
    value = ast.unparse(item.value).replace(" ", "") if item.value else ""
    return "ClassVar" not in ast.unparse(item.annotation) and "init=False" not in value


def _decorated(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, name: str) -> bool:
    called = (d.func if isinstance(d, ast.Call) else d for d in node.decorator_list)
    return any(ast.unparse(function).split(".")[-1] == name for function in called)
