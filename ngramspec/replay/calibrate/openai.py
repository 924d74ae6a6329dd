"""OpenAI-compatible completions, as vLLM, llama.cpp, SGLang and others serve them: decode steps only.

Nothing in this API tells how a server speculates. One that does cannot be measured by it: several tokens then come in
one event, or vLLM's metrics say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import ConfigError, ServerError
from .events import counted, events, objects
from .server import Piece, Refused, Server
from .stream import Stream

#: Tokens an event above which a server bundles them or speculates. Some events hold back a token until its bytes make
#: a character, so that a little more than one is normal.
MAX_PER_EVENT = 1.25

#: What servers of open models understand beside the standard: count tokens, and do not stop early.
EXTRAS = {"ignore_eos": True, "stream_options": {"include_usage": True}}


class OpenAI:
    """A server with `/v1/models` and `/v1/completions`; see `Dialect`.

    Parameters
    ----------
    model : str
        The model to ask for.
    version : str
        Server and version, in words.
    plain : bool
        It is known not to speculate, so that tokens may well come bundled.
    """

    kind: str | None = None
    width = 1
    drafter = ""

    def __init__(self, model: str, version: str, plain: bool = False) -> None:
        self.model, self.version = model, version
        self._plain = plain
        self._extras = EXTRAS

    @classmethod
    def ask(cls, server: Server, model: str | None = None) -> OpenAI:
        """Ask a server for its models, and try a short stream.

        Raises
        ------
        ConfigError
            The model is not served, or several are and none was chosen.
        ServerError
            This is no such server, or it refuses.
        """
        answer = server.get("/v1/models")
        if not isinstance(answer, dict):
            raise ServerError(f"{server.name}/v1/models: no list of models there; is this an OpenAI-compatible server?")
        models = objects(answer, "data")
        names = [str(item.get("id")) for item in models]
        if model is None and len(names) != 1:
            raise ConfigError(f"model: the server serves {', '.join(names) or 'none'}; choose one by name")
        if model is not None and model not in names:
            raise ConfigError(f"model: got {model!r}, but the server serves {', '.join(names) or 'none'}")
        chosen = model or names[0]
        owner = models[names.index(chosen)].get("owned_by") or "OpenAI-compatible server"
        drafts = _drafts(server)
        if drafts:
            raise ConfigError("the server speculates, its metrics count drafts; turn that off to measure decode steps")
        found = cls(chosen, f"{owner} {_version(server)}".strip(), plain=drafts is False)
        found._settle(server)
        return found

    def request(self, prompt: str, n_tokens: int) -> tuple[str, dict[str, Any]]:
        """See `Dialect`."""
        body = {"model": self.model, "prompt": prompt, "max_tokens": n_tokens, "temperature": 0.0, "stream": True}
        return "/v1/completions", body | self._extras

    def stream(self, pieces: Sequence[Piece], n_prompt: int) -> Stream:
        """See `Dialect`."""
        found, done = events(pieces)
        times: list[float] = []
        usage: Any = None
        finished = done
        for at, data in found:
            usage = data.get("usage") or usage
            for choice in objects(data, "choices"):
                ended = choice.get("finish_reason") is not None
                finished = finished or ended
                if choice.get("text") or not ended:
                    times.append(at)
        if not finished or not times:
            raise ServerError(f"a stream broke off after {len(times)} events; see the server's log")
        n_tokens = counted(usage, "completion_tokens")
        if n_tokens is None:
            n_tokens = len(times)
        if not self._plain and n_tokens > MAX_PER_EVENT * len(times) + 1:
            raise ServerError(
                f"{n_tokens} tokens came in {len(times)} events: the server speculates or bundles tokens, so that a "
                "decode step cannot be told; turn that off"
            )
        counted_prompt = counted(usage, "prompt_tokens")
        return Stream(times, n_prompt if counted_prompt is None else counted_prompt, n_tokens, n_tokens - 1)

    def _settle(self, server: Server) -> None:
        """Leave out what the server does not understand."""
        try:
            self.stream(server.stream(*self.request("one two three", 2)), 3)
        except Refused as error:
            if error.status not in (400, 422):
                raise
            self._extras = {}
            self.stream(server.stream(*self.request("one two three", 2)), 3)


def _version(server: Server) -> str:
    """The version that vLLM and some others tell, empty elsewhere."""
    try:
        answer = server.get("/version")
    except ServerError:
        return ""
    return str(answer.get("version") or "") if isinstance(answer, dict) else ""


def _drafts(server: Server) -> bool | None:
    """Whether vLLM's metrics count drafts, which they do only where it speculates; None where it is no vLLM."""
    try:
        metrics = server.text("/metrics")
    except ServerError:
        return None
    return b"vllm:spec_decode" in metrics if b"vllm:" in metrics else None
