"""Training-free n-gram speculation for LLM inference."""

from .caches.rolling_hash import RollingHashCache
from .config import HashConfig
from .draft import Draft, DraftBatch, Reason, Source, Topology
from .errors import CapacityError, ConfigError, EngineContractError, NgramSpecError, SnapshotError, TraceError

__version__ = "0.1.0"

__all__ = [
    "CapacityError",
    "ConfigError",
    "Draft",
    "DraftBatch",
    "EngineContractError",
    "HashConfig",
    "NgramSpecError",
    "Reason",
    "RollingHashCache",
    "SnapshotError",
    "Source",
    "Topology",
    "TraceError",
]
