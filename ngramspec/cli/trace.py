"""`ngramspec trace`: what recorded traces hold, and in which format it is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..replay.formats import check_suffix, read, write
from ..replay.inspection import GRAM, remarks
from ..replay.inspection import inspect as facts_of
from ..replay.results import write_json
from .files import writable
from .output import number, percent, stdout, table

SkipBad = Annotated[bool, typer.Option("--skip-bad", help="Leave bad rows out instead of stopping at the first.")]


def inspect(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSONL, JSONL.gz, .npz or Parquet.")],
    skip_bad: SkipBad = False,
    json: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the facts to FILE.")] = None,
) -> None:
    """Say what a trace holds and whether it suits replay."""
    writable(json, reads=[file])
    trace = read(file, skip_bad=skip_bad)
    facts = facts_of(trace)
    found = remarks(facts)
    console = stdout()
    console.print(trace.name, markup=False, style="bold")
    console.print(table(["", ""], described(facts), left=2))
    for kind, sentence in found:
        console.print(f"{kind}: {sentence}")
    for message in trace.skipped:
        console.print(f"skipped: {message}", markup=False)
    if json is not None:
        content = {"schema": "ngramspec.trace-facts/1", "trace": trace.name, "facts": facts}
        write_json(content | {"remarks": [{"kind": kind, "text": text} for kind, text in found]}, json)


def convert(
    source: Annotated[Path, typer.Argument(metavar="IN", help="JSONL, JSONL.gz, .npz or Parquet.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help=".jsonl, .jsonl.gz, .npz or .parquet.")],
    skip_bad: SkipBad = False,
) -> None:
    """Write a trace in another format. Token ids and what belongs to them are kept, text is not."""
    writable(target, reads=[source])
    check_suffix(target)
    trace = read(source, skip_bad=skip_bad)
    write(trace, target)
    left_out = f", {trace.n_skipped} bad rows left out" if trace.n_skipped else ""
    typer.echo(f"{target}: {len(trace)} requests{left_out}")


def described(facts: dict[str, Any]) -> list[list[str]]:
    """Facts as rows of a table: what, how much."""
    listed = ", ".join
    return [
        ["requests", number(facts["requests"])],
        ["prompt tokens", _tokens(facts, "prompt_tokens")],
        ["output tokens", f"{_tokens(facts, 'output_tokens')}, longest {number(facts['output_tokens_longest'])}"],
        ["ids", f"{facts['smallest_id']} to {facts['largest_id']}"],
        ["sessions", f"{number(facts['sessions'])}; {number(facts['rows_without_session'])} requests without one"],
        ["turns a session", f"median {number(facts['turns_per_session_median'], 0)}"],
        ["next prompt repeats the turn before", percent(facts["turn_prefix_share"])],
        ["requests with a time of arrival", number(facts["arrivals"])],
        ["categories", listed(f"{name or '(none)'} {n}" for name, n in facts["categories"].items())],
        ["finish reasons", listed(f"{name or '(none)'} {n}" for name, n in facts["finish_reasons"].items())],
        ["eos ids", listed(str(i) for i in facts["eos_ids"]) or "none recorded"],
        ["re-tokenised from text", listed(f"{part} of {n}" for part, n in facts["retokenised"].items()) or "none"],
        ["last tokens", listed(f"{token} ({n} requests)" for token, n in facts["final_tokens"].items())],
        [f"output {GRAM}-grams in the own prompt", percent(facts["repeats"]["in_own_prompt"])],
        [f"output {GRAM}-grams in earlier outputs", percent(facts["repeats"]["in_earlier_outputs"])],
    ]


def _tokens(facts: dict[str, Any], name: str) -> str:
    return f"{number(facts[name])} (median {number(facts[f'{name}_median'], 0)} a request)"
