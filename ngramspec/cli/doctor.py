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

OK, WRONG, NOTE = "ok", "WRONG", "note"

#: What SGLang takes unless it is told.
MAX_RUNNING, DRAFT_TOKENS = 48, 12


def doctor(
    tp_size: Annotated[int, typer.Option(min=1, metavar="N", help="Tensor-parallel ranks.")] = 1,
    pp_size: Annotated[int, typer.Option(min=1, metavar="N", help="Pipeline stages.")] = 1,
    disaggregation: Annotated[str, typer.Option(metavar="MODE", help="null, prefill or decode.")] = "null",
    backend: Annotated[str, typer.Option(metavar="NAME", help="Attention backend.")] = "flashinfer",
    dp_attention: Annotated[bool, typer.Option("--dp-attention", help="Attention is data-parallel.")] = False,
    mla: Annotated[bool, typer.Option("--mla", help="The model has multi-head latent attention.")] = False,
    page_size: Annotated[int, typer.Option(min=1, metavar="N", help="Tokens a page of the KV cache.")] = 1,
    breadth: Annotated[int, typer.Option(min=1, metavar="N", help="speculative-ngram-max-bfs-breadth.")] = 10,
    draft_tokens: Annotated[
        int | None,
        typer.Option(min=2, metavar="N", help=f"speculative-num-draft-tokens. Default, SGLang's: {DRAFT_TOKENS}."),
    ] = None,
    max_running: Annotated[
        int | None, typer.Option(min=1, metavar="N", help=f"max-running-requests. Default, SGLang's: {MAX_RUNNING}.")
    ] = None,
    context: Annotated[int, typer.Option(min=1, metavar="N", help="Tokens a request may have.")] = 8192,
    vocab_size: Annotated[int, typer.Option(min=1, metavar="N", help="Of the model.")] = 151_936,
) -> None:
    """Check the installed SGLang and a server's settings, without starting a server; status 1 if ours would not run.

    Run it in the server's environment, with its NGRAMSPEC_CONFIG if there is one, and give it the server's settings.
    """
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
        max_running=max_running or MAX_RUNNING,
        n_rows=draft_tokens or DRAFT_TOKENS,
    )
    found = [*_sglang(), *_settings(server), *_silent(max_running, draft_tokens)]
    for mark, line in found:
        stdout().print(f"{mark:5} {line}", soft_wrap=True, markup=False)
    if any(mark == WRONG for mark, _ in found):
        raise typer.Exit(1)


def _silent(max_running: int | None, draft_tokens: int | None) -> Iterator[tuple[str, str]]:
    """What SGLang changes without being asked when --speculative-algorithm NGRAM is given, ours or its own."""
    if max_running is None:
        yield (
            NOTE,
            f"SGLang: max-running-requests becomes {MAX_RUNNING} unless it is given: a server with room for more "
            "should say how many",
        )
    yield NOTE, "SGLang: mixed chunks of prefill and decode are switched off"
    if draft_tokens is None:
        yield (
            NOTE,
            f"SGLang: num-draft-tokens is {DRAFT_TOKENS} unless it is given: the model runs so many rows a request in "
            "every step",
        )


def _sglang() -> Iterator[tuple[str, str]]:
    found = contract.installed()
    tested = ", ".join(contract.TESTED)
    if found is None:
        yield WRONG, f"SGLang is not installed here (tested: {tested}): install ngramspec into the server's environment"
        return
    yield OK, f"SGLang {found}" + ("" if found in contract.TESTED else f", untested (tested: {tested})")
    wrong = contract.mismatches()
    if not wrong:
        yield OK, f"all {len(contract.CONTRACT)} things that the worker relies on are as expected"
    for line in wrong:
        yield WRONG, f"{line}: install a tested SGLang or a newer ngramspec"


def _settings(server: Server) -> Iterator[tuple[str, str]]:
    try:
        on, config = asked(), from_environment()
    except ConfigError as error:
        yield WRONG, str(error)
        return
    if on:
        yield OK, "switched on"
    else:
        yield NOTE, f"switched off: start the server with {SWITCH}=1, or {CONFIG_FILE} naming a JSON file"
    for line in server.refusals():
        yield WRONG, f"refused: {line}"
    try:
        server.widths(config)
    except EngineContractError as error:
        yield WRONG, f"refused: {error}"
        return
    try:
        cost = config.cost_model()
    except ConfigError as error:
        yield WRONG, f"cost: {error}"
        return
    if cost is not None:
        yield OK, f"step times: {cost.name}, {cost.kind}, {config.cost}"
        if cost.caveat:
            yield NOTE, f"step times: {cost.caveat}"
    elif config.width == "fixed" and not server.can_pause(config):
        yield (
            NOTE,
            "nothing watches whether speculation pays here: plain steps are not cheap, and no cost file is given",
        )
    yield from _memory(server, config)


def _memory(server: Server, config: EngineConfig) -> Iterator[tuple[str, str]]:
    try:
        drafter = server.drafter(config)
    except ConfigError as error:
        yield WRONG, str(error)
        return
    yield OK, start_line(config, drafter, server)
    mib, corpora = drafter.nbytes / 2**20, config.max_corpus_bytes / 2**20
    where = "the scheduler process"
    if server.tp_size > 1:
        local = f"each of {server.tp_size} ranks ({server.tp_size * drafter.nbytes / 2**20:,.0f} MiB in all)"
        where = local if config.ranks == "local" else "rank 0, which drafts for all ranks"
    copies = f"; as much again for the seconds that a snapshot takes: {mib:,.0f} MiB" if config.snapshot else ""
    yield OK, f"memory in {where}: {mib:,.0f} MiB, and up to {corpora:,.0f} MiB of external corpora{copies}"
    live, own = server.max_running * server.context_tokens, BLOCK * drafter.n_own_blocks
    if live > own:
        yield (
            NOTE,
            (
                f"if all {server.max_running} requests ran at {server.context_tokens:,} tokens, the longest would be "
                f"forgotten from their beginning: room for {own:,} of {live:,}; raise max_bytes if they do"
            ),
        )
    if config.record:
        held = (1 + MAX_WAITING) * config.record.file_bytes / 2**20
        yield (
            OK,
            (
                f"records token ids of prompts and outputs in {config.record.folder}: at most "
                f"{config.record.max_bytes / 2**20:,.0f} MiB of files, {held:,.0f} MiB of memory; sessions are hashed"
            ),
        )
