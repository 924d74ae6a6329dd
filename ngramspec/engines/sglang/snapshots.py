"""What was learned, kept over restarts of the server: loaded at start, saved beside serving."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ... import snapshot
from ...drafting.drafter import Drafter
from ...errors import SnapshotError
from .complaints import Complaints
from .config import SnapshotConfig

_log = logging.getLogger("ngramspec")


class Snapshots:
    """Saves and loads one drafter's shared state; nothing here raises.

    Parameters
    ----------
    config : SnapshotConfig
        Settings.
    tokenizer : str
        What tells the model's tokenizer apart, as `snapshot.save` takes it; nothing does where it is empty.
    clock : callable
        Seconds.

    Attributes
    ----------
    n_saved : int
        Files written.
    """

    def __init__(self, config: SnapshotConfig, tokenizer: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.config = config
        self.n_saved = 0
        self._tokenizer, self._clock = tokenizer or None, clock
        self._next = clock() + config.seconds
        self._complaints = Complaints(clock)
        self._writing: threading.Thread | None = None

    @property
    def failures(self) -> int:
        """Files that could not be written."""
        return self._complaints.count

    @property
    def due(self) -> bool:
        """Whether it is time to save again."""
        return self._clock() >= self._next

    def load(self, drafter: Drafter) -> bool:
        """Load what an earlier server saved, if it is there and fits; modifies the drafter. Whether it did."""
        path = self.config.path
        if not os.path.exists(path):
            _log.warning("ngramspec: no snapshot at %s yet", path)
            return False
        try:
            snapshot.load(drafter, path, tokenizer=self._tokenizer)
        except (SnapshotError, OSError) as error:
            _log.error("ngramspec: the snapshot is refused, the server starts without it: %s", error)
            return False
        _log.warning("ngramspec: %d tokens of shared text from %s", drafter.stats()["shared_tokens"], path)
        return True

    def save(self, drafter: Drafter, *, wait: bool = False) -> None:
        """Copy the drafter's state and write it in a thread; does not modify the drafter.

        The copy costs what copying `drafter.nbytes` does, and as much memory until the file is written.

        Parameters
        ----------
        drafter : Drafter
            Between two of its calls.
        wait : bool
            Return when the file is written.
        """
        self._next = self._clock() + self.config.seconds
        if self._writing is not None and self._writing.is_alive():
            if not wait:
                return
            self._writing.join()
        try:
            copy = Drafter(drafter.config, drafter.arena.buffer.copy())
        except Exception as error:
            self._complain(error)
            return
        self._writing = threading.Thread(target=self._write, args=(copy,), name="ngramspec-snapshot", daemon=True)
        self._writing.start()
        if wait:
            self._writing.join()

    def _write(self, copy: Drafter) -> None:
        try:
            path = Path(self.config.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            snapshot.save(copy, path, tokenizer=self._tokenizer)
            self.n_saved += 1
        except Exception as error:
            self._complain(error)

    def _complain(self, error: Exception) -> None:
        expected = isinstance(error, OSError)
        self._complaints.add("saving a snapshot", "the server goes on", error, trace=not expected)
