"""What every rank is about to verify, compared over the ranks: for debugging, and where ranks draft for themselves.

Ranks that verify different rows hang or corrupt output without a word. A digest of a step's rows from every rank shows
it before anything is verified; such a step has no draft on any rank, which is the same rows on all.
"""

from __future__ import annotations

from typing import Any

import torch

from ...arena import digest63
from ...errors import EngineContractError
from .complaints import Complaints
from .drafts import Rows


def digest_of(rows: Rows) -> int:
    """63-bit digest of a step's rows: how many, which tokens, and what each may attend to.

    Parameters
    ----------
    rows : Rows
        Of one step.
    """
    return digest63(rows.n_rows.to_bytes(8, "little") + rows.ids.tobytes() + rows.seen.tobytes())


class Agreement:
    """Numbers of all ranks in one small message.

    Parameters
    ----------
    group : ProcessGroup
        Of the ranks, on the CPU.
    """

    def __init__(self, group: Any) -> None:
        self._group = group

    def bounds(self, *numbers: int) -> list[tuple[int, int]]:
        """The least and the greatest that any rank gave, for each number; every rank must call it.

        Parameters
        ----------
        *numbers : int
            This rank's, each of 63 bits.
        """
        both = torch.tensor([*numbers, *(-number for number in numbers)], dtype=torch.int64)
        torch.distributed.all_reduce(both, torch.distributed.ReduceOp.MAX, group=self._group)
        found, n = both.tolist(), len(numbers)
        return [(-least, most) for most, least in zip(found[:n], found[n:], strict=True)]

    def odd(self, number: int) -> list[int]:
        """Ranks whose number is not the first rank's; every rank must call it.

        Parameters
        ----------
        number : int
            This rank's.
        """
        mine = torch.tensor([number], dtype=torch.int64)
        found = [torch.empty_like(mine) for _ in range(torch.distributed.get_world_size(self._group))]
        torch.distributed.all_gather(found, mine, group=self._group)
        return [rank for rank, other in enumerate(found) if int(other) != int(found[0])]


class Checks:
    """Compares the rows of every step over the ranks, which all call it alike.

    Parameters
    ----------
    agreement : Agreement
        Of the ranks.

    Attributes
    ----------
    n_steps : int
        Steps compared.
    """

    def __init__(self, agreement: Agreement) -> None:
        self.n_steps = 0
        self._agreement = agreement
        self._complaints = Complaints()

    @property
    def mismatches(self) -> int:
        """Steps whose rows differed."""
        return self._complaints.count

    def same(self, rows: Rows) -> bool:
        """Whether all ranks are about to verify these rows; modifies.

        Parameters
        ----------
        rows : Rows
            This rank's.
        """
        self.n_steps += 1
        number = digest_of(rows)
        ((least, most),) = self._agreement.bounds(number)
        if least != most:
            self.complain(number)
        return least == most

    def complain(self, number: int) -> None:
        """Count a step whose rows differ, and log whose do, unless that was done within the last minute; modifies.

        Parameters
        ----------
        number : int
            What this rank's rows were compared by.
        """
        odd = self._agreement.odd(number)
        error = EngineContractError(f"rows of rank {', '.join(map(str, odd))} are not those of rank 0")
        doing = f"comparing the rows of step {self.n_steps} over the ranks"
        self._complaints.add(doing, "it has no draft on any rank", error, trace=False)
