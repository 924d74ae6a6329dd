"""Importers: request logs, dumps, responses and conversations of other programs become traces."""

from .base import Context, Importer, Record
from .failure import Bad
from .load import Imported, load
from .registry import IMPORTERS

__all__ = ["IMPORTERS", "Bad", "Context", "Imported", "Importer", "Record", "load"]
