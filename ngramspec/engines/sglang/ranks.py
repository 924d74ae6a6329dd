"""Tensor parallelism: the first rank drafts, and tells the others what every rank verifies.

Ranks that verify different rows hang or corrupt output. Drafts depend on clocks (step times, the guard), threads (a
corpus that became ready) and failures, so one rank decides all of it: its rows go to the others in one broadcast a step
over the group's CPU side, and the others keep no drafter at all. What they verify is what they were sent. Where
nothing depends on a clock, each may draft for itself instead, see `local`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import numpy as np
import torch

from ...errors import EngineContractError
from .digest import Checks
from .drafts import Drafts, Rows, fill_bare, last_token
from .followed import Request

Latest = Sequence[Sequence[int]] | None
T = TypeVar("T")

#: Seconds that a rank waits for the first one to show up, and then to be ready (it may have to compile).
HERE_SECONDS, READY_SECONDS = 120, 900


class Source(Protocol):
    """Where a rank's rows come from."""

    def rows(self, requests: Sequence[Request], latest: Latest = None) -> Rows:
        """Rows of a decode step, see `Drafts.rows`."""

    def prefilled(self, requests: Sequence[Request]) -> None:
        """See `Drafts.prefilled`."""

    def decoded(self, requests: Sequence[Request]) -> None:
        """See `Drafts.decoded`."""

    def finished(self, rid: str) -> None:
        """See `Drafts.finished`."""

    def flush(self) -> None:
        """See `Drafts.flush`."""

    def fix_width(self) -> None:
        """See `Drafts.fix_width`."""


class Wire:
    """Rows as one message of a size that every rank knows beforehand.

    Parameters
    ----------
    group : ProcessGroup
        Of the ranks, on the CPU.
    first : int
        Global number of the rank that sends.
    n_rows : int
        Most rows a request.
    """

    def __init__(self, group: Any, first: int, n_rows: int) -> None:
        self._group, self._first, self._n_rows = group, first, n_rows

    def _buffer(self, n: int) -> torch.Tensor:
        return torch.zeros(8 + n * self._n_rows * (8 + self._n_rows), dtype=torch.uint8)

    def send(self, rows: Rows, n: int) -> None:
        """Tell the other ranks; `n` requests."""
        message = self._buffer(n)
        there = message.numpy()
        n_ids = rows.ids.nbytes
        there[:8].view(np.int64)[0] = rows.n_rows
        there[8 : 8 + n_ids] = rows.ids.view(np.uint8)
        there[8 + n_ids : 8 + n_ids + rows.seen.nbytes] = rows.seen.view(np.uint8)
        torch.distributed.broadcast(message, self._first, group=self._group)

    def receive(self, n: int) -> Rows:
        """What the first rank sent for `n` requests."""
        message = self._buffer(n)
        torch.distributed.broadcast(message, self._first, group=self._group)
        there = message.numpy()
        width = int(there[:8].view(np.int64)[0])
        n_ids = 8 * n * width
        ids = there[8 : 8 + n_ids].view(np.int64)
        return Rows(ids, there[8 + n_ids : 8 + n_ids + n * width**2].view(np.bool_), width)


class Leading:
    """The first rank: drafts, and sends what it has.

    Parameters
    ----------
    drafts : Drafts
        Its drafts.
    wire : Wire
        To the others.
    checks : Checks, optional
        For debugging: what is verified is compared over the ranks.
    """

    def __init__(self, drafts: Drafts, wire: Wire, checks: Checks | None = None) -> None:
        self.drafts, self._wire, self._checks = drafts, wire, checks
        self.prefilled, self.decoded = drafts.prefilled, drafts.decoded
        self.finished, self.flush, self.fix_width = drafts.finished, drafts.flush, drafts.fix_width

    def rows(self, requests: Sequence[Request], latest: Latest = None) -> Rows:
        """Rows of a decode step, on every rank; modifies.

        Parameters
        ----------
        requests, latest
            See `Drafts.rows`.
        """
        rows = self.drafts.rows(requests, latest)
        self._wire.send(rows, len(requests))
        if self._checks is not None and not self._checks.same(rows):
            self.drafts.counters.digest_mismatches = self._checks.mismatches
            rows = self.drafts.bare(requests, self.drafts.n_rows)
        return rows


