"""What has to be known of a server's API to measure it; one file each for those there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from .server import Piece
from .stream import Stream


class Dialect(Protocol):
    """One kind of server.

    Attributes
    ----------
    model : str
        Name of the model that it serves.
    version : str
        Server and version, in words.
    kind : str or None
        Where its times are measured, `"measured-gpu"` or `"measured-cpu"`, if it says so.
    width : int
        Tokens a request that one step verifies; 1 where it does not speculate.
    drafter : str
        What drafts for it, whose time then is part of every step; empty where it does not speculate.
    """

    model: str
    version: str
    kind: str | None
    width: int
    drafter: str

    def request(self, prompt: str, n_tokens: int) -> tuple[str, dict[str, Any]]:
        """Path and body of a request for a stream of `n_tokens` tokens."""
        ...

    def stream(self, pieces: Sequence[Piece], n_prompt: int) -> Stream:
        """Read a streamed answer; `n_prompt` is taken where the server does not count the prompt's tokens.

        Raises
        ------
        ServerError
            The answer is an error, broke off, was not streamed, or says that its steps cannot be told apart.
        """
        ...
