"""Errors that may come with every step, logged once a minute."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

_log = logging.getLogger("ngramspec")

LOG_SECONDS = 60.0


class Complaints:
    """Counts failures and logs the first of each minute.

    Parameters
    ----------
    clock : callable
        Seconds, for the log alone.

    Attributes
    ----------
    count : int
        Failures since the start.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.count = 0
        self._clock = clock
        self._logged: float | None = None
        self._unlogged = 0

    def add(self, doing: str, consequence: str, error: BaseException, *, trace: bool = True) -> None:
        """Count a failure; modifies.

        Parameters
        ----------
        doing : str
            What failed, such as `"drafting"`.
        consequence : str
            What happens now.
        error : BaseException
            Why.
        trace : bool
            Log its traceback, not its text alone.
        """
        self.count += 1
        self._unlogged += 1
        now = self._clock()
        if self._logged is not None and now - self._logged < LOG_SECONDS:
            return
        _log.error(
            "ngramspec: %s failed (%d failures since the last such line, %d in all); %s%s",
            doing,
            self._unlogged,
            self.count,
            consequence,
            ": please report this" if trace else f": {error}",
            exc_info=error if trace else None,
        )
        self._logged, self._unlogged = now, 0
