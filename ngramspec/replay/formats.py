"""Reading and writing traces: JSONL (gzip or not), `.npz`, Parquet. The content of a file decides how it is read."""

from __future__ import annotations

import gzip
import json
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..caches.files import StrPath, as_path
from ..errors import ConfigError, TraceError
from .files import replacing
from .trace import Labels, Ragged, Trace

#: Version of the `.npz` layout.
NPZ_VERSION = 1

#: What numpy raises on an archive that is not one of ours or is damaged; a wrong header may ask for any memory.
_DAMAGED = (
    KeyError,
    ValueError,
    TypeError,
    RuntimeError,
    MemoryError,
    EOFError,
    zipfile.BadZipFile,
    zlib.error,
)

_RAGGED = ("prompt", "output", "eos")
_LABELS = ("session", "finish_reason", "category", "sampling", "spec", "retokenised")


def read(path: StrPath, *, skip_bad: bool = False) -> Trace:
    """Read a trace.

    Parameters
    ----------
    path : path
        JSONL, gzip-compressed JSONL, `.npz` written by `write`, or Parquet.
    skip_bad : bool
        Leave bad rows out; the trace says how many (`n_skipped`) and why (`skipped`). Otherwise the first one raises.

    Returns
    -------
    Trace
        Text fields (`prompt`, `output`) are not kept.

    Raises
    ------
    TraceError
        The file cannot be read, a row is bad (file, row, field, what was got, what is allowed), or there are none.

    Examples
    --------
    >>> from ngramspec.replay import read
    >>> read("nowhere.jsonl")
    Traceback (most recent call last):
        ...
    ngramspec.errors.TraceError: nowhere.jsonl: cannot be read: No such file or directory; check the path
    """
    path = as_path(path)
    try:
        with path.open("rb") as file:
            start = file.read(4)
            file.seek(0)
            if start[:2] == b"PK":
                return _read_npz(path, file)
            if start == b"PAR1":
                return _read_parquet(path, skip_bad)
            if start == b"\x28\xb5\x2f\xfd":
                raise TraceError(f"{path}: got zstd-compressed data, allowed gzip or none; decompress it first")
            return _read_jsonl(path, gzip.GzipFile(fileobj=file) if start[:2] == b"\x1f\x8b" else file, skip_bad)
    except OSError as error:
        raise TraceError(f"{path}: cannot be read: {error.strerror or error}; check the path") from None


def _read_jsonl(path: Path, file: IO[bytes] | gzip.GzipFile, skip_bad: bool) -> Trace:
    import msgspec

    from .rows import IMPORT, Row, Rows, fail

    rows = Rows(path.name, skip_bad)
    decoder = msgspec.json.Decoder(Row)
    for number, line in enumerate(_lines(path, file, rows.bad), 1):
        if not line.strip(b" \t\r\n\xef\xbb\xbf"):
            continue
        where = f"{path}, row {number}"
        try:
            try:
                rows.add(decoder.decode(line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line))
            except msgspec.ValidationError as error:
                try:
                    given = msgspec.json.decode(line.removeprefix(b"\xef\xbb\xbf"))
                except (msgspec.DecodeError, RecursionError) as unreadable:  # such as a number beyond any float
                    raise TraceError(f"{where}: not JSON ({unreadable})") from None
                fail(where, error, given)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                text = line[:40].decode("utf-8", "replace").strip()
                advice = "" if rows.rows else f"; {IMPORT}"
                raise TraceError(
                    f"{where}: not JSON ({error}): got {text!r}, each line must be one object{advice}"
                ) from None
        except TraceError as error:
            rows.bad(error)
    return rows.trace()


def _lines(path: Path, file: IO[bytes] | gzip.GzipFile, bad: Callable[[TraceError], None]) -> Iterator[bytes]:
    """Lines up to the end, or up to where compressed data breaks off, which is reported as one bad row."""
    number = 0
    try:
        for line in file:
            number += 1
            yield line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        bad(TraceError(f"{path}, after row {number}: compressed data is cut off or damaged ({error}); copy it anew"))


def _read_parquet(path: Path, skip_bad: bool) -> Trace:
    import msgspec
    import pyarrow
    import pyarrow.parquet

    from .rows import Row, Rows, fail

    rows = Rows(path.name, skip_bad)
    number = 0
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            names = [name for name in Row.__struct_fields__ if name in file.schema_arrow.names]
            for batch in file.iter_batches(256, columns=names):
                for item in batch.to_pylist():
                    number += 1
                    try:
                        rows.add(msgspec.convert(item, Row))
                    except msgspec.ValidationError as error:
                        try:
                            fail(f"{path}, row {number}", error, item)
                        except TraceError as bad:
                            rows.bad(bad)
    except (pyarrow.ArrowException, UnicodeDecodeError) as error:
        raise TraceError(f"{path}, after row {number}: not readable as Parquet ({error})") from None
    return rows.trace()


