"""One attention backend and graph runner a width: experimental, off unless asked for, never run on a GPU.

An engine captures its graphs for one number of rows a request, and some attention backends take that number from the
server's settings, not from the step. A narrower step then runs without a graph, or is wrong. With a second pair, built
while the settings say the narrower width, both widths have graphs of their own and every backend reads its own width.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

_log = logging.getLogger("ngramspec")


class State(NamedTuple):
    """What a model runner verifies one width with."""

    attention: Any  #: its attention backend
    graphs: Any  #: its graph runner; None where the server runs without graphs


Settings = Callable[[int], AbstractContextManager[None]]


class States:
    """The pairs of one model runner.

    Parameters
    ----------
    runner : ModelRunner
        With `attn_backend` and `decode_cuda_graph_runner`, which are swapped.
    n_rows : int
        The server's width, which the runner is built for.
    """

    def __init__(self, runner: Any, n_rows: int) -> None:
        self._runner = runner
        self._states = {n_rows: State(runner.attn_backend, runner.decode_cuda_graph_runner)}

    @property
    def widths(self) -> tuple[int, ...]:
        """Widths that have a pair, ascending."""
        return tuple(sorted(self._states))

    def build(self, width: int, settings: Settings, make: Callable[[int], State]) -> bool:
        """Build a pair; whether that worked. Modifies; the runner and its settings are as before in any case.

        Parameters
        ----------
        width : int
            Rows a request.
        settings : callable
            A context in which the engine's settings say this width.
        make : callable
            Builds the pair.
        """
        before = State(self._runner.attn_backend, self._runner.decode_cuda_graph_runner)
        try:
            with settings(width):
                self._states[width] = make(width)
        except Exception as error:
            _log.error(
                "ngramspec: no graphs for %d row(s) a request, every step verifies %s: %s",
                width,
                "/".join(map(str, self.widths)),
                error,
                exc_info=error,
            )
            return False
        finally:
            self._put(before)
        return True

    def drop(self, width: int) -> None:
        """Forget a pair, as when another rank could not build it; modifies."""
        self._states.pop(width, None)

    @contextmanager
    def using(self, width: int) -> Iterator[None]:
        """Run a step of this width, which has a pair; the runner is as before when it ends, however it does."""
        before = State(self._runner.attn_backend, self._runner.decode_cuda_graph_runner)
        self._put(self._states[width])
        try:
            yield
        finally:
            self._put(before)

    def _put(self, state: State) -> None:
        self._runner.attn_backend, self._runner.decode_cuda_graph_runner = state
