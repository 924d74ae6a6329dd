"""All commands together. A new one is one file and one line."""

from __future__ import annotations

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
from .trace import convert, inspect
from .trace_import import import_
from .trace_scrub import scrub
from .trace_split import split
from .tune import tune

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="N-gram speculation for LLM inference: what would it save on recorded traffic?",
)
trace = typer.Typer(no_args_is_help=True, help="Look at recorded traces and convert them.")


def example(text: str) -> str:
    """Last line of a command's help."""
    return f"Example: {text}"


app.command(epilog=example("ngramspec replay log.jsonl.gz --drafter ngramspec,none"))(replay)
app.command(epilog=example("ngramspec demo"))(demo)
app.command(epilog=example("ngramspec breakeven --baseline-tps 82 --verify-ms 30"))(breakeven)
app.command(epilog=example("ngramspec calibrate --url http://127.0.0.1:30000 -o cost.json"))(calibrate)
app.command(epilog=example("ngramspec doctor --backend triton --max-running 64"))(doctor)
app.command(epilog=example("ngramspec tune log.jsonl.gz --engine vllm --cost steps.csv"))(tune)
native = typer.Typer(no_args_is_help=True, help="Compile the C core, for the engine 'native'.")
app.add_typer(native, name="native", epilog=example("ngramspec native build"))
native.command(epilog=example("ngramspec native build"))(build)
native.command(epilog=example("ngramspec native info"))(info)
native.command(epilog=example("ngramspec native prior prior.bin"))(prior)
corpus = typer.Typer(no_args_is_help=True, help="Make frozen corpora, read-only text that drafts may copy from.")
app.add_typer(corpus, name="corpus", epilog=example("ngramspec corpus info docs.ngs"))
corpus.command(
    "build", epilog=example("ngramspec corpus build docs --glob '*.md' --tokenizer tokenizer.json -o docs.ngs")
)(build_corpus)
corpus.command("info", epilog=example("ngramspec corpus info docs.ngs"))(corpus_info)
snapshot = typer.Typer(no_args_is_help=True, help="Look at what was saved of a cache.")
app.add_typer(snapshot, name="snapshot", epilog=example("ngramspec snapshot inspect state.ngs"))
snapshot.command("inspect", epilog=example("ngramspec snapshot inspect state.ngs"))(inspect_snapshot)
app.add_typer(trace, name="trace", epilog=example("ngramspec trace inspect log.jsonl.gz"))
trace.command(epilog=example("ngramspec trace inspect log.jsonl.gz"))(inspect)
trace.command(epilog=example("ngramspec trace convert log.jsonl.gz log.npz"))(convert)
trace.command("import", epilog=example("ngramspec trace import requests.log -o log.jsonl.gz"))(import_)
trace.command(epilog=example("ngramspec trace split log.jsonl.gz -o tune.npz judge.npz"))(split)
trace.command(epilog=example("ngramspec trace scrub log.jsonl.gz -o scrubbed.jsonl.gz"))(scrub)


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
