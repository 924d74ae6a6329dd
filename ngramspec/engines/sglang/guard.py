"""What happens when something of ours fails inside a server: a step without draft, a pause, one line a minute."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

_log = logging.getLogger("ngramspec")

MAX_PAUSE = 4096  # steps
LOG_SECONDS = 60.0


class Guard:
    """Counts failures and says when to try again: after 1 step, then 2, 4, ... up to `MAX_PAUSE`.

    Pauses are counted in steps, never by a clock, so that equal sequences of calls behave equally.

    Parameters
    ----------
    clock : callable
        Seconds, for the log alone.

    Attributes
    ----------
    failures : int
        Since the start.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.failures = 0
        self._clock = clock
        self._pause = 1
        self._left = 0
        self._good = 0
        self._logged: float | None = None
        self._unlogged = 0

    @property
    def paused(self) -> bool:
        """Whether a pause is on."""
        return self._left > 0

    def ready(self) -> bool:
        """Whether this step may draft; modifies: call it once a step."""
        if self._left > 0:
            self._left -= 1
            return False
        return True

    def worked(self) -> None:
        """Note a step without failure; modifies."""
        self._good += 1
        if self._good >= 2 * self._pause:
            self._pause = 1

    def failed(self, doing: str, error: BaseException) -> None:
        """Count a failure, start a pause, and log unless that was done within the last minute; modifies.

        Parameters
        ----------
        doing : str
            What failed, such as `"drafting"`.
        error : BaseException
            Its traceback goes to the log.
        """
        self.failures += 1
        self._unlogged += 1
        self._left, self._good = self._pause, 0
        self._pause = min(MAX_PAUSE, 2 * self._pause)
        now = self._clock()
        if self._logged is None or now - self._logged >= LOG_SECONDS:
            _log.error(
                "ngramspec: %s failed (%d failures since the last such line, %d in all); the server goes on without "
                "drafts for %d steps: please report this",
                doing,
                self._unlogged,
                self.failures,
                self._left,
                exc_info=error,
            )
            self._logged, self._unlogged = now, 0
