"""Traces to hand on: names replaced, settings reduced to numbers."""

from __future__ import annotations

import secrets
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import msgspec

from ..errors import ConfigError
from .trace import Labels, Trace

#: Characters of a replaced name.
LENGTH = 16


def scrub(trace: Trace, salt: str | None = None) -> Trace:
    """A trace without names and texts: token ids, turns, times, categories and finish reasons stay as they are.

    Sessions and requests keep apart under names that only the salt's holder can recompute. This is no anonymisation:
    whoever has the tokenizer can turn the ids back into text.

    Parameters
    ----------
    trace : Trace
        What to scrub.
    salt : str, optional
        The same salt gives the same names, so that several files stay joined. None: drawn, and kept nowhere.
    """
    if salt is not None and not isinstance(salt, str):
        raise ConfigError(f"salt: got {salt!r}, allowed text or None")
    key = blake2b((salt if salt is not None else secrets.token_hex(32)).encode(errors="surrogatepass")).digest()

    def renamed(name: str) -> str:
        return blake2b(name.encode(), digest_size=LENGTH // 2, key=key).hexdigest()

    return replace(
        trace,
        ids=tuple(map(renamed, trace.ids)),
        session=Labels.of(None if name is None else renamed(name) for name in trace.session.tolist()),
        sampling=_numbers_alone(trace.sampling),
        spec=_numbers_alone(trace.spec),
        skipped=(),
    )


def _numbers_alone(settings: Labels) -> Labels:
    """Settings without texts: stop strings, schemas and grammars may quote what was asked."""
    kept = []
    for text in settings.names:
        try:
            value = _numbers(msgspec.json.decode(text))
        except (msgspec.DecodeError, RecursionError):
            value = None
        kept.append(None if value is None else msgspec.json.encode(value).decode())
    return Labels.of(None if code < 0 else kept[code] for code in settings.codes.tolist())


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        found = {name: number for name, item in value.items() if (number := _numbers(item)) is not None}
        return found or None
    if isinstance(value, list):
        return value if all(isinstance(item, int | float) for item in value) else None
    return value if isinstance(value, int | float) else None
