"""Training-free n-gram speculation for LLM inference: caches, a calibrated drafter, exact replay of recorded traces."""

from .caches.base import Cache
from .caches.frozen import FrozenCorpus
from .caches.null import NullCache
from .caches.rolling_hash import RollingHashCache
from .caches.suffix_trie import SuffixTrieCache
from .config import DrafterConfig, HashConfig, TrieConfig
from .draft import Draft, DraftBatch, Links, Reason, Source, Topology
from .drafting.drafter import Drafter
from .errors import CapacityError, ConfigError, EngineContractError, NgramSpecError, SnapshotError, TraceError

__version__ = "0.1.0"

__all__ = [
    "Cache",
    "CapacityError",
    "ConfigError",
    "Draft",
    "DraftBatch",
    "Drafter",
    "DrafterConfig",
    "EngineContractError",
    "FrozenCorpus",
    "HashConfig",
    "Links",
    "NgramSpecError",
    "NullCache",
    "Reason",
    "RollingHashCache",
    "SnapshotError",
    "Source",
    "SuffixTrieCache",
    "Topology",
    "TraceError",
    "TrieConfig",
]
