"""Caches that are asked the same things side by side and must answer alike, byte for byte."""

from typing import Any

import numpy as np

from ngramspec.draft import Draft, DraftBatch
from ngramspec.errors import NgramSpecError


class Twins:
    """Stands for several caches: every call goes to each; results, errors and states must be equal.

    Parameters
    ----------
    caches : list
        Of one kind and configuration; the first one's answers are handed on.
    """

    def __init__(self, caches: list[Any]) -> None:
        self.caches = caches

    def __getattr__(self, name: str) -> Any:
        values = [getattr(cache, name) for cache in self.caches]
        if not callable(values[0]):
            assert all(value == values[0] for value in values)
            return values[0]

        def call(*arguments: Any, **settings: Any) -> Any:
            results = [outcome(value, arguments, settings) for value in values]
            assert all(plain(result) == plain(results[0]) for result in results), (name, results)
            self.check_states()
            if isinstance(results[0], NgramSpecError):
                raise results[0]
            return results[0]

        return call

    def draft_batch(self, slots: Any, out: DraftBatch, **settings: Any) -> None:
        """Draft into `out` by the first cache, into arrays of their own by the others."""
        outs = [out, *(DraftBatch.allocate(len(out.n_draft), out.width) for _ in self.caches[1:])]
        for cache, own in zip(self.caches, outs):
            cache.draft_batch(slots, own, **settings)
        for i in range(len(slots)):
            assert all(plain(own.row(i)) == plain(out.row(i)) for own in outs)
        self.check_states()

    def check_states(self) -> None:
        """Every byte of their states is equal."""
        first = self.caches[0].arena.buffer
        assert all(np.array_equal(first, cache.arena.buffer) for cache in self.caches[1:])


def outcome(function: Any, arguments: tuple[Any, ...], settings: dict[str, Any]) -> Any:
    """What a call returns, or the error it raises."""
    try:
        return function(*arguments, **settings)
    except NgramSpecError as error:
        return error


def plain(value: Any) -> Any:
    """A result in parts that compare by value."""
    if isinstance(value, NgramSpecError):
        return type(value), str(value)
    if isinstance(value, Draft):
        parts = (value.tokens, value.parents, value.probs, value.sources)
        return [part.tolist() for part in parts], value.match_length, value.reason
    return value.tolist() if isinstance(value, np.ndarray) else value
