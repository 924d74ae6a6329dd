"""`ngramspec native`: compile the C core, and say what there is of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from ..drafting.prior import prior as shipped
from ..errors import NativeError
from ..native import VARIABLE, choose
from ..native.build import build as compile_core
from ..native.build import compiler, sources, target
from ..native.library import library
from ..replay.files import replacing
from .output import stdout


def build() -> None:
    """Compile the C core into the user's cache folder, unless it is there; `NGRAMSPEC_ENGINE=native` then uses it."""
    path = compile_core()
    library()
    stdout().print(f"{path}", soft_wrap=True)


def info() -> None:
    """Say which engine runs, where the C sources are, which compiler would compile them, and whether that was done."""
    lines = [("engine", f"{choose(None)} ({VARIABLE})"), ("sources", str(sources()))]
    try:
        lines.append(("compiler", " ".join(compiler())))
    except NativeError as error:
        lines.append(("compiler", str(error)))
    lines.append(("core", str(target())))
    try:
        lines.append(("built", f"yes, interface version {library().ngs_abi_version()}"))
    except NativeError as error:
        lines.append(("built", f"no: {error}"))
    for name, text in lines:
        stdout().print(f"{name:9} {text}", soft_wrap=True)


def prior(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write, int32, little end first.")],
) -> None:
    """Write the drafter's prior as `ngs_set_prior` takes it, for programs without Python."""
    values = np.concatenate(shipped()).astype("<i4")
    with replacing(file) as output:
        output.write(values.tobytes())
    stdout().print(f"{file}: {len(values)} numbers", soft_wrap=True)
