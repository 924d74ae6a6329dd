"""What happens when something of ours fails inside a server: a step without draft, a pause, one line a minute."""

from __future__ import annotations

import time
from collections.abc import Callable

from .complaints import Complaints

MAX_PAUSE = 4096  # steps


class Guard:
    """Counts failures and says when to try again: after 1 step, then 2, 4, ... up to `MAX_PAUSE`.

    Pauses are counted in steps, never by a clock, so that equal sequences of calls behave equally.

    Parameters
    ----------
    clock : callable
        Seconds, for the log alone.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._complaints = Complaints(clock)
        self._pause = 1
        self._left = 0
        self._good = 0

    @property
    def failures(self) -> int:
        """Failures since the start."""
        return self._complaints.count

    @property
    def paused(self) -> bool:
        """Whether a pause is on."""
        return self._left > 0

    @property
    def state(self) -> tuple[int, int, int]:
        """What decides about pauses; ranks that draft for themselves put it back to the one they had in common."""
        return self._left, self._good, self._pause

    @state.setter
    def state(self, state: tuple[int, int, int]) -> None:
        """Put it back; modifies."""
        self._left, self._good, self._pause = state

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

    def pause(self) -> None:
        """Start a pause, twice as long as the last; modifies."""
        self._left, self._good = self._pause, 0
        self._pause = min(MAX_PAUSE, 2 * self._pause)

    def failed(self, doing: str, error: BaseException) -> None:
        """Count a failure, start a pause, and log unless that was done within the last minute; modifies.

        Parameters
        ----------
        doing : str
            What failed, such as `"drafting"`.
        error : BaseException
            Its traceback goes to the log.
        """
        self.pause()
        self._complaints.add(doing, f"the server goes on without drafts for {self._left} steps", error)
