"""Configurations: frozen, checked at construction, with their size in bytes known before anything is allocated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

from .arena import (
    BLOCK,
    COUNT_ROW,
    MAX_EOS,
    MAX_ORDERS,
    TRIE_NODE_NBYTES,
    Component,
    arena_nbytes,
    counts_component,
    digest63,
    mixer_component,
    offers_component,
    requests_component,
    store_block_nbytes,
    store_component,
    trie_component,
)
from .errors import ConfigError

MAX_TOKEN_ID = 2**31 - 2
MAX_TOKENS = 2**31 - 2
MAX_NODES = 2**28
NODES_PER_TOKEN = 4  # of a trie: what text of many sources needs at the default depth, about


def check(value: Any, name: str, low: int, high: int, advice: str = "") -> None:
    """Raise `ConfigError` unless a value is an int in [low, high].

    Parameters
    ----------
    value : int
        What was given.
    name : str
        Of the setting, for the message.
    low, high : int
        Smallest and largest allowed value.
    advice : str
        More for the message.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ConfigError(f"{name}: got {value!r}, allowed integers from {low} to {high}{advice}")


def check_bool(value: Any, name: str) -> None:
    """Raise `ConfigError` unless a value is True or False."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name}: got {value!r}, allowed true and false")


def _integers(value: Any, name: str) -> tuple[Any, ...]:
    """A tuple of what is in `value`, which its caller checks one by one."""
    try:
        return tuple(value)
    except TypeError:
        raise ConfigError(f"{name}: got {value!r}, allowed a list of integers") from None


@dataclass(frozen=True, kw_only=True)
class CacheConfig:
    """What every cache needs to know.

    Parameters
    ----------
    capacity_tokens : int
        Tokens of text kept, own and shared together. Cost: see `nbytes`.
    vocab_size : int
        Ids at or above it are placeholders: never matched across, never drafted.
    eos_ids : tuple of int
        Ids after which a draft stops (at most 16).
    max_requests : int
        Running requests; `begin` raises `CapacityError` beyond it. Cost: 256 bytes each.
    max_sessions : int
        Ended requests and sessions whose text is kept for a later turn; the least recently used goes first.
        Cost: 256 bytes each.
    """

    capacity_tokens: int = 4_000_000
    vocab_size: int = MAX_TOKEN_ID + 1
    eos_ids: tuple[int, ...] = ()
    max_requests: int = 256
    max_sessions: int = 1024

    def __post_init__(self) -> None:
        object.__setattr__(self, "eos_ids", _integers(self.eos_ids, "eos_ids"))
        check(self.vocab_size, "vocab_size", 1, MAX_TOKEN_ID + 1)
        check(self.max_requests, "max_requests", 1, 65_536)
        check(self.max_sessions, "max_sessions", 0, 1_000_000)
        if len(self.eos_ids) > MAX_EOS:
            raise ConfigError(f"eos_ids: got {len(self.eos_ids)} ids, at most {MAX_EOS} are allowed")
        for i, eos in enumerate(self.eos_ids):
            check(eos, f"eos_ids[{i}]", 0, self.vocab_size - 1)
        low = self.min_capacity_tokens
        check(
            self.capacity_tokens,
            "capacity_tokens",
            low,
            MAX_TOKENS,
            f" with max_requests={self.max_requests}",
        )

    @property
    def min_capacity_tokens(self) -> int:
        """Smallest allowed `capacity_tokens`: two blocks of own text a running request, and one shared block."""
        return BLOCK * (2 * self.max_requests + 2)

    @property
    def n_rows(self) -> int:
        """Rows of the request table."""
        return self.max_requests + self.max_sessions

    def components(self) -> list[Component]:
        """Parts of the arena, in order."""
        raise NotImplementedError

    @property
    def nbytes(self) -> int:
        """Bytes of the whole state."""
        return arena_nbytes(self.components())

    @property
    def _block_nbytes(self) -> int:
        """Bytes that one more block of capacity costs."""
        raise NotImplementedError

    @property
    def digest(self) -> int:
        """63-bit digest of every setting; states of different configurations are never mixed up."""
        return digest63(repr(sorted(asdict(self).items())).encode() + type(self).__name__.encode())

    @classmethod
    def with_max_bytes(cls, max_bytes: int, **settings: Any) -> Self:
        """The largest capacity whose whole state fits in `max_bytes`.

        Parameters
        ----------
        max_bytes : int
            Hard limit in bytes.
        **settings
            Every other setting.

        Raises
        ------
        ConfigError
            Not even the smallest capacity fits.
        """
        if isinstance(max_bytes, bool) or not isinstance(max_bytes, int):
            raise ConfigError(f"max_bytes: got {max_bytes!r}, allowed an integer")
        smallest = cls(capacity_tokens=cls(**settings, capacity_tokens=MAX_TOKENS).min_capacity_tokens, **settings)
        spare = max_bytes - smallest.nbytes
        if spare < 0:
            raise ConfigError(
                f"max_bytes: got {max_bytes}, these settings need at least {smallest.nbytes}: "
                "raise it or lower max_requests and max_sessions"
            )
        blocks = min(spare // smallest._block_nbytes, (MAX_TOKENS - smallest.capacity_tokens) // BLOCK)
        while True:
            config = cls(capacity_tokens=smallest.capacity_tokens + BLOCK * blocks, **settings)
            if config.nbytes <= max_bytes:
                return config
            blocks -= 1 + (config.nbytes - max_bytes) // smallest._block_nbytes

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build from a mapping; anything else, or an unknown key, is a `ConfigError` that says what is allowed."""
        if not isinstance(values, Mapping):
            raise ConfigError(f"$: got {values!r}, allowed an object of settings by name")
        names = [f.name for f in fields(cls)]
        for key in values:
            if key not in names:
                raise ConfigError(f"$.{key}: unknown setting; allowed are {', '.join(names)}")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Every setting as plain values; `from_dict` of it gives an equal configuration."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}


