"""A pickle reader that can make plain values and inert records, and nothing else."""

from __future__ import annotations

import pickle
from typing import IO, Any

#: Classes that SGLang's dumps are known to hold, by module. They are not loaded: records with their fields stand in.
EXPECTED = {
    "sglang.srt.managers.io_struct": ("GenerateReqInput", "EmbeddingReqInput"),
    "sglang.srt.server_args": ("ServerArgs", "_rebuild_server_args"),
    "sglang.srt.sampling.sampling_params": ("SamplingParams",),
    "sglang.srt.managers.schedule_batch": ("Modality",),
}


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


class Unexpected(Exception):
    """A pickle names something that is not expected in it."""


#: One subclass a name, so that records can be told apart.
_RECORDS = {
    (module, name): type(name, (Inert,), {"__slots__": ()}) for module, names in EXPECTED.items() for name in names
}


class _Reader(pickle.Unpickler):
    """Every class and function that a pickle uses goes through `find_class`; this one never imports anything."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _RECORDS[module, name]
        except KeyError:
            raise Unexpected(f"{module}.{name}") from None

    def persistent_load(self, pid: Any) -> Any:
        raise Unexpected("an object kept elsewhere")


def load(file: IO[bytes]) -> Any:
    """The object in a pickle. No code of the pickle's choosing runs; a hostile one can still ask for much memory.

    Raises
    ------
    Unexpected
        It names a class or function that is not in `EXPECTED`.
    pickle.UnpicklingError
        It is damaged or cut off.
    """
    try:
        return _Reader(file).load()
    except (Unexpected, pickle.UnpicklingError):
        raise
    except Exception as error:  # what a damaged pickle raises depends on where it is damaged
        raise pickle.UnpicklingError(f"{type(error).__name__}: {error}") from None
