"""Cost models from files: JSON (a fit, two numbers, or points) and CSV (points)."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from typing import Any

from ..caches.files import StrPath, as_path
from ..errors import ConfigError
from .cost import CostModel
from .cost_points import Point, read_point

_LABELS = ("name", "kind", "note", "captured", "exposed_us", "measured", "includes_drafting")
_LINEAR = ("base_ms", "per_token_ms", "per_kv_token_ms")
_TWO = ("baseline_tps", "verify_ms")
_COLUMNS = ("phase", *Point._fields)


def load(path: StrPath) -> CostModel:
    """Read a cost model from `*.json` or `*.csv`.

    JSON is an object with `points` (a list of objects, see `CostModel.from_points`), or with `base_ms`, `per_token_ms`
    and `per_kv_token_ms`, or with `baseline_tps` and `verify_ms`; and optionally `name`, `kind`, `note`, `captured`,
    `exposed_us`, `includes_drafting` and `measured` (a list of objects with the fields of `Throughput`). CSV has a head
    line of `batch`, `n_tokens`, `ms`, and optionally `kv_tokens` and `phase`.

    Raises
    ------
    ConfigError
        Names the file, and the row and field where there are any.
    """
    file = as_path(path)
    readers = {".json": _read_json, ".csv": _read_csv}
    if file.suffix not in readers:
        raise ConfigError(f"{file}: got a file named {file.suffix or 'without ending'!r}, allowed .json or .csv")
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ConfigError(f"{file}: cannot be read: {why}; check it, or measure one: ngramspec calibrate") from None
    try:
        return readers[file.suffix](text, file.stem)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None


def parse(content: Mapping[str, Any], name: str = "custom") -> CostModel:
    """Build from an object as `load` reads it from JSON.

    Parameters
    ----------
    content : mapping
        See `load`.
    name : str
        Name of the model where the object gives none.

    Raises
    ------
    ConfigError
        Names the field.
    """
    ways = {"points": ("points",), "fit": _LINEAR, "two numbers": _TWO}
    chosen = [way for way, names in ways.items() if any(name in content for name in names)]
    if len(chosen) != 1:
        raise ConfigError(
            f"got fields {', '.join(content) or 'of no name'}; give either points, or {', '.join(_LINEAR)}, "
            f"or {' and '.join(_TWO)}"
        )
    fields = ways[chosen[0]]
    for field in content:
        if field not in (*fields, *_LABELS):
            raise ConfigError(f"{field}: unknown field, allowed {', '.join((*fields, *_LABELS))}")
    for field in fields:
        if field not in content and field != "per_kv_token_ms":
            raise ConfigError(f"{field}: missing")
    labels: dict[str, Any] = {"name": name} | {field: content[field] for field in _LABELS if field in content}
    _check_labels(labels)
    if fields is _LINEAR:
        return CostModel.from_linear(**{field: content[field] for field in _LINEAR if field in content}, **labels)
    if fields is _TWO:
        return CostModel.from_two(**{field: content[field] for field in _TWO}, **labels)
    points = content["points"]
    if not isinstance(points, list) or not all(isinstance(point, dict) for point in points):
        raise ConfigError("points: must be a list of objects")
    return CostModel.from_points(points, **labels)


def _check_labels(labels: dict[str, Any]) -> None:
    for field in ("name", "kind", "note", "includes_drafting"):
        if field in labels and not isinstance(labels[field], str):
            raise ConfigError(f"{field}: got {labels[field]!r}, must be text")
    if not isinstance(labels.get("captured", []), list):
        raise ConfigError(f"captured: got {labels['captured']!r}, must be a list of integers")
    measured = labels.get("measured", [])
    if not isinstance(measured, list) or not all(isinstance(item, dict) for item in measured):
        raise ConfigError("measured: must be a list of objects")


def _read_json(text: str, name: str) -> CostModel:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"must hold an object, got {type(content).__name__}")
    return parse(content, name)


def _read_csv(text: str, name: str) -> CostModel:
    rows = csv.DictReader(text.splitlines(), strict=True)
    head = rows.fieldnames or []
    for column in ("batch", "n_tokens", "ms"):
        if column not in head:
            raise ConfigError(f"row 1: no column {column!r}; the head line needs batch, n_tokens and ms")
    for column in head:
        if column not in _COLUMNS:
            raise ConfigError(f"row 1: unknown column {column!r}, allowed {', '.join(_COLUMNS)}")
        if head.count(column) > 1:
            raise ConfigError(f"row 1: column {column!r} stands there twice; leave one out")
    points: list[dict[str, Any]] = []
    try:
        for row in rows:
            # DictReader files what stands beyond the last column under None.
            if None in row:
                raise ConfigError(f"row {rows.line_num}: has more fields than the head line")
            point = {column: _cell(column, cell, rows.line_num) for column, cell in row.items() if cell}
            try:
                read_point(point)
            except ConfigError as error:
                raise ConfigError(f"row {rows.line_num}, field {error}") from None
            points.append(point)
    except csv.Error as error:
        raise ConfigError(f"row {rows.line_num}: {error}") from None
    return CostModel.from_points(points, name=name)


def _cell(column: str, cell: str, row: int) -> Any:
    if column == "phase":
        return cell.strip()
    try:
        return float(cell) if column == "ms" else int(cell)
    except ValueError:
        wanted = "a number" if column == "ms" else "an integer"
        raise ConfigError(f"row {row}, field {column}: got {cell!r}, must be {wanted}") from None
