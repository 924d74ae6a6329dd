"""The one protocol that every cache, the drafter and every rival rule keep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..draft import Draft, DraftBatch, Topology

Share = Literal["outputs", "all", "none"]
Tokens = Sequence[int] | NDArray[np.integer[Any]]
Int32 = NDArray[np.int32]


@runtime_checkable
class Cache(Protocol):
    """What was seen in a request, its session and its tenant, and what to draft from it.

    Calls on one object are serialised by the caller. State and drafts depend on the sequence of calls alone.
    """

    @property
    def name(self) -> str:
        """Name on the command line and in results, such as `"rolling-hash"`."""

    @property
    def nbytes(self) -> int:
        """Bytes of state, fixed at construction (0 where nothing is kept). Does not modify."""

    def begin(
        self,
        request_id: str,
        prompt: Tokens,
        *,
        session: str | None = None,
        tenant: str | None = None,
        share: Share = "outputs",
        max_tokens: int | None = None,
    ) -> int:
        """Start a request; modifies.

        Parameters
        ----------
        request_id : str
            Must not name a request that is running; may be reused after `finish`.
        prompt : sequence of int
            Token ids. Negative ids and ids at or above `vocab_size` are placeholders: never matched across, never
            drafted.
        session : str, optional
            Requests of one session see each other's text, one after the other. None: a session of its own.
        tenant : str, optional
            Nothing crosses tenants.
        share : {"outputs", "all", "none"}
            What later requests of the tenant may see of this one.
        max_tokens : int, optional
            Ingest at most so many prompt tokens now; go on with `ingest`. None: all of them.

        Returns
        -------
        int
            The slot, valid until `finish`, for `draft_batch` and `accept_batch`.

        Raises
        ------
        ConfigError
            The id is running already, or a setting is unknown.
        CapacityError
            More requests are running than the configuration allows.
        """

    def ingest(self, request_id: str, max_tokens: int | None = None) -> int:
        """Ingest up to `max_tokens` more prompt tokens; returns how many are left; modifies."""

    def draft(
        self,
        request_id: str,
        *,
        max_draft: int,
        topology: str | Topology = Topology.TREE,
        min_prob: float = 0.0,
        remaining: int | None = None,
    ) -> Draft:
        """Draft for one request; remembers only what was offered.

        Parameters
        ----------
        request_id : str
            A running request.
        max_draft : int
            Most tokens to draft.
        topology : {"chain", "tree"}
            Shape.
        min_prob : float
            Leave out tokens whose path probability is below this.
        remaining : int, optional
            Tokens the request may still emit; at most `remaining - 1` are drafted in depth. None: no limit known.

        Returns
        -------
        Draft
            Possibly empty, with its reason.
        """

    def accept(self, request_id: str, tokens: Tokens) -> None:
        """Append emitted tokens (accepted drafts and the bonus token); modifies.

        An empty `tokens` says that nothing of the last draft was right and nothing was emitted: the same first tokens
        are not offered again before progress.
        """

    def truncate(self, request_id: str, n_tokens: int) -> None:
        """Keep the first `n_tokens` tokens of the request (prompt and output); modifies."""

    def finish(self, request_id: str) -> None:
        """End a request (also an abort); modifies. Unknown ids are an error."""

    def draft_batch(
        self,
        slots: Int32,
        out: DraftBatch,
        *,
        max_draft: int | Int32,
        topology: str | Topology = Topology.TREE,
        min_prob: float = 0.0,
        remaining: Int32 | None = None,
    ) -> None:
        """Draft for every slot in one compiled call, GIL released, into `out`; remembers only what was offered.

        Parameters
        ----------
        slots : int32[batch]
            Slots of running requests, each at most once.
        out : DraftBatch
            Filled; row i belongs to `slots[i]`.
        max_draft : int or int32[batch]
            Most tokens to draft a request, capped at `out.width`.
        topology : {"chain", "tree"}
            Shape.
        min_prob : float
            Leave out tokens whose path probability is below this.
        remaining : int32[batch], optional
            Tokens each request may still emit; negative means unknown.
        """

    def accept_batch(self, slots: Int32, tokens: Int32, offsets: Int32) -> None:
        """Append `tokens[offsets[i]:offsets[i + 1]]` to each `slots[i]` in one compiled call; modifies.

        Parameters
        ----------
        slots : int32[batch]
            Slots of running requests, each at most once.
        tokens : int32[n]
            Emitted tokens, one request after the other.
        offsets : int32[batch + 1]
            Where each request's tokens start; an empty span is as in `accept`.
        """

    def reset(self) -> None:
        """Forget everything, running requests included; modifies."""

    def stats(self) -> dict[str, int]:
        """Counters and gauges by name. Does not modify."""

    def check_integrity(self) -> None:
        """Check every invariant, slowly; raises `SnapshotError` at the first that fails. Does not modify."""

    def explain(self, request_id: str) -> dict[str, Any]:
        """What the request's next draft would rest on: matches, sources, counts. Does not modify."""
