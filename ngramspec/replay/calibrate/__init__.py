"""Measure a live server's step times: decode, and verify where it can be seen, as a cost model made of points.

`server` speaks HTTP to one address, `openai` and `sglang` know what two kinds of server answer, `wave` runs requests at
a time, `stream` turns arrival times into step times, `points` makes a cost model of them, `run` leads through it all.
"""

from .points import Step
from .run import Calibration, Settings, calibrate

__all__ = ["Calibration", "Settings", "Step", "calibrate"]
