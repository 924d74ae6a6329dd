"""What of a server decides whether and how we draft in it, and the sentences that say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...arena import BLOCK
from ...config import DrafterConfig
from ...errors import EngineContractError
from ...native import choose
from .config import EngineConfig

#: Attention backends that read a tree mask; on any other, drafts are chains, for which causal attention is enough.
TREE_BACKENDS = ("triton", "flashinfer", "intel_amx", "torch_native")
#: Of models with multi-head latent attention; the name flashinfer means another backend there.
TREE_BACKENDS_MLA = ("triton",)

#: Requests that may be followed at once, for each that may run: retracted ones wait, ended ones are ended a step late.
FOLLOWED_PER_RUNNING = 2


@dataclass(frozen=True, kw_only=True)
class Server:
    """What is read of a server's settings."""

    tp_size: int  #: tensor-parallel ranks
    pp_size: int  #: pipeline stages
    disaggregation: str  #: "null", "prefill" or "decode"
    dp_attention: bool  #: whether attention is data-parallel inside the group
    backends: Sequence[str]  #: of attention, for prefill and decode
    mla: bool  #: whether the model has multi-head latent attention
    breadth: int  #: children a node that the server allows
    page_size: int  #: tokens
    vocab_size: int  #: of the model
    eos_ids: tuple[int, ...]  #: of the model
    context_tokens: int  #: a request
    max_running: int  #: requests
    n_rows: int  #: verified a request and step
    graphs: bool = False  #: whether CUDA graphs are captured for steps of `n_rows`
    hybrid: bool = False  #: whether the model keeps recurrent state beside its KV cache
    model: str = ""  #: path or name, which tells its tokenizer apart

    def refusals(self) -> list[str]:
        """Why we do not draft in this server; empty where we do."""
        found = []
        if self.pp_size > 1:
            found.append(f"pipeline parallelism of {self.pp_size}: n-gram rows are made on one stage only")
        if self.disaggregation != "null":
            found.append(f"disaggregated {self.disaggregation}: accepted tokens do not reach the decode side")
        if self.dp_attention:
            found.append("data-parallel attention: SGLang refuses it with n-gram speculation, too")
        return found

    def check(self) -> None:
        """Raise `EngineContractError` where we do not draft."""
        found = self.refusals()
        if found:
            raise EngineContractError("not supported in this version: " + "; ".join(found))

    def chain(self, config: EngineConfig) -> bool:
        """Whether drafts must be chains."""
        allowed = TREE_BACKENDS_MLA if self.mla else TREE_BACKENDS
        paged = self.page_size > 1 and "flashinfer" not in self.backends
        trees = self.breadth > 1 and not paged and all(backend in allowed for backend in self.backends)
        return config.topology == "chain" or not trees

    def widths(self, config: EngineConfig) -> tuple[int, ...]:
        """Rows a request that a step may verify, ascending; empty where every step verifies `n_rows`.

        Raises
        ------
        EngineContractError
            Narrower steps are asked for where nobody has read that they are right.
        """
        if config.width == "fixed":
            return (1, self.n_rows) if self.can_pause(config) else ()
        if config.capture and not self.hybrid:
            return (1, self.n_rows)
        if wrong := self._only_whole_steps():
            raise EngineContractError(
                f"width {config.width!r} with {wrong}: it may take the server's width for every step's; "
                "take width 'fixed'"
            )
        return tuple(sorted({1, self.n_rows, *(w for w in config.widths or _halves(self.n_rows) if w <= self.n_rows)}))

    def can_pause(self, config: EngineConfig) -> bool:
        """Whether plain steps are right and cheap here, and wanted with width `fixed`, to measure and to pause by."""
        cheap = not self.hybrid if config.capture else not self.graphs and not self._only_whole_steps()
        return config.guard == "auto" and cheap

    def _only_whole_steps(self) -> str:
        """What forbids steps of fewer rows; empty where nothing does."""
        allowed = TREE_BACKENDS_MLA if self.mla else TREE_BACKENDS
        unknown = [backend for backend in self.backends if backend not in allowed]
        return f"attention backend {unknown[0]}" if unknown else "a model with recurrent state" if self.hybrid else ""

    def drafter(self, config: EngineConfig) -> DrafterConfig:
        """The drafter's settings; raises `ConfigError` where `max_bytes` is too little for this many requests."""
        return config.drafter(
            vocab_size=self.vocab_size,
            eos_ids=self.eos_ids,
            max_requests=FOLLOWED_PER_RUNNING * self.max_running,
        )


def _halves(n: int) -> list[int]:
    """Widths to choose from where none are given: a half, a quarter, ... of the server's."""
    return [n >> k for k in range(1, n.bit_length()) if n >> k > 1]


def start_line(config: EngineConfig, drafter: DrafterConfig, server: Server) -> str:
    """The one line of the log that says what runs.

    Parameters
    ----------
    config : EngineConfig
        Settings.
    drafter : DrafterConfig
        As resolved for the server.
    server : Server
        It.
    """
    shape = "chains" if server.chain(config) else "trees"
    settings = " ".join(f"{key}={value!r}" for key, value in config.told().items())
    own = BLOCK * drafter.n_own_blocks
    live = server.max_running * server.context_tokens
    widths = server.widths(config) or (server.n_rows,)
    pauses = config.width == "fixed" and len(widths) > 1
    rows = "/".join(map(str, widths[1:] if pauses else widths)) + f" row{'s' * (widths[-1] > 1)} a request and step"
    if pauses:
        rows += " (one where plain decoding is measured or pays)"
    backends = "/".join(server.backends)
    return (
        f"ngramspec: drafts {shape} of up to {server.n_rows - 1} tokens (attention {backends}), {rows}, "
        f"{drafter.nbytes / 2**20:.0f} MiB a process, {own:,} tokens of running requests' own text "
        f"(all running at full context would be {live:,}), engine {choose(None)}; {settings}"
    )
