"""Server-sent events out of the pieces of a streamed answer, and numbers out of their content."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, NamedTuple

from ...errors import ServerError
from .server import Piece, shown

DONE = b"[DONE]"


class Event(NamedTuple):
    """One event: a JSON object."""

    at: float  #: when its last byte arrived, seconds
    data: dict[str, Any]


def events(pieces: Iterable[Piece]) -> tuple[list[Event], bool]:
    """Events of a stream, and whether the server said that it is complete.

    Raises
    ------
    ServerError
        The answer is not a stream of JSON objects, or reports an error.
    """
    found: list[Event] = []
    rest, anything, done = b"", b"", False
    for at, data in pieces:
        anything = anything or data
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if not line.startswith(b"data:"):
                continue  # a comment, an event's name, or the empty line behind one
            text = line[5:].strip()
            if text == DONE:
                done = True
            elif text:
                found.append(Event(at, _object(text)))
    if not found:
        raise ServerError(f"got {shown(anything)}, must be a stream of events; does this server stream its answers?")
    return found, done


def _object(text: bytes) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise ServerError(f"got {shown(text)} in a stream of events, must be a JSON object")
    if data.get("error"):
        error = data["error"]
        message = error.get("message", error) if isinstance(error, dict) else error
        raise ServerError(f"the server reports: {message}")
    return data


def counted(data: Any, name: str) -> int | None:
    """The count called `name` in an object, None where there is none; raises `ServerError` for anything else."""
    value = data.get(name) if isinstance(data, dict) else None
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**31:
        raise ServerError(f"{name}: got {shown(json.dumps(value).encode())} from the server, must be a count")
    return value


def objects(data: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The list of objects called `name`, empty where there is none; raises `ServerError` for anything else."""
    value = data.get(name) or []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ServerError(f"{name}: got {shown(json.dumps(value).encode())} from the server, must be a list of objects")
    return value
