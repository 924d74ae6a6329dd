"""Every error this package raises on purpose; each text says what, got, allowed and what to do."""


class NgramSpecError(Exception):
    """Base of all errors raised by ngramspec."""


class ConfigError(NgramSpecError, ValueError):
    """A setting or an argument is outside what is allowed."""


class CapacityError(NgramSpecError):
    """A hard limit (requests, tokens, bytes) was reached."""


class SnapshotError(NgramSpecError):
    """A buffer or file does not hold the state it should."""


class TraceError(NgramSpecError):
    """A trace cannot be read, or does not suit what was asked of it."""


class EngineContractError(NgramSpecError):
    """An engine differs from the version an adapter was written for."""


class NativeError(NgramSpecError):
    """The C core cannot be compiled, loaded or asked for this."""


class ServerError(NgramSpecError):
    """An inference server cannot be reached, refuses, or does not answer as it should."""
