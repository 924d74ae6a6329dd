"""A wave: some requests at a time, each for the same number of tokens, each read by a thread of its own."""

from __future__ import annotations

import random
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from time import perf_counter, process_time
from typing import NamedTuple

from .dialect import Dialect
from .server import Piece, Server
from .stream import Stream

#: Seconds between two reports of progress.
REFRESH = 0.2

#: Common English words, about one token each in any vocabulary.
WORDS = """
after again air animal answer ask away back because before began below between book boy change city close come country
cut day different door earth eat end enough even every eye face family far father find first follow food found girl good
great grow hand hard head help high home house idea important keep kind know land large last later learn left letter
life light line list little live long look made make man mean might most mother mountain move much must name near need
never new next night number old only open other over own page paper part people place plant play point read right river
run school sea second see sentence side small song soon sound stand start state stop story study such take tell thing
think thought three time together took town tree true turn under until use very voice wait walk want warm watch water
way well white whole wind wood word work world write year young
"""


class Wave(NamedTuple):
    """What came of one wave."""

    streams: list[Stream]  #: one a request
    busy: float  #: share of one core that this process used meanwhile: near 1, it was too slow to watch


def prompt(i: int, n_words: int) -> str:
    """Prompt number `i`, the same in every wave: then the server may find it in its cache and decodes the sooner.

    Parameters
    ----------
    i : int
        Two numbers give two texts.
    n_words : int
        Length.
    """
    return " ".join(random.Random(i).choices(WORDS.split(), k=n_words))


def run_wave(
    server: Server,
    dialect: Dialect,
    batch: int,
    n_prompt: int,
    n_tokens: int,
    on_progress: Callable[[int], None],
) -> Wave:
    """Send `batch` requests at once and read all their streams.

    Parameters
    ----------
    server : Server
        Where to.
    dialect : Dialect
        How it is spoken to.
    batch, n_prompt, n_tokens : int
        Requests, words of each prompt, tokens of each output.
    on_progress : callable
        Called with the number of requests that have ended.

    Raises
    ------
    ServerError
        A request failed; the others are given up.
    """
    requests = [dialect.request(prompt(i, n_prompt), n_tokens) for i in range(batch)]
    began, used = perf_counter(), process_time()
    with ThreadPoolExecutor(batch) as pool:
        futures = [pool.submit(server.stream, path, body) for path, body in requests]
        try:
            _watch(futures, on_progress)
        except BaseException:
            server.abort()
            raise
        busy = (process_time() - used) / (perf_counter() - began)
    return Wave([dialect.stream(future.result(), n_prompt) for future in futures], busy)


def _watch(futures: list[Future[list[Piece]]], on_progress: Callable[[int], None]) -> None:
    left = set(futures)
    while left:
        done, left = wait(left, REFRESH, FIRST_EXCEPTION)
        for future in done:
            future.result()
        on_progress(len(futures) - len(left))
