"""The C core through ctypes: the same state and drafts as the kernels, byte for byte. Never needed to install."""

from __future__ import annotations

import os
from typing import Literal, get_args

from ..errors import ConfigError

#: What runs a cache: kernels compiled by numba, or the C core.
Engine = Literal["numba", "native"]

#: Environment variable that chooses where nothing else does.
VARIABLE = "NGRAMSPEC_ENGINE"


def choose(engine: Engine | None) -> Engine:
    """The engine asked for, or else the environment's, or else numba; raises `ConfigError` for an unknown one."""
    name, source = (os.environ.get(VARIABLE, "numba"), VARIABLE) if engine is None else (engine, "engine")
    for known in get_args(Engine):
        if name == known:
            return known  # type: ignore[no-any-return]
    raise ConfigError(f"{source}: got {name!r}, allowed {', '.join(map(repr, get_args(Engine)))}")