def _read_npz(path: Path, file: IO[bytes]) -> Trace:
    try:
        with np.load(file, allow_pickle=False) as data:
            meta = json.loads(data["meta"].tobytes())
            if meta["version"] != NPZ_VERSION:
                raise TraceError(
                    f"{path}: got layout version {meta['version']}, allowed {NPZ_VERSION}; convert it anew"
                )
            parts: dict[str, Any] = {"name": path.name, "turn": data["turn"], "arrival": data["arrival"]}
            parts["ids"] = tuple(meta["ids"])
            parts |= {name: Ragged(data[name], data[f"{name}_offsets"]) for name in _RAGGED}
            # Traces written before rows could be marked as re-tokenised do not have that part.
            labels = [name for name in _LABELS if name != "retokenised" or name in meta]
            parts |= {name: Labels(data[name], tuple(meta[name])) for name in labels}
    except _DAMAGED as error:
        raise TraceError(f"{path}: not a trace written by ngramspec, or damaged ({error})") from None
    try:
        return Trace(**parts)
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from None


def write(trace: Trace, path: StrPath) -> None:
    """Write a trace; the suffix chooses the format, and the file appears whole or not at all.

    Parameters
    ----------
    trace : Trace
        What to write; `read` gives it back, its name apart.
    path : path
        Ends in `.jsonl`, `.jsonl.gz`, `.npz` or `.parquet`.

    Raises
    ------
    TraceError
        Another suffix, or the file cannot be written.
    ConfigError
        `trace` is none, or `path`.

    Examples
    --------
    >>> import tempfile
    >>> from ngramspec.replay import Trace, read, write
    >>> folder = tempfile.TemporaryDirectory()
    >>> write(Trace.of(prompts=[[1, 2]], outputs=[[3]]), f"{folder.name}/made.jsonl.gz")
    >>> read(f"{folder.name}/made.jsonl.gz").output[0].tolist()
    [3]
    >>> folder.cleanup()
    """
    if not isinstance(trace, Trace):
        raise ConfigError(f"trace: got {trace!r}, must be a Trace")
    check_suffix(path)
    name = as_path(path).name
    writer = next(write for suffix, write in _WRITERS.items() if name.endswith(suffix))
    with replacing(path) as file:
        writer(trace, file)


def check_suffix(path: StrPath) -> None:
    """Raise `TraceError` where `write` knows no format of that name."""
    if not as_path(path).name.endswith(tuple(_WRITERS)):
        raise TraceError(f"{path}: got no known suffix, allowed {', '.join(_WRITERS)}")


def _write_jsonl(trace: Trace, file: IO[bytes]) -> None:
    import msgspec

    from .rows import row_dict

    for row in range(len(trace)):
        file.write(msgspec.json.encode(row_dict(trace, row)) + b"\n")


def _write_jsonl_gz(trace: Trace, file: IO[bytes]) -> None:
    # No time stamp and no file name inside: the same trace gives the same bytes.
    with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6, mtime=0) as packed:
        _write_jsonl(trace, packed)  # type: ignore[arg-type]


def _write_npz(trace: Trace, file: IO[bytes]) -> None:
    arrays: dict[str, Any] = {"turn": trace.turn, "arrival": trace.arrival}
    meta: dict[str, Any] = {"version": NPZ_VERSION, "ids": trace.ids}
    for name in _RAGGED:
        part: Ragged = getattr(trace, name)
        arrays[name], arrays[f"{name}_offsets"] = part.tokens, part.offsets
    for name in _LABELS:
        labels: Labels = getattr(trace, name)
        arrays[name], meta[name] = labels.codes, labels.names
    # Not compressed: this is the format that loads fast.
    np.savez(file, meta=np.frombuffer(json.dumps(meta).encode(), np.uint8), **arrays)


def _write_parquet(trace: Trace, file: IO[bytes]) -> None:
    import pyarrow
    import pyarrow.parquet

    columns: dict[str, Any] = {"id": list(trace.ids)}
    columns |= {name: getattr(trace, name).tolist() for name in _LABELS}
    columns["turn"] = pyarrow.array(trace.turn, mask=trace.turn < 0)
    columns["timestamp"] = pyarrow.array(trace.arrival, mask=np.isnan(trace.arrival))
    for name in _RAGGED:
        part: Ragged = getattr(trace, name)
        columns[f"{name}_ids"] = pyarrow.LargeListArray.from_arrays(part.offsets, part.tokens)
    columns = {
        name: pyarrow.array(column, pyarrow.string()) if isinstance(column, list) else column
        for name, column in columns.items()
    }
    pyarrow.parquet.write_table(pyarrow.table(columns), file, compression="zstd")


_WRITERS: dict[str, Callable[[Trace, IO[bytes]], None]] = {
    ".jsonl": _write_jsonl,
    ".jsonl.gz": _write_jsonl_gz,
    ".npz": _write_npz,
    ".parquet": _write_parquet,
}
