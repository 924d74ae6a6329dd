"""Replay of recorded traces: what a drafter would have drafted, and what of it would have been accepted, exactly."""

from ..drafting.budget import Budget, Plan
from ..drafting.cost import CostModel
from .counts import Counts
from .drafters import DRAFTERS, Facts, build
from .formats import read, write
from .inspection import inspect
from .options import Options
from .results import document, run, write_json
from .serving.settings import Serving
from .simulator import simulate
from .trace import Labels, Ragged, Trace
from .tune import Tuned, tune
from .verify import Verified, verify

__all__ = [
    "DRAFTERS",
    "Budget",
    "CostModel",
    "Counts",
    "Facts",
    "Labels",
    "Options",
    "Plan",
    "Ragged",
    "Serving",
    "Trace",
    "Tuned",
    "Verified",
    "build",
    "document",
    "inspect",
    "read",
    "run",
    "simulate",
    "tune",
    "verify",
    "write",
    "write_json",
]
