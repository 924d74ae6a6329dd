"""All commands together. A new one is one file and one line."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from .. import __version__
from .breakeven import breakeven
from .calibrate import calibrate
from .corpus import build as build_corpus
from .corpus import info as corpus_info
from .demo import demo
from .doctor import doctor
from .native import build, info, prior
from .replay import replay
from .snapshot import inspect as inspect_snapshot
from .trace import convert
from .trace import inspect as inspect_trace
from .trace_import import import_
from .trace_scrub import scrub
from .trace_split import split
from .tune import tune

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="N-gram speculation for LLM inference: what would it save on recorded traffic?",
)


def example(text: str) -> str:
    """Last line of a command's help."""
    return f"Example: {text}"


def add(to: typer.Typer, command: Callable[..., None], text: str, name: str | None = None) -> None:
    """Register a command with its example.

    Parameters
    ----------
    to : Typer
        The commands that it belongs to.
    command : callable
        Its docstring is the help: of each paragraph one line, since typer would keep the lines of the source in all but
        the first, whatever the width of the terminal.
    text : str
        Example.
    name : str, optional
        None: the function's.
    """
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    told = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    to.command(name, help=told, epilog=example(text))(command)


add(app, replay, "ngramspec replay log.jsonl.gz --drafter ngramspec,none")
add(app, demo, "ngramspec demo")
add(app, breakeven, "ngramspec breakeven --baseline-tps 82 --verify-ms 30")
add(app, calibrate, "ngramspec calibrate --url http://127.0.0.1:30000 -o cost.json")
add(app, doctor, "ngramspec doctor --backend triton --max-running 64")
add(app, tune, "ngramspec tune log.jsonl.gz --engine vllm --profile dense-8b-h100")

native = typer.Typer(no_args_is_help=True, help="Compile the C core, for the engine 'native'.")
app.add_typer(native, name="native", epilog=example("ngramspec native build"))
add(native, build, "ngramspec native build")
add(native, info, "ngramspec native info")
add(native, prior, "ngramspec native prior prior.bin")

corpus = typer.Typer(no_args_is_help=True, help="Make frozen corpora, read-only text that drafts may copy from.")
app.add_typer(corpus, name="corpus", epilog=example("ngramspec corpus info docs.ngs"))
add(corpus, build_corpus, "ngramspec corpus build docs --glob '*.md' --tokenizer tokenizer.json -o docs.ngs", "build")
add(corpus, corpus_info, "ngramspec corpus info docs.ngs")

snapshot = typer.Typer(no_args_is_help=True, help="Look at what was saved of a cache.")
app.add_typer(snapshot, name="snapshot", epilog=example("ngramspec snapshot inspect state.ngs"))
add(snapshot, inspect_snapshot, "ngramspec snapshot inspect state.ngs")

trace = typer.Typer(no_args_is_help=True, help="Look at recorded traces and convert them.")
app.add_typer(trace, name="trace", epilog=example("ngramspec trace inspect log.jsonl.gz"))
add(trace, inspect_trace, "ngramspec trace inspect log.jsonl.gz")
add(trace, convert, "ngramspec trace convert log.jsonl.gz log.npz")
add(trace, import_, "ngramspec trace import requests.log -o log.jsonl.gz", "import")
add(trace, split, "ngramspec trace split log.jsonl.gz -o tune.npz judge.npz")
add(trace, scrub, "ngramspec trace scrub log.jsonl.gz -o scrubbed.jsonl.gz")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"ngramspec {__version__}")
        raise typer.Exit


@app.callback(epilog=example("ngramspec replay log.jsonl.gz"))
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


def command() -> Any:
    """The command that `main` runs."""
    return typer.main.get_command(app)
