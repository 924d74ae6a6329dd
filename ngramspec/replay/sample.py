"""The trace that comes with the package, and its two halves.

The calibrated drafter's prior is trained on one half of the sessions; whatever is shown or measured replays the other.
"""

from __future__ import annotations

import hashlib
from importlib.resources import as_file, files
from typing import Literal

import numpy as np

from ..errors import TraceError
from .formats import read
from .trace import Trace

Half = Literal["train", "test", "all"]


def sample(half: Half = "test") -> Trace:
    """The bundled trace.

    Parameters
    ----------
    half : {"test", "train", "all"}
        Whole sessions are on one side, by a digest of their name (of the id, where there is none).

    Returns
    -------
    Trace
        Rows in file order.

    Raises
    ------
    TraceError
        The installation lacks the file.
    """
    resource = files("ngramspec") / "data" / "sample.jsonl.gz"
    if not resource.is_file():
        raise TraceError("the bundled sample trace is missing from this installation: install ngramspec anew")
    with as_file(resource) as path:
        trace = read(path)
    if half == "all":
        return trace
    names = [session or request for session, request in zip(trace.session.tolist(), trace.ids, strict=True)]
    in_train = np.array([hashlib.blake2b(name.encode(), digest_size=1).digest()[0] < 128 for name in names])
    return trace.select(in_train if half == "train" else ~in_train)
