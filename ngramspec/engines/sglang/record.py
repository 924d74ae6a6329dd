"""Served traffic written as a trace: whole files or none, old ones making room, and never a word to the server."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .complaints import Complaints
from .config import RecordConfig

#: Rows that may wait, as a multiple of a file's; more are dropped.
MAX_WAITING = 4

#: Token ids turned into text at a time. In between, threads of the server have their turn.
PIECE = 1024

Row = dict[str, Any]


class Recorder:
    """Writes rows in a thread of its own; a failure costs rows, is counted and logged, and nothing else.

    Parameters
    ----------
    config : RecordConfig
        Settings.
    clock : callable
        Seconds since 1970, for names and ages.

    Attributes
    ----------
    n_recorded, n_dropped : int
        Rows in files, and rows lost.
    """

    def __init__(self, config: RecordConfig, clock: Callable[[], float] = time.time) -> None:
        self.config = config
        self.n_recorded = self.n_dropped = 0
        self._clock = clock
        self._salt = as_bytes(config.salt or secrets.token_hex(16))
        self._complaints = Complaints()
        self._changed = threading.Condition()
        self._waiting: list[Row] = []
        self._nbytes = self._n_files = 0
        self._oldest = 0.0
        self._asked = self._done = 0  # flushes
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="ngramspec-record", daemon=True)
        self._thread.start()

    def hashed(self, name: object) -> str | None:
        """A session's or tenant's name as it is recorded, None where it has none."""
        return None if name is None else self._hash(name).hex()

    def chosen(self, key: object) -> bool:
        """Whether the request or session of this name is in the fraction recorded."""
        return self.config.fraction >= 1.0 or int.from_bytes(self._hash(key), "big") < self.config.fraction * 2**64

    def _hash(self, name: object) -> bytes:
        """8 bytes of a name, which clients choose: any text, and whatever else JSON can hold."""
        return hashlib.blake2b(as_bytes(str(name)), digest_size=8, key=hashlib.sha256(self._salt).digest()).digest()

    def add(self, row: Row) -> None:
        """Hand over one request; returns at once. Modifies.

        Parameters
        ----------
        row : dict
            Fields of a trace's row; `prompt_ids` and `output_ids` are int32 arrays that nobody changes any more.
        """
        nbytes = 6 * (len(row["prompt_ids"]) + len(row["output_ids"])) + 200
        with self._changed:
            if self._closed or self._nbytes > MAX_WAITING * self.config.file_bytes:
                self.n_dropped += 1
                return
            if not self._waiting:
                self._oldest = self._clock()
            self._waiting.append(row)
            self._nbytes += nbytes
            self._changed.notify()

    def flush(self, timeout: float | None = None) -> bool:
        """Have everything written now; whether it was within `timeout` seconds (None: do not wait)."""
        with self._changed:
            self._asked += 1
            mine = self._asked
            self._changed.notify_all()
            return timeout is not None and self._changed.wait_for(lambda: self._done >= mine, timeout)

    def close(self, timeout: float = 5.0) -> None:
        """Write what waits and end; waits for `timeout` seconds at most."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(timeout)

    def _due(self) -> bool:
        age = self._clock() - self._oldest
        return self._nbytes >= self.config.file_bytes or age >= self.config.seconds

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._closed or self._asked > self._done or (self._waiting and self._due())):
                    left = self._oldest + self.config.seconds - self._clock() if self._waiting else None
                    self._changed.wait(None if left is None else max(0.05, left))
                rows, self._waiting, self._nbytes = self._waiting, [], 0
                asked, closed = self._asked, self._closed
            if rows:
                self._write_or_complain(rows)
            with self._changed:
                self._done = asked
                self._changed.notify_all()
                if closed and not self._waiting:
                    return

    def _write_or_complain(self, rows: list[Row]) -> None:
        try:
            self._write(rows)
            self.n_recorded += len(rows)
        except Exception as error:
            self.n_dropped += len(rows)
            consequence = f"{len(rows)} requests are not recorded, the server goes on"
            self._complaints.add("recording", consequence, error, trace=not isinstance(error, OSError))

    def _write(self, rows: list[Row]) -> None:
        folder = Path(self.config.folder)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        name = f"trace-{int(self._clock() * 1000)}-{os.getpid()}-{self._n_files:05d}.jsonl.gz"
        self._n_files += 1
        beside = folder / f".{name}.part"
        rows.sort(key=lambda row: row.get("timestamp", 0.0))  # a trace is in order of arrival
        try:
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as raw:
                with gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=5, mtime=0) as packed:
                    for row in rows:
                        for piece in _pieces(row):
                            packed.write(piece)
                raw.flush()
                os.fsync(raw.fileno())
            beside.replace(folder / name)
        except BaseException:
            with suppress(OSError):
                beside.unlink()
            raise
        self._make_room(folder, name)

    def _make_room(self, folder: Path, newest: str) -> None:
        files = sorted((path.stat().st_mtime_ns, path) for path in folder.glob("trace-*.jsonl.gz"))
        total = sum(path.stat().st_size for _, path in files)
        for _, path in files:
            if total <= self.config.max_bytes or path.name == newest:
                break
            total -= path.stat().st_size
            path.unlink()


def as_bytes(text: str) -> bytes:
    """UTF-8 of any text, halves of characters included."""
    return text.encode("utf-8", "surrogatepass")


def row_of(request: Any, prompt: NDArray[np.int32], output: NDArray[np.int32], told: Mapping[str, Any]) -> Row:
    """One request as a row of a trace; its ids and names are left out, `told` adds what may be told of them.

    Parameters
    ----------
    request : Request
        As the engine has it.
    prompt, output : int32[n]
        Copies.
    told : mapping
        More fields; None leaves a field out.
    """
    ended = getattr(request, "finished_reason", None)
    parameters = request.sampling_params
    sampling = {
        name: value
        for name in ("temperature", "top_p", "top_k", "min_p", "max_new_tokens")
        if isinstance(value := getattr(parameters, name, None), (int, float))
    }
    fields = {
        "finish_reason": None if ended is None else ended.to_json().get("type"),
        "sampling": sampling or None,
        **told,
        "prompt_ids": prompt,
        "output_ids": output,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _pieces(row: Row) -> Any:
    """A row as JSON, in pieces short enough that no thread of the server waits for the interpreter."""
    short = {name: value for name, value in row.items() if name not in ("prompt_ids", "output_ids")}
    yield json.dumps(short, separators=(",", ":"))[:-1].encode() + (b"," if short else b"")
    for name, end in (("prompt_ids", b"],"), ("output_ids", b"]}\n")):
        yield f'"{name}":['.encode()
        ids = row[name]
        for start in range(0, len(ids), PIECE):
            yield (("," if start else "") + ",".join(map(str, ids[start : start + PIECE].tolist()))).encode()
            time.sleep(0)
        yield end
