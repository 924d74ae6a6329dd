"""What happened in the drafts of one scheduler, counted since it started."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...draft import DraftBatch, Reason, Source
from ...kernels.limits import tally


@dataclass
class Counters:
    """Request steps are counted, not batches: a step of a batch of 8 is 8 of them."""

    steps: int = 0  #: verified
    emitted: int = 0  #: tokens of those whose outcome is known
    known_steps: int = 0  #: those whose outcome is known, one step behind at most
    drafted: int = 0  #: real tokens, no padding
    with_draft: int = 0  #: steps with at least one of them
    rows: int = 0  #: that the model computed, padding and committed tokens included
    digest_mismatches: int = 0  #: steps of a batch whose rows differed over the ranks
    sources: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(Source), np.int64))  #: of drafted tokens
    reasons: NDArray[np.int64] = field(default_factory=lambda: np.zeros(len(Reason), np.int64))  #: of steps

    def stepped(self, out: DraftBatch, n: int, n_rows: int) -> None:
        """Count a step; modifies.

        Parameters
        ----------
        out : DraftBatch
            Its drafts.
        n : int
            Requests in it.
        n_rows : int
            Rows that it verifies a request.
        """
        drafted, with_draft = tally(out.n_draft, out.sources, out.reason, n, self.sources, self.reasons)
        self.steps += n
        self.rows += n * n_rows
        self.drafted += int(drafted)
        self.with_draft += int(with_draft)

    def bare(self, n: int, n_rows: int) -> None:
        """Count a step without drafts; modifies.

        Parameters
        ----------
        n : int
            Requests in it.
        n_rows : int
            Rows that it verifies a request.
        """
        self.steps += n
        self.rows += n * n_rows
        self.reasons[Reason.DISABLED] += n

    def outcome(self, n_steps: int, n_emitted: int) -> None:
        """Count what steps emitted; modifies.

        Parameters
        ----------
        n_steps, n_emitted : int
            Steps and the tokens they emitted, bonus tokens included.
        """
        self.known_steps += n_steps
        self.emitted += n_emitted

    @property
    def accept_length(self) -> float:
        """Tokens emitted a step, since the start; 0 before the first."""
        return self.emitted / max(1, self.known_steps)

    def to_dict(self) -> dict[str, Any]:
        """Everything by name; sources and reasons that are no draft as mappings."""
        return {
            "steps": self.steps,
            "known_steps": self.known_steps,
            "emitted": self.emitted,
            "accepted": self.emitted - self.known_steps,
            "drafted": self.drafted,
            "with_draft": self.with_draft,
            "rows": self.rows,
            "digest_mismatches": self.digest_mismatches,
            "sources": {s.name.lower(): int(self.sources[s]) for s in Source if s is not Source.NONE},
            "reasons": {r.name.lower(): int(self.reasons[r]) for r in Reason if r is not Reason.DRAFTED},
        }
