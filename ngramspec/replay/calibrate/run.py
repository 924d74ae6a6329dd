"""Calibration from beginning to end: which server this is, wave after wave by batch size, and a cost model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from time import perf_counter

from ... import __version__
from ...caches.arguments import as_list
from ...drafting.cost import CostModel
from ...errors import ConfigError, ServerError
from ..reproduction import TOLERANCE, reproductions
from .dialect import Dialect
from .openai import OpenAI
from .points import Step, as_model, check_add
from .server import OutOfTime, Server
from .sglang import SGLang
from .stream import pace
from .wave import run_wave

APIS = ("auto", "openai", "sglang")
KINDS = ("measured-gpu", "measured-cpu")

#: Tokens of each warm-up request.
WARM_UP = 16

#: Spread between runs, and share of a core used by this process, above which a reader is warned.
NOISY, BUSY = 0.1, 0.7


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What to measure.

    Parameters
    ----------
    batches : tuple of int
        Requests at a time, ascending.
    prompt_tokens, output_tokens : int
        Words of each prompt, about a token each, and tokens of each output.
    repeat : int
        Runs a batch size, beside a warm-up and the one that is held out.
    silence_s : float
        Seconds without any byte after which a request has failed.
    time_limit_s : float
        Seconds for everything.

    Raises
    ------
    ConfigError
        A value is outside what is allowed.
    """

    batches: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    prompt_tokens: int = 512
    output_tokens: int = 128
    repeat: int = 3
    silence_s: float = 60.0
    time_limit_s: float = 900.0

    def __post_init__(self) -> None:
        for name, low, high in (("prompt_tokens", 1, 1 << 20), ("output_tokens", 16, 2048), ("repeat", 1, 100)):
            if not isinstance(getattr(self, name), int) or not low <= getattr(self, name) <= high:
                raise ConfigError(f"{name}: got {getattr(self, name)!r}, allowed {low} to {high}")
        for name in ("silence_s", "time_limit_s"):
            if not isinstance(getattr(self, name), (int, float)) or not getattr(self, name) > 0:
                raise ConfigError(f"{name}: got {getattr(self, name)!r}, allowed more than 0 seconds")
        batches = as_list(self.batches, "batches")
        known = batches and all(isinstance(batch, int) and 1 <= batch <= 1024 for batch in batches)
        if not known or batches != sorted(set(batches)):
            raise ConfigError(f"batches: got {batches}, allowed 1 to 1024, rising")

    @property
    def n_requests(self) -> int:
        """Requests that a server will be sent."""
        return sum(self.batches) * (self.repeat + 2)


@dataclass(frozen=True)
class Calibration:
    """What came of it.

    Attributes
    ----------
    cost : CostModel
        The points, and what has to be reproduced.
    steps : tuple of Step
        Steps as measured, by batch size.
    reproductions : tuple of float
        Modelled over measured tokens a second without speculation, one for each of `cost.measured`.
    remarks : tuple of str
        What a reader has to know.
    """

    cost: CostModel
    steps: tuple[Step, ...]
    reproductions: tuple[float, ...]
    remarks: tuple[str, ...]


def calibrate(
    url: str,
    settings: Settings,
    *,
    api: str = "auto",
    model: str | None = None,
    kind: str | None = None,
    add: CostModel | None = None,
    api_key: str | None = None,
    on_progress: Callable[[int], None] = lambda done: None,
) -> Calibration:
    """Measure the step times of a live server. It should be idle otherwise: nothing here can tell.

    Parameters
    ----------
    url : str
        `http://host:port`; nothing else is contacted.
    settings : Settings
        What to measure.
    api : {"auto", "openai", "sglang"}
        How to speak to it. `"auto"`: as SGLang where it says that it is.
    model : str, optional
        Its name, needed where several are served.
    kind : {"measured-gpu", "measured-cpu"}, optional
        What the server runs on, needed where it does not say so.
    add : CostModel, optional
        An earlier calibration of the same model, for verify steps beside its decode steps.
    api_key : str, optional
        Sent as bearer token.
    on_progress : callable, optional
        Called with the number of requests that have ended, of `settings.n_requests`.

    Raises
    ------
    ConfigError
        A setting is not allowed, or does not suit this server.
    ServerError
        The server cannot be reached, refuses, or does not stream as it should, before any batch size was measured.
        Afterwards, what was measured is kept, and a remark says why it is not all.
    """
    if api not in APIS:
        raise ConfigError(f"api: got {api!r}, allowed {', '.join(APIS)}")
    if kind is not None and kind not in KINDS:
        raise ConfigError(f"kind: got {kind!r}, allowed {' or '.join(KINDS)}")
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    deadline = perf_counter() + settings.time_limit_s
    server = Server(url, api_key=api_key, silence_s=settings.silence_s, deadline=deadline)
    dialect = _identify(server, api, model)
    kind = _kind(dialect, kind)
    name = _name(dialect.model)
    check_add(add, name, kind, plain=dialect.width == 1)
    steps, remarks = _measure(server, dialect, settings, on_progress)
    note = (
        f"{when}, {dialect.version}, on a {kind.removeprefix('measured-').upper()}: medians of {settings.repeat} runs, "
        f"prompts of {steps[0].prompt_tokens} tokens, {settings.output_tokens} output tokens, "
        f"by ngramspec {__version__}"
    )
    cost = as_model(steps, name=name, kind=kind, note=note, drafter=dialect.drafter, add=add)
    if dialect.width > 1 and cost.caveat:
        remarks.append(cost.caveat)
    ratios = tuple(reproductions(cost))
    for measured, ratio in zip(cost.measured, ratios, strict=True):
        if abs(ratio - 1.0) > TOLERANCE:
            remarks.append(
                f"batch {measured.batch}: the model gives {ratio:.2f} times the tokens a second of the run held out; "
                "speed-ups stay uncalibrated"
            )
    return Calibration(cost, tuple(steps), ratios, tuple(remarks))


