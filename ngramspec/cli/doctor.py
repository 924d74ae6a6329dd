"""`ngramspec doctor`: whether our drafts would run in this SGLang with these settings, and with how much memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from ..arena import BLOCK
from ..engines.sglang import contract
from ..engines.sglang.config import CONFIG_FILE, SWITCH, EngineConfig, asked, from_environment
from ..engines.sglang.record import MAX_WAITING
from ..engines.sglang.server import Server, start_line
from ..errors import ConfigError, EngineContractError
from .output import stdout

#: What SGLang changes without being asked when --speculative-algorithm NGRAM is given, ours or its own.
SILENT = (
    "max-running-requests becomes 48 unless it is given: a server with room for more should say how many",
    "mixed chunks of prefill and decode are switched off",
    "num-draft-tokens is 12 unless it is given: the model runs so many rows a request in every step",
)


def doctor(
    tp_size: Annotated[int, typer.Option(min=1, metavar="N", help="Tensor-parallel ranks.")] = 1,
    pp_size: Annotated[int, typer.Option(min=1, metavar="N", help="Pipeline stages.")] = 1,
    disaggregation: Annotated[str, typer.Option(metavar="MODE", help="null, prefill or decode.")] = "null",
    backend: Annotated[str, typer.Option(metavar="NAME", help="Attention backend.")] = "flashinfer",
    dp_attention: Annotated[bool, typer.Option("--dp-attention", help="Attention is data-parallel.")] = False,
    mla: Annotated[bool, typer.Option("--mla", help="The model has multi-head latent attention.")] = False,
    page_size: Annotated[int, typer.Option(min=1, metavar="N", help="Tokens a page of the KV cache.")] = 1,
    breadth: Annotated[int, typer.Option(min=1, metavar="N", help="speculative-ngram-max-bfs-breadth.")] = 10,
    draft_tokens: Annotated[int, typer.Option(min=2, metavar="N", help="speculative-num-draft-tokens.")] = 12,
    max_running: Annotated[int, typer.Option(min=1, metavar="N", help="max-running-requests.")] = 48,
    context: Annotated[int, typer.Option(min=1, metavar="N", help="Tokens a request may have.")] = 8192,
    vocab_size: Annotated[int, typer.Option(min=1, metavar="N", help="Of the model.")] = 151_936,
) -> None:
    """Check the installed SGLang and a server's settings, without starting a server; status 1 if ours would not run."""
    server = Server(
        tp_size=tp_size,
        pp_size=pp_size,
        disaggregation=disaggregation,
        dp_attention=dp_attention,
        backends=(backend, backend),
        mla=mla,
        breadth=breadth,
        page_size=page_size,
        vocab_size=vocab_size,
        eos_ids=(),
        context_tokens=context,
        max_running=max_running,
        n_rows=draft_tokens,
    )
    well = True
    for good, line in [*_sglang(), *_settings(server)]:
        well = well and good
        stdout().print(("ok    " if good else "WRONG ") + line, soft_wrap=True)
    for line in SILENT:
        stdout().print("note  SGLang: " + line, soft_wrap=True)
    if not well:
        raise typer.Exit(1)


def _sglang() -> Iterator[tuple[bool, str]]:
    found = contract.installed()
    tested = ", ".join(contract.TESTED)
    if found is None:
        yield False, f"SGLang is not installed here (tested: {tested})"
        return
    yield True, f"SGLang {found}" + ("" if found in contract.TESTED else f", untested (tested: {tested})")
    wrong = contract.mismatches()
    if not wrong:
        yield True, f"all {len(contract.CONTRACT)} things that the worker relies on are as expected"
    for line in wrong:
        yield False, f"{line}: install a tested SGLang or a newer ngramspec"


def _settings(server: Server) -> Iterator[tuple[bool, str]]:
    try:
        on, config = asked(), from_environment()
    except ConfigError as error:
        yield False, str(error)
        return
    yield True, "switched on" if on else f"switched off: set {SWITCH}=1, or {CONFIG_FILE} to a JSON file"
    for line in server.refusals():
        yield False, f"refused: {line}"
    try:
        server.widths(config)
    except EngineContractError as error:
        yield False, f"refused: {error}"
        return
    try:
        cost = config.cost_model()
    except ConfigError as error:
        yield False, f"cost: {error}"
        return
    if cost is not None:
        yield True, f"step times: {cost.name}, {cost.kind}, {config.cost}"
    elif config.width == "fixed" and not server.can_pause(config):
        yield (
            True,
            "nothing watches whether speculation pays here: plain steps are not cheap, and no cost file is given",
        )
    yield from _memory(server, config)


def _memory(server: Server, config: EngineConfig) -> Iterator[tuple[bool, str]]:
    try:
        drafter = server.drafter(config)
    except ConfigError as error:
        yield False, str(error)
        return
    yield True, start_line(config, drafter, server)
    mib, corpora = drafter.nbytes / 2**20, config.max_corpus_bytes / 2**20
    where = "the scheduler process"
    if server.tp_size > 1:
        local = f"each of {server.tp_size} ranks ({server.tp_size * drafter.nbytes / 2**20:,.0f} MiB in all)"
        where = local if config.ranks == "local" else "rank 0, which drafts for all ranks"
    copies = f"; as much again for the seconds that a snapshot takes: {mib:,.0f} MiB" if config.snapshot else ""
    yield True, f"memory in {where}: {mib:,.0f} MiB, and up to {corpora:,.0f} MiB of external corpora{copies}"
    live, own = server.max_running * server.context_tokens, BLOCK * drafter.n_own_blocks
    if live > own:
        yield (
            True,
            (
                f"if all {server.max_running} requests ran at {server.context_tokens:,} tokens, the longest would be "
                f"forgotten from their beginning: room for {own:,} of {live:,}; raise max_bytes if they do"
            ),
        )
    if config.record:
        held = (1 + MAX_WAITING) * config.record.file_bytes / 2**20
        yield (
            True,
            (
                f"records token ids of prompts and outputs in {config.record.folder}: at most "
                f"{config.record.max_bytes / 2**20:,.0f} MiB of files, {held:,.0f} MiB of memory; sessions are hashed"
            ),
        )
