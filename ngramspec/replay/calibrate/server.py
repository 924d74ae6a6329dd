"""HTTP to one server: JSON answers, and streams whose pieces are stamped with the time of their arrival."""

from __future__ import annotations

import http.client
import json
import math
import socket
import threading
from contextlib import suppress
from time import perf_counter
from typing import Any, NamedTuple, NoReturn
from urllib.parse import urlsplit

from ...errors import ConfigError, ServerError

#: Most bytes read of one answer, and those of a refusal that are shown.
MAX_BYTES, MAX_SHOWN = 64 << 20, 300

#: Most bytes taken at a time: a piece is what has arrived, which is mostly one event.
PIECE = 1 << 16


class OutOfTime(ServerError):
    """The time limit for everything has been reached."""


class Refused(ServerError):
    """The server answered with a status other than 200.

    Parameters
    ----------
    text : str
        What to tell the user.
    status : int
        HTTP status.
    """

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class Piece(NamedTuple):
    """Bytes of a streamed answer."""

    at: float  #: seconds, by `time.perf_counter`
    data: bytes


class Server:
    """An address, the only one that is contacted: redirects are not followed, proxies not used.

    Parameters
    ----------
    url : str
        `http://host:port`, or https; a path in front of the API is kept, a `/v1` at its end is not needed.
    api_key : str, optional
        Sent as bearer token.
    silence_s : float
        Seconds without any byte after which a request has failed.
    deadline : float
        By `time.perf_counter`: nothing is waited for beyond it.

    Raises
    ------
    ConfigError
        The address is not one of a web server.
    """

    def __init__(
        self, url: str, *, api_key: str | None = None, silence_s: float = 60.0, deadline: float = math.inf
    ) -> None:
        try:
            parts = urlsplit(url if isinstance(url, str) else "")
            host, port = parts.hostname, parts.port
            (host or "").encode("idna")  # what the system does to look it up
        except ValueError:
            parts, host, port = urlsplit(""), None, None
        rest = parts.netloc + parts.path
        plain = rest.isprintable() and " " not in rest and parts.path.isascii()
        if parts.scheme not in ("http", "https") or not host or not plain or parts.query or parts.username:
            raise ConfigError(f"url: got {url!r}, allowed http://HOST:PORT or https://HOST:PORT, without user or query")
        self.name = f"{parts.scheme}://{parts.netloc}"
        self._kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._host, self._port = host, port
        self._path = parts.path.rstrip("/").removesuffix("/v1")
        self._headers = {"Content-Type": "application/json"}
        if api_key is not None:
            if not (api_key.isascii() and api_key.isprintable()):  # a secret, which no message shows
                raise ConfigError("api_key: holds characters that no header takes, allowed printable ASCII")
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._silence_s, self._deadline = silence_s, deadline
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._aborted = False

    def text(self, path: str) -> bytes:
        """What the server answers to a GET.

        Raises
        ------
        ServerError
            Not reachable, or refused.
        """
        return b"".join(piece.data for piece in self._exchange("GET", path, None))

    def get(self, path: str) -> Any:
        """What the server answers to a GET, decoded; None where it does not know the path.

        Raises
        ------
        ServerError
            Not reachable, another refusal, or not JSON.
        """
        try:
            text = self.text(path)
        except Refused as error:
            if error.status in (404, 405):
                return None
            raise
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise ServerError(f"{self.name}{path}: got {shown(text)}, must be JSON; is this the server?") from None

    def stream(self, path: str, body: dict[str, Any]) -> list[Piece]:
        """Post `body` and collect the answer as it arrives.

        Raises
        ------
        Refused
            A status other than 200, with what the server says of it.
        OutOfTime
            The deadline has come.
        ServerError
            Not reachable, silent for too long, broken off, or an answer without end.
        """
        return self._exchange("POST", path, json.dumps(body).encode())

    def abort(self) -> None:
        """End every exchange that other threads are waiting in; no other will begin."""
        with self._lock:
            self._aborted = True
            for sock in self._open:
                with suppress(OSError):  # it may have ended by itself
                    sock.shutdown(socket.SHUT_RDWR)

    def _exchange(self, method: str, path: str, body: bytes | None) -> list[Piece]:
        where = f"{self.name}{path}"
        connection = self._kind(self._host, self._port, timeout=self._patience(where))
        sock = None
        try:
            connection.connect()
            sock = connection.sock
            with self._lock:
                if self._aborted:
                    raise ServerError(f"{where}: given up, because another request failed")
                self._open.add(sock)
            connection.request(method, self._path + path, body, self._headers)
            response = connection.getresponse()
            pieces: list[Piece] = []
            n_bytes = 0
            while data := self._read(response, sock, where):
                pieces.append(Piece(perf_counter(), data))
                n_bytes += len(data)
                if n_bytes > MAX_BYTES:
                    raise ServerError(f"{where}: the answer exceeds {MAX_BYTES >> 20} MiB; ask for fewer tokens")
            if response.status != 200:
                text = shown(b"".join(piece.data for piece in pieces))
                raise Refused(f"{where}: got status {response.status} {response.reason}: {text}", response.status)
            return pieces
        except (OSError, http.client.HTTPException) as error:
            self._fail(where, error, connected=sock is not None)
        finally:
            with self._lock:
                if sock is not None:
                    self._open.discard(sock)
            connection.close()

    def _read(self, response: http.client.HTTPResponse, sock: socket.socket, where: str) -> bytes:
        sock.settimeout(self._patience(where))
        return response.read1(PIECE)

    def _patience(self, where: str) -> float:
        left = self._deadline - perf_counter()
        if left <= 0:
            raise OutOfTime(f"{where}: the time limit is reached; raise it, or measure fewer batches or tokens")
        return min(self._silence_s, left)

    def _fail(self, where: str, error: Exception, connected: bool) -> NoReturn:
        if self._aborted:
            raise ServerError(f"{where}: given up, because another request failed") from None
        if not connected:
            why = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise ServerError(f"{self.name}: cannot be reached: {why}; is the server up, is this its port?") from None
        if isinstance(error, TimeoutError):
            self._patience(where)
            raise ServerError(f"{where}: no byte for {self._silence_s:g} s; is the server stuck?") from None
        why = str(error) or type(error).__name__
        raise ServerError(f"{where}: the connection broke off ({why}); see the server's log") from None


def shown(data: bytes) -> str:
    """The beginning of an answer, on one line."""
    text = " ".join(data[: 4 * MAX_SHOWN].decode("utf-8", "replace").split())
    return repr(text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…")