def _identify(server: Server, api: str, model: str | None) -> Dialect:
    found = SGLang.ask(server, model)
    if found is None and api == "sglang":
        raise ServerError(f"{server.name}/server_info: does not answer as SGLang does; take --api openai")
    if found is None or api == "openai":
        if found and found.width > 1:
            raise ConfigError("api: got 'openai', but this is SGLang and speculates; take --api sglang")
        return OpenAI.ask(server, model)
    return found


def _name(model: str) -> str:
    """A model's name for a file that others may see: of a path on the server's disk, the last part."""
    return model.rstrip("/").rsplit("/", 1)[-1] if model.startswith(("/", ".", "~")) else model


def _kind(dialect: Dialect, kind: str | None) -> str:
    if kind is None and dialect.kind is None:
        raise ConfigError("kind: the server does not say what it runs on; say measured-gpu or measured-cpu")
    if kind is not None and dialect.kind is not None and kind != dialect.kind:
        raise ConfigError(f"kind: got {kind!r}, but the server says that it is {dialect.kind}")
    return kind or dialect.kind or ""


def _measure(
    server: Server, dialect: Dialect, settings: Settings, on_progress: Callable[[int], None]
) -> tuple[list[Step], list[str]]:
    steps: list[Step] = []
    remarks: list[str] = []
    done = 0
    for batch in settings.batches:
        try:
            step = _one_batch(server, dialect, batch, settings, _after(done, on_progress))
        except ServerError as error:
            if not steps:
                raise
            left = "time limit" if isinstance(error, OutOfTime) else str(error)
            remarks.append(f"nothing measured from batch {batch} on: {left}")
            break
        done += batch * (settings.repeat + 2)
        steps.append(step)
        if step.spread > NOISY:
            remarks.append(f"batch {batch}: runs differ by {step.spread:.0%}; is the server doing anything else?")
        if step.busy > BUSY:
            remarks.append(f"batch {batch}: this process used {step.busy:.0%} of a core to watch, and may be the limit")
    return steps, remarks


def _one_batch(
    server: Server, dialect: Dialect, batch: int, settings: Settings, on_progress: Callable[[int], None]
) -> Step:
    """Warm up, run, and run once more for what the model has to reproduce."""
    seconds: list[float] = []
    rates: list[float] = []
    busy = 0.0
    n_prompt = n_output = 0
    for i in range(settings.repeat + 2):
        n_tokens = settings.output_tokens if i else min(WARM_UP, settings.output_tokens)
        wave = run_wave(server, dialect, batch, settings.prompt_tokens, n_tokens, _after(i * batch, on_progress))
        if i == 0:
            continue
        found = pace(wave.streams)
        if found is None:
            raise ServerError(
                f"batch {batch}: its requests did not run together for long enough; does the server run so many at a "
                "time? If so, take more output tokens"
            )
        seconds.append(found.step_s)
        rates.append(found.tokens_per_second)
        busy = max(busy, wave.busy)
        n_prompt = sum(stream.n_prompt for stream in wave.streams)
        n_output = sum(stream.n_tokens for stream in wave.streams)
    used = seconds[: settings.repeat]
    return Step(
        batch=batch,
        n_tokens=batch * dialect.width,
        # From what was asked for, not from how far a run got: points of different widths then share their place.
        kv_tokens=n_prompt + batch * settings.output_tokens // 2,
        ms=1000.0 * median(used),
        spread=max(used) / min(used) - 1.0,
        prompt_tokens=round(n_prompt / batch),
        output_tokens=round(n_output / batch),
        tokens_per_second=rates[-1],
        busy=busy,
    )


def _after(n_before: int, on_progress: Callable[[int], None]) -> Callable[[int], None]:
    """Progress of a part that begins after `n_before` requests."""
    return lambda done: on_progress(n_before + done)