class Following:
    """Every other rank: keeps nothing and takes what it is sent.

    Parameters
    ----------
    wire : Wire
        From the first rank.
    checks : Checks, optional
        For debugging: what is verified is compared over the ranks.
    n_rows : int
        Rows a request of steps that turn out to differ.
    chain : bool
        Whether drafts are chains.
    """

    def __init__(self, wire: Wire, checks: Checks | None = None, *, n_rows: int = 1, chain: bool = False) -> None:
        self._wire, self._checks, self._n_rows, self._chain = wire, checks, n_rows, chain

    def rows(self, requests: Sequence[Request], latest: Latest = None) -> Rows:
        """Rows of a decode step.

        Parameters
        ----------
        requests, latest
            See `Drafts.rows`.
        """
        n, width = len(requests), self._n_rows
        rows = self._wire.receive(n)
        if self._checks is None or self._checks.same(rows):
            return rows
        beside: Sequence[Sequence[int]] = [()] * n if latest is None else latest
        last = np.array([last_token(request, new) for request, new in zip(requests, beside, strict=True)], np.int64)
        return fill_bare(last, self._chain, width, np.zeros(n * width, np.int64), np.zeros(n * width**2, np.bool_))

    def prefilled(self, requests: Sequence[Request]) -> None:
        """Nothing."""

    def decoded(self, requests: Sequence[Request]) -> None:
        """Nothing."""

    def finished(self, rid: str) -> None:
        """Nothing."""

    def flush(self) -> None:
        """Nothing."""

    def fix_width(self) -> None:
        """Nothing."""


def together(store: Any, first: int, rank: int, size: int, build: Callable[[], T]) -> T | None:
    """Have the first rank build, and every rank agree on whether it could.

    Over the store of the process group, not by a collective: a rank on which the plugin is not switched on would never
    answer, and is noticed by its silence.

    Parameters
    ----------
    store : Store
        Of the process group.
    first : int
        Global number of the first rank: it tells groups apart.
    rank, size : int
        Place in the group, and ranks in it.
    build : callable
        Run on the first rank only; its result is returned there, None elsewhere.

    Raises
    ------
    EngineContractError
        On every rank that takes part, if the first could not build or some rank did not show up.
    """
    place = f"ngramspec/{first}"
    store.set(f"{place}/here/{rank}", "1")
    if rank:
        wait_for(
            store, f"{place}/here/0", HERE_SECONDS, "rank 0 does not run ngramspec: give every node the same settings"
        )
        wait_for(store, f"{place}/ready", READY_SECONDS, "rank 0 did not get ready")
        answer = store.get(f"{place}/ready").decode()
        if answer:
            raise EngineContractError(f"rank 0 stands aside: {answer}")
        return None
    try:
        for other in range(1, size):
            wait_for(store, f"{place}/here/{other}", HERE_SECONDS, f"rank {other} does not run ngramspec")
        built = build()
    except Exception as error:
        store.set(f"{place}/ready", str(error) or type(error).__name__)
        raise
    store.set(f"{place}/ready", "")
    return built


def wait_for(store: Any, key: str, seconds: float, otherwise: str) -> None:
    """Wait until another rank has put something into the store; `EngineContractError` if it does not.

    Parameters
    ----------
    store : Store
        Of the process group.
    key : str
        What is waited for.
    seconds : float
        Longest wait.
    otherwise : str
        What it means that nothing came.
    """
    try:
        store.wait([key], timedelta(seconds=seconds))
    except Exception as error:  # torch raises DistStoreError or RuntimeError, by version
        raise EngineContractError(f"{otherwise} ({type(error).__name__} after {seconds:.0f} s)") from None
