"""SGLang's own API: `/server_info` tells how it speculates, `/generate` counts the verify steps of each request."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ...errors import ConfigError, ServerError
from .events import counted, events
from .server import Piece, Refused, Server
from .stream import Stream

#: Values of `device` that are no GPU.
CPUS = ("cpu",)


class SGLang:
    """A server that answers `/server_info` as SGLang does; see `Dialect`.

    Parameters
    ----------
    info : dict
        Its answer.
    model : str, optional
        The model that the caller expects.

    Raises
    ------
    ConfigError
        It serves another model, or so that one step's time cannot be told.
    """

    def __init__(self, info: dict[str, Any], model: str | None = None) -> None:
        served = [str(info[name]) for name in ("served_model_name", "model_path") if info.get(name)]
        if model is not None and model not in served:
            raise ConfigError(f"model: got {model!r}, but the server serves {' or '.join(served)}")
        self.model = (served or ["unknown"])[0]
        device = info.get("device")
        self.kind = None if not device else "measured-cpu" if device in CPUS else "measured-gpu"
        self.width = 1
        self.drafter = ""
        self.version = f"SGLang {info.get('version', 'of unknown version')}"
        if (counted(info, "dp_size") or 1) > 1:
            raise ConfigError("dp_size: the server spreads requests over replicas; measure one with --dp-size 1")
        algorithm = info.get("speculative_algorithm")
        if algorithm:
            if info.get("speculative_adaptive"):
                raise ConfigError("speculative_adaptive: verify steps vary in width; measure with it turned off")
            self.width = counted(info, "speculative_num_draft_tokens") or 0
            if self.width < 2:
                raise ServerError("speculative_num_draft_tokens: the server speculates but does not say how wide")
            self.drafter = str(algorithm)
            self.version += f", {algorithm} speculation of {self.width} tokens a request and step"

    @classmethod
    def ask(cls, server: Server, model: str | None = None) -> SGLang | None:
        """Ask a server whether it is SGLang; None where it is not."""
        for path in ("/server_info", "/get_server_info"):
            try:
                info = json.loads(server.text(path))
            except (Refused, ValueError, RecursionError):
                continue
            if isinstance(info, dict) and "version" in info and "model_path" in info:
                return cls(info, model)
        return None

    def request(self, prompt: str, n_tokens: int) -> tuple[str, dict[str, Any]]:
        """See `Dialect`."""
        sampling = {"temperature": 0.0, "max_new_tokens": n_tokens, "ignore_eos": True}
        return "/generate", {"text": prompt, "sampling_params": sampling, "stream": True}

    def stream(self, pieces: Sequence[Piece], n_prompt: int) -> Stream:
        """See `Dialect`."""
        found, done = events(pieces)
        last = found[-1].data.get("meta_info")
        finish = last.get("finish_reason") if isinstance(last, dict) else None
        if isinstance(finish, dict) and finish.get("type") == "abort":
            raise ServerError(f"the server aborted a request: {finish.get('message', 'without saying why')}")
        n_tokens = counted(last, "completion_tokens")
        if n_tokens is None:
            raise ServerError("meta_info.completion_tokens: missing in the last event of a stream; is this SGLang?")
        if not done and not finish:
            raise ServerError(f"a stream broke off after {n_tokens} tokens; see the server's log")
        n_steps = n_tokens - 1
        if self.width > 1:
            verified = counted(last, "spec_verify_ct")
            if not verified:
                raise ServerError("meta_info.spec_verify_ct: missing, though the server speculates; no step to measure")
            n_steps = verified
        counted_prompt = counted(last, "prompt_tokens")
        return Stream([e.at for e in found], n_prompt if counted_prompt is None else counted_prompt, n_tokens, n_steps)
