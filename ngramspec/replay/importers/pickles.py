"""A pickle reader that can make plain values and inert records, and nothing else."""

from __future__ import annotations

import pickle
import re
from functools import cache
from typing import IO, Any

#: Names that dumps of SGLang are known to hold, as patterns of module and name: requests, and server arguments with
#: the configuration of a model in them. None is ever loaded: records with their fields stand in.
EXPECTED = (
    (r"sglang\.srt\.managers\.io_struct", r"GenerateReqInput|EmbeddingReqInput"),
    (r"sglang\.srt\.managers\.schedule_batch", r"Modality"),
    (r"sglang\.srt\.sampling\.sampling_params", r"SamplingParams"),
    (r"sglang\.srt\.server_args", r"ServerArgs|_rebuild_server_args"),
    (r"sglang\.srt\.model_executor\.cuda_graph_config", r"CudaGraphConfig|PhaseConfig"),
    (r"sglang\.srt\.configs\.\w+", r"[A-Z]\w+"),
    (r"transformers\.models\.\w+\.configuration_\w+", r"[A-Z]\w+Config"),
    (r"transformers\.generation\.configuration_utils", r"GenerationConfig"),
    (r"torch", r"b?float\d+(_\w+)?|u?int\d+|bool"),
)


class Inert:
    """Stands in for an object of a class that is not loaded; holds what was pickled of it.

    Attributes
    ----------
    fields : dict
        Its attributes by name.
    """

    __slots__ = ("fields",)
    fields: dict[str, Any]

    def __new__(cls, *args: Any, **options: Any) -> Inert:
        made = super().__new__(cls)
        made.fields = {}
        return made

    def __setstate__(self, state: Any) -> None:
        # With slots the state is a pair: attributes, and slots by name.
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, dict):
                self.fields.update((name, value) for name, value in part.items() if isinstance(name, str))

    def __setitem__(self, key: Any, value: Any) -> None:
        """Stands in for a kind of dict: items are of no interest."""

    def append(self, item: Any) -> None:
        """Stands in for a kind of list: items are of no interest."""


class Unexpected(Exception):
    """A pickle names something that is not expected in it."""


@cache
def _record(module: str, name: str) -> type[Inert]:
    """The class of the records that stand in for `module.name`, so that they can be told apart."""
    if not any(re.fullmatch(where, module) and re.fullmatch(what, name) for where, what in EXPECTED):
        raise Unexpected(f"{module}.{name}")
    return type(name, (Inert,), {"__slots__": ()})


class _Reader(pickle.Unpickler):
    """Every class and function that a pickle uses goes through `find_class`; this one never imports anything."""

    def find_class(self, module: str, name: str) -> Any:
        return _record(module, name)

    def persistent_load(self, pid: Any) -> Any:
        raise Unexpected("an object kept elsewhere")


def load(file: IO[bytes]) -> Any:
    """The object in a pickle. No code of the pickle's choosing runs; a hostile one can still ask for much memory.

    Raises
    ------
    Unexpected
        It names a class or function that `EXPECTED` does not know.
    pickle.UnpicklingError
        It is damaged or cut off.
    """
    try:
        return _Reader(file).load()
    except (Unexpected, pickle.UnpicklingError):
        raise
    except Exception as error:  # what a damaged pickle raises depends on where it is damaged
        raise pickle.UnpicklingError(f"{type(error).__name__}: {error}") from None
