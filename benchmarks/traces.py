"""Which traces a benchmark replays: the bundled sample, those named, and those in `NGRAMSPEC_TRACES`."""

from __future__ import annotations

import os
from pathlib import Path

from ngramspec.replay import Trace, read
from ngramspec.replay.sample import sample


def named(paths: list[Path]) -> list[Path]:
    """The paths given, and those in `NGRAMSPEC_TRACES`, separated by the system's path separator."""
    return [*paths, *(Path(p) for p in os.environ.get("NGRAMSPEC_TRACES", "").split(os.pathsep) if p)]


def load(path: Path | None, limit: int | None = None) -> tuple[str, Trace]:
    """Name and first `limit` requests of a trace; None is the whole test half of the bundled sample."""
    if path is None:
        return "sample", sample("test")
    trace = read(path)
    return path.name.split(".")[0], trace.select(range(min(limit or len(trace), len(trace))))