@dataclass(frozen=True, kw_only=True)
class HashConfig(CacheConfig):
    """Settings of `RollingHashCache`.

    Parameters
    ----------
    capacity_tokens, vocab_size, eos_ids, max_requests, max_sessions
        See `CacheConfig`.
    orders : tuple of int
        Context lengths at which earlier positions are chained, ascending. Cost: 8 bytes a token each.
    max_hops : int
        Earlier positions visited an order and look-up. Cost: about 10 ns each.
    max_match : int
        Tokens compared backward to tell longer matches from shorter ones. Cost: about 1 ns each.
    shared_percent : int
        Share of `capacity_tokens` for outputs that other requests may see.

    Examples
    --------
    >>> import ngramspec as ns
    >>> ns.HashConfig(capacity_tokens=1_000_000, vocab_size=128_256).nbytes  # known before anything is allocated
    41329792
    >>> ns.HashConfig.with_max_bytes(64 * 2**20, vocab_size=128_256).capacity_tokens
    1628736
    """

    orders: tuple[int, ...] = (1, 2, 4, 8)
    max_hops: int = 16
    max_match: int = 32
    shared_percent: int = 50

    def __post_init__(self) -> None:
        object.__setattr__(self, "orders", _integers(self.orders, "orders"))
        check(self.max_match, "max_match", 1, 64)
        check(self.max_hops, "max_hops", 1, 64)
        check(self.shared_percent, "shared_percent", 0, 95)
        wrong = ConfigError(f"orders: got {self.orders}, allowed 1 to {MAX_ORDERS} ascending context lengths")
        if not 1 <= len(self.orders) <= MAX_ORDERS:
            raise wrong
        for i, order in enumerate(self.orders):
            check(order, f"orders[{i}]", 1, self.max_match)
        if list(self.orders) != sorted(set(self.orders)):
            raise wrong
        super().__post_init__()

    @property
    def n_own_blocks(self) -> int:
        """Blocks for the text of running requests and idle sessions."""
        return max(2 * self.max_requests, self._n_blocks - self._n_blocks * self.shared_percent // 100)

    @property
    def n_shared_blocks(self) -> int:
        """Blocks for what requests of a tenant share."""
        return max(1, self._n_blocks - self.n_own_blocks)

    @property
    def _n_blocks(self) -> int:
        return -(-self.capacity_tokens // BLOCK)

    @property
    def _block_nbytes(self) -> int:
        return store_block_nbytes(len(self.orders))

    def components(self) -> list[Component]:
        """Request table, own text, shared text."""
        return [
            requests_component(self.n_rows, self.vocab_size, self.eos_ids),
            store_component("own", self.n_own_blocks, self.orders, self.max_hops, self.max_match),
            store_component("shared", self.n_shared_blocks, self.orders, self.max_hops, self.max_match),
        ]


@dataclass(frozen=True, kw_only=True)
class TrieConfig(CacheConfig):
    """Settings of `SuffixTrieCache`.

    Parameters
    ----------
    capacity_tokens, vocab_size, eos_ids, max_requests, max_sessions
        See `CacheConfig`. `capacity_tokens` is own text alone: what is shared lives in nodes.
    depth : int
        Tokens of a counted context and its follower together: contexts of 1 to `depth` - 1 tokens are matched.
        Cost: up to `depth` nodes a token, less where text repeats.
    max_followers : int
        Followers of a context that a draft looks at, the most recent ones. Cost: about 10 ns each.
    max_nodes : int, optional
        Hard limit; leaves make room beyond it. None: 4 a token of capacity. Cost: 44 bytes each.

    Examples
    --------
    >>> import ngramspec as ns
    >>> ns.TrieConfig(capacity_tokens=100_000, vocab_size=128_256, depth=6, max_nodes=200_000).nbytes
    9711680
    """

    depth: int = 8
    max_followers: int = 16
    max_nodes: int | None = None

    def __post_init__(self) -> None:
        check(self.depth, "depth", 2, 32)
        check(self.max_followers, "max_followers", 1, 64)
        if self.max_nodes is not None:
            check(self.max_nodes, "max_nodes", self.min_nodes, MAX_NODES, f" with depth={self.depth}")
        super().__post_init__()

    @property
    def min_nodes(self) -> int:
        """Smallest allowed `max_nodes`: all that counting one more token may not evict, and one node to evict."""
        return self.depth * (self.depth - 1) // 2 + 3

    @property
    def n_nodes(self) -> int:
        """Nodes in the arena."""
        return self.max_nodes or max(self.min_nodes, min(MAX_NODES, NODES_PER_TOKEN * self.capacity_tokens))

    @property
    def n_blocks(self) -> int:
        """Blocks of text."""
        return -(-self.capacity_tokens // BLOCK)

    @property
    def _block_nbytes(self) -> int:
        return store_block_nbytes(0) + (0 if self.max_nodes else BLOCK * NODES_PER_TOKEN * TRIE_NODE_NBYTES)

    def components(self) -> list[Component]:
        """Request table, own text, trie."""
        return [
            requests_component(self.n_rows, self.vocab_size, self.eos_ids),
            store_component("own", self.n_blocks, (), 0, 0),
            trie_component(self.n_nodes, self.n_rows, self.depth, self.max_followers),
        ]


@dataclass(frozen=True, kw_only=True)
class DrafterConfig(HashConfig):
    """Settings of `Drafter`.

    Parameters
    ----------
    capacity_tokens, vocab_size, eos_ids, max_requests, max_sessions, orders
        See `HashConfig`.
    max_hops : int
        As in `HashConfig`; beyond 8 nothing was gained with counted contexts beside the chains.
    max_match, shared_percent
        See `HashConfig`.
    counted_per_token : float
        Counted contexts kept for each token of shared capacity. Cost: 64 bytes each.
    deferred : bool
        Learn from a step, and let others see it, only once the next draft has been handed out (`Drafter.settle`).
    draft_threads : int
        Threads that look up one batch; drafts are the same for any number. Cost: scratch of 60 kB each.

    Examples
    --------
    >>> import ngramspec as ns
    >>> config = ns.DrafterConfig.with_max_bytes(64 * 2**20, vocab_size=128_256, eos_ids=(128_001,))
    >>> config.capacity_tokens
    1077952
    >>> ns.DrafterConfig.from_dict(config.to_dict()) == config
    True
    >>> ns.DrafterConfig(max_match=100)
    Traceback (most recent call last):
        ...
    ngramspec.errors.ConfigError: max_match: got 100, allowed integers from 1 to 64
    """

    max_hops: int = 8
    counted_per_token: float = 0.5
    deferred: bool = False
    draft_threads: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self.draft_threads, "draft_threads", 1, 64)
        check_bool(self.deferred, "deferred")
        share = self.counted_per_token
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0.0 <= share <= 4.0:
            raise ConfigError(f"counted_per_token: got {self.counted_per_token!r}, allowed 0.0 to 4.0")

    @property
    def n_counted_rows(self) -> int:
        """Rows of the table of counted contexts, an even number."""
        return 2 * max(1, int(self.counted_per_token * BLOCK * self.n_shared_blocks) // 2)

    @property
    def _block_nbytes(self) -> int:
        per_shared_block = int(4 * COUNT_ROW * BLOCK * self.counted_per_token)
        return super()._block_nbytes + per_shared_block * self.shared_percent // 100

    @property
    def digest(self) -> int:
        """63-bit digest of every setting that shapes the state; threads do not."""
        return replace(self, draft_threads=1)._digest if self.draft_threads != 1 else self._digest

    @property
    def _digest(self) -> int:
        return super().digest

    def components(self) -> list[Component]:
        """Those of the rolling hash, then counted contexts, mixer and offers."""
        return [
            *super().components(),
            counts_component(self.n_counted_rows),
            mixer_component(),
            offers_component(self.n_rows),
        ]
