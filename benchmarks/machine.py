"""What a measurement was taken on: recorded beside every figure."""

from __future__ import annotations

import datetime
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any


def machine(*packages: str) -> dict[str, Any]:
    """CPU, load, date and versions, for a result file.

    Parameters
    ----------
    *packages : str
        Distributions whose versions matter beside numpy and numba.
    """
    versions = {}
    for name in ("numpy", "numba", *packages):
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "absent"
    return {
        "date": datetime.date.today().isoformat(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load_average": [round(x, 1) for x in os.getloadavg()],
        "python": platform.python_version(),
        "versions": versions,
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def resident_bytes() -> int:
    """Memory of this process that is backed now; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0
