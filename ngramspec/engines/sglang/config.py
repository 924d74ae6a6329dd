"""What an operator may choose for the drafts inside a server."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

from ...caches.files import as_path
from ...config import DrafterConfig, check, check_bool
from ...drafting.cost import CostModel
from ...drafting.cost_file import load
from ...errors import ConfigError

#: Environment variables that switch the plugin on.
SWITCH, CONFIG_FILE = "NGRAMSPEC", "NGRAMSPEC_CONFIG"

SHARES = ("tenant", "all users", "everything", "nothing")
TOPOLOGIES = ("auto", "chain")
WIDTHS = ("fixed", "measured", "cost")
RANKS = ("first", "local")
GUARDS = ("auto", "off")


@dataclass(frozen=True, kw_only=True)
class RecordConfig:
    """Whether and how served traffic is recorded as a trace: token ids of prompts and outputs, so treat it as such.

    Parameters
    ----------
    folder : str
        Where the files go; made if it is not there. Readable by the server's user only.
    fraction : float
        Share of requests recorded, chosen by their session where they have one, so that sessions stay whole.
    max_bytes : int
        Of all files together; the oldest make room.
    file_bytes : int
        Rows that wait in memory, before compression, until a file is written.
    seconds : int
        Longest time that a row waits.
    salt : str
        Sessions and tenants are recorded as hashes with this. Empty: a random one each start, so that nobody can tell
        sessions of two starts apart or together.
    """

    folder: str
    fraction: float = 1.0
    max_bytes: int = 2**30
    file_bytes: int = 16 * 2**20
    seconds: int = 60
    salt: str = ""

    def __post_init__(self) -> None:
        _path(self.folder, "folder")
        if not isinstance(self.salt, str):
            raise ConfigError(f"salt: got {self.salt!r}, allowed a text")
        _share(self.fraction, "fraction")
        check(self.max_bytes, "max_bytes", 2**16, 2**50)
        check(self.file_bytes, "file_bytes", 2**10, 2**30)
        check(self.seconds, "seconds", 1, 86_400)


@dataclass(frozen=True, kw_only=True)
class SnapshotConfig:
    """Whether and where what was learned outlives the server: see `ngramspec.snapshot` for what that is.

    Parameters
    ----------
    path : str
        File to load at start, if it is there, and to save to.
    seconds : int
        Time from one save to the next while requests are served. The last is made when the server ends.
    """

    path: str
    seconds: int = 900

    def __post_init__(self) -> None:
        _path(self.path, "path")
        check(self.seconds, "seconds", 1, 86_400)


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Settings of the drafts inside one server; every scheduler process must get the same.

    Parameters
    ----------
    max_bytes : int
        Hard limit of the state of one scheduler process, allocated at start-up.
    share : {"tenant", "all users", "everything", "nothing"}
        Whose outputs a request may be drafted from beside its own session's text. `tenant`: those of requests with the
        same `cache_salt` or `extra_key`, and nobody's without one. `all users`: everybody's. `everything`: everybody's,
        and their prompts too, as SGLang's own shares the last tokens of each. Cost: prompts fill the shared text.
    topology : {"auto", "chain"}
        `auto`: trees where the attention backend is known to read tree masks, else chains.
    min_prob : float
        Leave out tokens whose path probability is below this. With `width` fixed, rows are verified all the same.
    width : {"fixed", "measured", "cost"}
        `fixed`: every step verifies the server's number of rows. `measured`: each step takes the number that emits most
        a second by live step times, down to plain decoding; only where narrower steps are right and cheap (see README).
        `cost`: the same by the step times in `cost` alone, which nothing changes while serving.
    cost : str
        File of step times, as `ngramspec calibrate` writes it. Needed for width `cost`; where step times are measured,
        they start from these. Empty: none.
    guard : {"auto", "off"}
        `auto`: pause speculation for a while where tokens emitted a second over a window are below those of plain
        decoding, by measured times of both. With width `fixed`, that takes a plain step in 256, and only where those
        are cheap (no CUDA graphs, or `capture`); elsewhere a line in the log advises, if `cost` says what plain steps
        take. `off`: with width `fixed`, neither.
    widths : tuple of int
        For `measured` and `cost`: rows a request that a step may verify; 1, plain decoding, and the server's number are
        always among them.
    capture : bool
        Capture graphs for one row a request too, and take no widths but that and the server's.
        Experimental: read in SGLang's source, never run on a GPU. Cost: a second set of graphs.
    max_corpus_bytes : int
        Hard limit of all external corpora together; while one is loaded, as much again is needed.
    prompt_tokens_per_step : int
        Prompt tokens read in one step of the scheduler, by a thread while the model runs; what is left of a longer
        prompt follows in later steps, and its request is not drafted for until then. Cost: about 0.3 µs a token.
    draft_threads : int
        See `DrafterConfig`.
    ranks : {"first", "local"}
        Of tensor parallelism. `first`: the first drafts and sends its rows to the others. `local`: each drafts for
        itself, and one small message a step makes sure that all go the same way; only where nothing depends on a
        clock: width `cost`, or `fixed` with guard `off`. Cost: `max_bytes` and `max_corpus_bytes` on every rank.
    debug : bool
        Compare a digest of each step's rows over the ranks; a step whose rows differ has no draft, is counted and
        logged. Cost: one small message a step, beside what `ranks` costs.
    record : RecordConfig, optional
        None: nothing is recorded.
    snapshot : SnapshotConfig, optional
        None: what was learned ends with the server.
    """

    max_bytes: int = 512 * 2**20
    share: str = "tenant"
    topology: str = "auto"
    min_prob: float = 0.0
    width: str = "fixed"
    cost: str = ""
    guard: str = "auto"
    widths: tuple[int, ...] = ()
    capture: bool = False
    max_corpus_bytes: int = 256 * 2**20
    prompt_tokens_per_step: int = 16_384
    draft_threads: int = 1
    ranks: str = "first"
    debug: bool = False
    record: RecordConfig | None = None
    snapshot: SnapshotConfig | None = None

    PARTS: ClassVar[dict[str, Any]] = {"record": RecordConfig, "snapshot": SnapshotConfig}

    def __post_init__(self) -> None:
        check(self.max_bytes, "max_bytes", 2**20, 2**40)
        check(self.max_corpus_bytes, "max_corpus_bytes", 0, 2**40)
        check(self.prompt_tokens_per_step, "prompt_tokens_per_step", 256, 2**30)
        check(self.draft_threads, "draft_threads", 1, 64)
        choices = {"share": SHARES, "topology": TOPOLOGIES, "width": WIDTHS, "guard": GUARDS, "ranks": RANKS}
        for name, allowed in choices.items():
            if not isinstance(getattr(self, name), str) or getattr(self, name) not in allowed:
                raise ConfigError(f"{name}: got {getattr(self, name)!r}, allowed {', '.join(map(repr, allowed))}")
        _share(self.min_prob, "min_prob")
        if not isinstance(self.cost, str) or self.cost:
            _path(self.cost, "cost")
        if self.width == "cost" and not self.cost:
            raise ConfigError("cost: missing, width 'cost' needs a file of step times; ngramspec calibrate makes one")
        if not isinstance(self.widths, (list, tuple)):
            raise ConfigError(f"widths: got {self.widths!r}, allowed a list of integers")
        for i, width in enumerate(self.widths):
            check(width, f"widths[{i}]", 2, 1024)
        object.__setattr__(self, "widths", tuple(self.widths))
        if self.widths and self.width == "fixed":
            raise ConfigError("widths: has no effect with width 'fixed': take 'measured' or 'cost', or leave it out")
        check_bool(self.capture, "capture")
        check_bool(self.debug, "debug")
        if self.ranks == "local" and (self.width == "measured" or (self.width == "fixed" and self.guard != "off")):
            raise ConfigError(
                "ranks: 'local' needs rows that no clock decides: width 'cost', or 'fixed' and guard 'off'"
            )
        if self.capture and self.widths:
            raise ConfigError("capture: takes no widths: they are one row and the server's")
        if self.capture and self.width == "fixed" and self.guard == "off":
            raise ConfigError("capture: has no effect with width 'fixed' and guard 'off': change one, or leave it out")
        for name, kind in self.PARTS.items():
            if not isinstance(getattr(self, name), (kind, type(None))):
                raise ConfigError(f"{name}: got {getattr(self, name)!r}, allowed an object of its own settings")

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

    def cost_model(self) -> CostModel | None:
        """Step times from the file that `cost` names; raises `ConfigError`, which names file and field."""
        return load(self.cost) if self.cost else None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build from a mapping; anything else, or an unknown key, is a `ConfigError` that says what is allowed."""
        if not isinstance(values, Mapping):
            raise ConfigError(f"$: got {values!r}, allowed an object of settings by name")
        values = dict(values)
        for name, kind in cls.PARTS.items():
            if isinstance(values.get(name), Mapping):
                values[name] = _build(kind, values[name], f"$.{name}")
        return _build(cls, values, "$")  # type: ignore[no-any-return]

    def to_dict(self) -> dict[str, Any]:
        """Every setting as plain values."""
        return asdict(self) | {"widths": list(self.widths)}

    def told(self) -> dict[str, Any]:
        """The same for a log, without the salt, which is a secret."""
        values = self.to_dict()
        if values["record"]:
            values["record"]["salt"] = "set" if values["record"]["salt"] else "random"
        return values


def _build(kind: Any, values: Mapping[str, Any], path: str) -> Any:
    names = [f.name for f in fields(kind)]
    for key in values:
        if key not in names:
            raise ConfigError(f"{path}.{key}: unknown setting; allowed are {', '.join(names)}")
    try:
        return kind(**values)
    except TypeError as error:  # a setting without a default is missing
        raise ConfigError(f"{path}: {str(error).partition('() ')[2] or error}") from None
    except ConfigError as error:
        raise (error if path == "$" else ConfigError(f"{path}.{error}")) from None


def _path(value: Any, name: str) -> None:
    try:
        known = isinstance(value, str) and value != "" and as_path(value) is not None
    except ConfigError:
        known = False
    if not known:
        raise ConfigError(f"{name}: got {value!r}, allowed the path of a {'file' if name != 'folder' else 'folder'}")


def _share(value: Any, name: str) -> None:
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value <= 1:
        raise ConfigError(f"{name}: got {value!r}, allowed 0 to 1")


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
        values = json.loads(Path(path).read_text("utf-8-sig"))
    except OSError as error:
        hint = "; it names a file, write the settings into one" if path.lstrip().startswith("{") else ""
        raise ConfigError(f"{CONFIG_FILE}={path}: cannot be read: {error.strerror}{hint}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{CONFIG_FILE}={path}: cannot be read as JSON: {error}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{CONFIG_FILE}={path}: must hold one JSON object, got {type(values).__name__}")
    try:
        return EngineConfig.from_dict(values)
    except ConfigError as error:
        raise ConfigError(f"{CONFIG_FILE}={path}: {error}") from None
