"""A report on replayed runs: one HTML file that needs nothing else, for a screen, a phone or paper."""

from .page import write_report
from .recommendation import advice
from .sweep import further

__all__ = ["advice", "further", "write_report"]
