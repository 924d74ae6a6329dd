"""The calibrated drafter: the same calls as the caches, the best drafts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from ..arena import (
    F_OFF,
    K_ROWS,
    K_TOKENS,
    NO_TEXT,
    OFFER_ROW,
    S_EVICTED,
    S_TOKENS,
    S_TOP,
    SHARE_ALL,
    T_LAST_N,
    T_LAST_STOP,
    T_LENGTH,
    T_SHARE,
)
from ..caches.base import Int32
from ..caches.frozen import FrozenCorpus
from ..caches.integrity import check_store
from ..caches.sessions import SessionCache
from ..config import DrafterConfig
from ..draft import DraftBatch, Reason, Source
from ..errors import ConfigError
from ..kernels import drafter as kernels
from ..kernels.evidence import (
    C_CLASS,
    C_LENGTH,
    FROZEN,
    G_COLUMNS,
    G_PROB,
    G_SIZE,
    G_SOURCE,
    G_VALUE,
    KEPT_ROWS,
    N_INPUTS,
    N_LEVELS,
    N_TIERS,
    OWN,
    SHARED,
    W_COLUMNS,
    W_CONTEXT,
    W_SIZE,
    gather,
)
from ..kernels.hash_draft import ingest
from ..kernels.mixer import X_SIZE
from ..kernels.tree import TREE_ROWS, plant
from ..native import Engine
from .prior import fill, prior


class Drafter(SessionCache):
    """Chains of both texts, counted short contexts, and a mixer that learns from every emitted token.

    Parameters
    ----------
    config : DrafterConfig
        Sizes and limits.
    buffer : uint8[config.nbytes], optional
        A state to attach to; None starts empty.
    engine : {"numba", "native"}, optional
        What runs it; None: `NGRAMSPEC_ENGINE`, or numba. State and drafts are the same.

    Examples
    --------
    >>> import ngramspec as ns
    >>> drafter = ns.Drafter(ns.DrafterConfig(capacity_tokens=100_000, vocab_size=1000))
    >>> drafter.begin("r1", [7, 8, 9, 5, 7, 8])
    0
    >>> drafter.draft("r1", max_draft=2).tokens
    array([9, 5], dtype=int32)
    >>> drafter.accept("r1", [9, 6])  # one draft token was right, then the model went on with 6
    >>> drafter.finish("r1")
    """

    name: ClassVar[str] = "ngramspec"
    config_type = DrafterConfig
    config: DrafterConfig

    def __init__(
        self, config: DrafterConfig, buffer: NDArray[np.uint8] | None = None, engine: Engine | None = None
    ) -> None:
        super().__init__(config, buffer, engine)
        self._deferred = config.deferred
        if buffer is None:
            fill(self.arena, prior())
        self._shared = self.arena.header("shared")
        self._counts, self._mixer, self._offers = (self.arena.header(name) for name in ("counts", "mixer", "offers"))
        self._texts = (self._requests, self._own, self._shared)
        self._look_at(*NO_TEXT)
        self._corpora: dict[str, FrozenCorpus] = {}
        if buffer is not None:
            self._drop_frozen()
        self._width = 0
        self._scratch: list[tuple[Int32, Int32, Int32, Int32]] = []
        self._make_scratch(64)
        self._pool = ThreadPoolExecutor(config.draft_threads) if config.draft_threads > 1 else None

    def _look_at(self, header: NDArray[np.int64], mem: Int32) -> None:
        """Draft from this frozen text too; `_state` holds headers and buffers as the kernels take them."""
        self._frozen = header, mem
        self._state = (*self._texts, header, self._counts, self._mixer, self._offers, self._m, mem)

    def _drop_frozen(self) -> None:
        """Forget what drafts before attaching found in frozen corpora, which are not part of the state."""
        offers = self.arena.section("offers", F_OFF).reshape(-1, OFFER_ROW)
        for first in (0, kernels.O_HALF):
            half = offers[:, first : first + kernels.O_HALF]
            kinds = half[:, kernels.O_HEAD + C_CLASS // W_COLUMNS :: KEPT_ROWS][:, : kernels.N_KEPT]
            seen = np.arange(kernels.N_KEPT) < half[:, kernels.O_N, None]
            lost = ((kinds == FROZEN) & seen).any(axis=1)
            half[lost, kernels.O_LENGTH], half[lost, kernels.O_N] = -1, 0

    def _make_scratch(self, width: int) -> None:
        self._width = max(width, kernels.MAX_SETTLE)
        shapes = (W_SIZE, G_SIZE, X_SIZE, (TREE_ROWS, self._width + 1))
        self._scratch = [tuple(np.zeros(shape, np.int32) for shape in shapes) for _ in range(self.config.draft_threads)]  # type: ignore[misc]

    def _ingest_row(self, row: int, tokens: Int32) -> None:
        w = self._scratch[0][0]
        ingest(*self._texts, self._m, row, tokens, self._field(row, T_SHARE) == SHARE_ALL, w)

    def _accept_rows(self, slots: Int32, tokens: Int32, offsets: Int32) -> None:
        if len(tokens) > kernels.MAX_SETTLE:
            longest = int(np.diff(offsets[: len(slots) + 1]).max(initial=0))
            if longest > kernels.MAX_SETTLE:
                if self._deferred:
                    self._settle(slots, False)
                self._accept_long(slots, tokens, offsets)
                return
        kernels.accept_batch(*self._state, slots, tokens, offsets, self._deferred, *self._scratch[0])

    def _accept_long(self, slots: Int32, tokens: Int32, offsets: Int32) -> None:
        """Append more at once than one settling takes, piece by piece; only the last may wait."""
        for i in range(len(slots)):
            slot = slots[i : i + 1]
            emitted = tokens[offsets[i] : offsets[i + 1]]
            for start in range(0, max(len(emitted), 1), kernels.MAX_SETTLE):
                self._settle(slot, False)
                piece = emitted[start : start + kernels.MAX_SETTLE]
                self._accept_rows(slot, piece, np.array([0, len(piece)], np.int32))

    def _settle(self, slots: Int32, only_drafted: bool) -> None:
        kernels.settle_batch(*self._state, slots, only_drafted, *self._scratch[0])

    def _truncate_row(self, row: int, n_tokens: int) -> None:
        self._settle(np.array([row], np.int32), False)
        kernels.truncate(*self._texts, self._counts, self._offers, self._m, row, n_tokens, self._scratch[0][0])

    def _finish_row(self, row: int) -> None:
        self._settle(np.array([row], np.int32), False)
        super()._finish_row(row)

    def _draft_rows(
        self, slots: Int32, out: DraftBatch, max_draft: Int32, remaining: Int32, chain: bool, min_q30: int
    ) -> None:
        if self._width < out.width:
            self._make_scratch(out.width)
        arrays = (out.tokens, out.parents, out.path_q30, out.sources, out.n_draft, out.match_length, out.reason)

        def shard(k: int, first: int, last: int) -> None:
            kernels.draft_batch(
                *self._state, slots, max_draft, remaining, chain, min_q30, first, last, *self._scratch[k], *arrays
            )

        n, n_shards = len(slots), len(self._scratch)
        # Threads may share no row; a slot that comes twice, which is not allowed, must still give one state.
        if self._pool is None or n < 2 * n_shards or len(set(slots.tolist())) < n:
            shard(0, 0, n)
        else:
            edges = [n * k // n_shards for k in range(n_shards + 1)]
            list(self._pool.map(shard, range(n_shards), edges[:-1], edges[1:]))

    def settle(self, slots: Int32) -> None:
        """In deferred mode, learn from steps whose next draft has been handed out; modifies.

        Optional: what is not settled here is settled by the row's next `accept_batch`, with the same result. An engine
        calls it while the model runs.

        Parameters
        ----------
        slots : int32[batch]
            Slots of running requests.
        """
        self._check_slots(slots)
        if self._core is not None:
            self._core.settle(slots)
        else:
            self._settle(slots, True)

    def add_corpus(self, corpus: FrozenCorpus) -> None:
        """Let every request be drafted from a frozen corpus too, from the next call on; modifies.

        Kernels look at one frozen text: with several, their texts are put together anew here, which costs as much time
        and memory as building one of all of them. Call it between steps, on every rank at the same step.

        Parameters
        ----------
        corpus : FrozenCorpus
            Of this drafter's vocabulary, with the same `orders` and at least its `max_match`.

        Raises
        ------
        ConfigError
            The name is taken, or vocabulary or orders differ.
        """
        if not isinstance(corpus, FrozenCorpus):
            raise ConfigError(f"corpus: got {corpus!r}, must be a FrozenCorpus")
        if corpus.name in self._corpora:
            raise ConfigError(f"corpus: the name {corpus.name!r} is taken; remove that one first or use another name")
        for name in ("vocab_size", "orders"):
            got, want = getattr(corpus, name), getattr(self.config, name)
            if got != want:
                raise ConfigError(
                    f"corpus {corpus.name!r}: {name} is {got}, the drafter's is {want}; build it with the same"
                )
        if corpus.max_match < self.config.max_match:
            raise ConfigError(
                f"corpus {corpus.name!r}: max_match is {corpus.max_match}, needs at least {self.config.max_match}"
            )
        self._use_corpora({**self._corpora, corpus.name: corpus})

    def remove_corpus(self, name: str) -> None:
        """Stop drafting from a frozen corpus, from the next call on; modifies. Unknown names are a `ConfigError`."""
        if not isinstance(name, str) or name not in self._corpora:
            raise ConfigError(f"corpus: no {name!r} among {sorted(self._corpora)}")
        self._use_corpora({known: corpus for known, corpus in self._corpora.items() if known != name})

    @property
    def corpora(self) -> tuple[str, ...]:
        """Names of the frozen corpora in use, oldest first."""
        return tuple(self._corpora)

    def _use_corpora(self, corpora: dict[str, FrozenCorpus]) -> None:
        merged = FrozenCorpus.merge(list(corpora.values())) if corpora else None
        if self._core is not None:
            self._core.use_corpus(None if merged is None else merged.mem)
        else:
            self._settle(np.array(sorted(self._rows.values()), np.int32), False)
            kernels.drop_offers(self._offers, self._m, self.config.n_rows)  # they point into the text used until now
        self._corpora = corpora
        self._look_at(*((merged.header, merged.mem) if merged is not None else NO_TEXT))

    def reset(self) -> None:
        """Forget everything, what the mixer learned included; frozen corpora stay."""
        super().reset()
        fill(self.arena, prior())

    def stats(self) -> dict[str, int]:
        """Counters and gauges; see `Cache.stats`."""
        own, shared, counts = self._own, self._shared, self._counts
        return super().stats() | {
            "own_tokens": int(own[S_TOKENS]),
            "shared_tokens": int(shared[S_TOKENS]),
            "own_tokens_evicted": int(own[S_EVICTED]),
            "shared_tokens_evicted": int(shared[S_EVICTED]),
            "counted_tokens": int(counts[K_TOKENS]),
            "counted_rows": int(counts[K_ROWS]),
        }

    def check_integrity(self) -> None:
        """Check every invariant; see `Cache.check_integrity`."""
        self._check_rows()
        check_store(self.arena, "own")
        check_store(self.arena, "shared")

    def explain(self, request_id: str) -> dict[str, Any]:
        """What the next draft rests on, and what ended the last one; see `Cache.explain`.

        Returns
        -------
        dict
            `tokens`, `context_tokens`; `own_matches`, `shared_matches`, `frozen_matches`: lengths (tokens) of the
            matches found, longest first; `followers`: for each candidate its `token`, `probability` (0 to 1), `source`
            and how often it was seen after the longest matches (`own`, `shared`) and the counted contexts (`counted`);
            `last_draft`: its `tokens` and what `ended` it.
        """
        row = self._row(request_id)
        w, g, x, t = self._scratch[0]
        header, mem = self._frozen
        n, n_context = gather(*self._texts, header, self._m, mem, row, w)
        kinds, lengths = w[C_CLASS : C_CLASS + n].copy(), w[C_LENGTH : C_LENGTH + n].copy()
        plant(t, 0 if n else -1, 0)
        state = (self._own, self._shared, header, self._counts, self._mixer, self._m, mem)
        seed = kernels.counted_seed(self._requests, self._m, row)
        context = w[W_CONTEXT : W_CONTEXT + int(self._own[S_TOP])]
        n_followers = kernels.judge(*state, seed, context, n_context, 0 if n else -1, 0, w, g, x, t)[0]
        matches = {
            f"{name}_matches": sorted(lengths[kinds == kind].tolist(), reverse=True)
            for name, kind in (("own", OWN), ("shared", SHARED), ("frozen", FROZEN))
        }
        followers = [
            {
                "token": int(row[G_VALUE]) - 1,
                "probability": int(row[G_PROB]) / 65536,
                "source": Source(int(row[G_SOURCE])).name.lower(),
                "own": int(row[:N_TIERS].max()),
                "shared": int(row[N_TIERS:N_LEVELS].max()),
                "counted": row[N_LEVELS:N_INPUTS].tolist(),
            }
            for row in sorted(g.reshape(-1, G_COLUMNS)[:n_followers], key=lambda row: -int(row[G_PROB]))
        ]
        last = {"tokens": self._field(row, T_LAST_N), "ended": Reason(self._field(row, T_LAST_STOP)).name.lower()}
        return {
            "tokens": self._field(row, T_LENGTH),
            "context_tokens": n_context,
            **matches,
            "followers": followers,
            "last_draft": last,
        }
