"""What a report rests on: versions, and digests of traces and settings."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from importlib import metadata

import numpy as np

from ... import __version__
from ..trace import Labels, Ragged, Trace
from .group import Group, Run, settings


def versions() -> dict[str, str]:
    """Of everything that the numbers depend on, by name."""
    found = {"ngramspec": __version__, "Python": platform.python_version(), "numpy": np.__version__}
    found |= {name: metadata.version(name) for name in ("numba", "plotly")}
    return found | {"machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} logical CPUs"}


def trace_digest(trace: Trace) -> str:
    """SHA-256 of what a replay reads of a trace, the same in whatever format it is kept, as 64 hex digits."""
    state = hashlib.sha256()
    for part in (trace.prompt, trace.output, trace.eos, trace.session, trace.finish_reason, trace.category):
        if isinstance(part, Ragged):
            pieces = [part.offsets.astype("<i8").tobytes(), part.tokens.astype("<i4").tobytes()]
        else:
            pieces = [_text(part)]
        for piece in pieces:
            state.update(len(piece).to_bytes(8, "little") + piece)
    state.update(trace.turn.astype("<i4").tobytes() + trace.arrival.astype("<f8").tobytes())
    return state.hexdigest()


def _text(labels: Labels) -> bytes:
    return json.dumps(labels.tolist()).encode()


def config_digest(run: Run) -> str:
    """SHA-256 of a run's drafter and settings, the first 12 hex digits."""
    text = json.dumps([run["drafter"], run["config"]], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def told(run: Run) -> str:
    """The settings of a run that a reader may want to repeat, and the digest of all of them."""
    config = run["config"]
    names = ("concurrency", "share", "max_tokens", "verify_width", "limit", "capacity_tokens", "seed")
    parts = [settings(run), *(f"{name} {config[name]}" for name in names if config.get(name) is not None)]
    return f"{', '.join(parts)}; sha256 {config_digest(run)}"


def records(group: Group) -> dict[str, str]:
    """What identifies the trace, where it is at hand, and each compared run."""
    found = {} if group.trace is None else {f"trace {group.name}": f"sha256 {trace_digest(group.trace)}"}
    return found | {f"settings of {run['drafter']}": told(run) for run in group.runs}
