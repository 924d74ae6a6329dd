"""What an operator may choose for the drafts inside a server."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

from ...config import DrafterConfig, check
from ...errors import ConfigError

#: Environment variables that switch the plugin on.
SWITCH, CONFIG_FILE = "NGRAMSPEC", "NGRAMSPEC_CONFIG"

SHARES = ("tenant", "all users", "nothing")
TOPOLOGIES = ("auto", "chain")


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Settings of the drafts inside one server; every scheduler process must get the same.

    Parameters
    ----------
    max_bytes : int
        Hard limit of the state of one scheduler process, allocated at start-up.
    share : {"tenant", "all users", "nothing"}
        Whose outputs a request may be drafted from beside its own session's text. `tenant`: those of requests with the
        same `cache_salt` or `extra_key`, and nobody's without one. `all users`: everybody's.
    topology : {"auto", "chain"}
        `auto`: trees where the attention backend is known to read tree masks, else chains.
    min_prob : float
        Leave out tokens whose path probability is below this. Rows are verified all the same: the engine's number of
        rows is fixed.
    prompt_tokens_per_step : int
        Prompt tokens read in one step of the scheduler; what is left of a longer prompt follows in later steps, and
        its request is not drafted for until then. Cost: about 0.3 µs a token, while the model runs.
    draft_threads : int
        See `DrafterConfig`.
    """

    max_bytes: int = 512 * 2**20
    share: str = "tenant"
    topology: str = "auto"
    min_prob: float = 0.0
    prompt_tokens_per_step: int = 16_384
    draft_threads: int = 1

    def __post_init__(self) -> None:
        check(self.max_bytes, "max_bytes", 2**20, 2**40)
        check(self.prompt_tokens_per_step, "prompt_tokens_per_step", 256, 2**30)
        check(self.draft_threads, "draft_threads", 1, 64)
        for name, value, allowed in (("share", self.share, SHARES), ("topology", self.topology, TOPOLOGIES)):
            if value not in allowed:
                raise ConfigError(f"{name}: got {value!r}, allowed {', '.join(map(repr, allowed))}")
        number = isinstance(self.min_prob, (int, float)) and not isinstance(self.min_prob, bool)
        if not number or not 0 <= self.min_prob <= 1:
            raise ConfigError(f"min_prob: got {self.min_prob!r}, allowed 0 to 1")

    def drafter(self, *, vocab_size: int, eos_ids: tuple[int, ...], max_requests: int) -> DrafterConfig:
        """The drafter's settings for a model and a server; raises `ConfigError` where `max_bytes` is too little.

        Parameters
        ----------
        vocab_size : int
            Of the model.
        eos_ids : tuple of int
            Of the model; the first 16 count.
        max_requests : int
            That may be followed at once.
        """
        return DrafterConfig.with_max_bytes(
            self.max_bytes,
            vocab_size=vocab_size,
            eos_ids=tuple(sorted(eos_ids))[:16],
            max_requests=max_requests,
            draft_threads=self.draft_threads,
            deferred=True,
        )

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build from a mapping; an unknown key is a `ConfigError` that names it and what is allowed."""
        names = [f.name for f in fields(cls)]
        for key in values:
            if key not in names:
                raise ConfigError(f"$.{key}: unknown setting; allowed are {', '.join(names)}")
        return cls(**values)

    def to_dict(self) -> dict[str, Any]:
        """Every setting as plain values."""
        return asdict(self)


def asked(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the environment asks for our drafts: `NGRAMSPEC=1`, or a file in `NGRAMSPEC_CONFIG`.

    `NGRAMSPEC=0` wins over the file, so that one variable rolls a deployment back.
    """
    switch = environment.get(SWITCH, "")
    if switch not in ("", "0", "1"):
        raise ConfigError(f"{SWITCH}: got {switch!r}, allowed 1 (on) and 0 (off)")
    return switch == "1" or (switch != "0" and bool(environment.get(CONFIG_FILE)))


def from_environment(environment: Mapping[str, str] = os.environ) -> EngineConfig:
    """The configuration in the file that `NGRAMSPEC_CONFIG` names, or the defaults; raises `ConfigError`."""
    path = environment.get(CONFIG_FILE)
    if not path:
        return EngineConfig()
    try:
        values = json.loads(Path(path).read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{CONFIG_FILE}={path}: cannot be read as JSON: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{CONFIG_FILE}={path}: must hold one JSON object, got {type(values).__name__}")
    return EngineConfig.from_dict(values)
