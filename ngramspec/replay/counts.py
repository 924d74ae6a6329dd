"""What a replay counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..draft import Reason, Source
from ..kernels.verify import N_BINS, N_COUNTS
from .serving.timeline import Served
from .trace import Int64

#: Columns of `per_row_ms`: modelled time of the steps, and of decoding the same tokens without speculation.
STEP_MS, PLAIN_MS = range(2)


@dataclass(frozen=True)
class Counts:
    """What a replay counted; `metrics` turns it into the project's named numbers.

    Attributes
    ----------
    per_row : int64[n_rows, 7]
        Steps, emitted, accepted and drafted tokens, steps with a draft, tokens drafted past the end of the record, and
        tokens that the engine computed, padding included.
    per_depth : int64[max_draft + 1, 2]
        Steps that drafted to this depth within the record, and those that accepted there (row 0 is unused).
    per_source : int64[n_sources, 2]
        Drafted tokens within the record and accepted ones, by `Source`.
    per_reason : int64[n_reasons]
        Steps by `Reason`.
    bins : int64[10, 3]
        Calibration: nodes, sum of predictions (30 fractional bits), emitted; zero unless asked for.
    per_row_ms : float64[n_rows, 2]
        Modelled milliseconds of the steps, each shared evenly by its batch, and of the same traffic without
        speculation; zero without a cost model. With open arrivals, those from when a request was sent to its end.
    prompt_tokens, prefill_tokens, unused_tokens : int
        Tokens ingested from prompts, first tokens that came from prefill, recorded tokens behind an EOS or limit.
    batch_steps : int
        Steps of the engine, each of the whole batch.
    draft_ns, accept_ns, ingest_ns : int
        Time in the drafter's calls: drafting, accepting, beginning requests.
    served : Served, optional
        What happened when, where requests were served in modelled time.
    """

    per_row: Int64
    per_depth: Int64
    per_source: Int64
    per_reason: Int64
    bins: Int64
    per_row_ms: NDArray[np.float64]
    prompt_tokens: int = 0
    prefill_tokens: int = 0
    unused_tokens: int = 0
    batch_steps: int = 0
    draft_ns: int = 0
    accept_ns: int = 0
    ingest_ns: int = 0
    served: Served | None = None

    @classmethod
    def zeros(cls, n_rows: int, max_draft: int) -> Counts:
        """Nothing counted yet."""
        return cls(
            per_row=np.zeros((n_rows, N_COUNTS), np.int64),
            per_depth=np.zeros((max_draft + 1, 2), np.int64),
            per_source=np.zeros((len(Source), 2), np.int64),
            per_reason=np.zeros(len(Reason), np.int64),
            bins=np.zeros((N_BINS, 3), np.int64),
            per_row_ms=np.zeros((n_rows, 2)),
        )
