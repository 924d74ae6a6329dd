"""CPU time of a decode step's drafting, ours beside SGLang's own corpus, over the bundled recorded traffic.

Ours is everything that the adapter does in a step: catching up with the engine's records, drafting, filling rows and
masks, learning. SGLang's is its corpus calls alone, as its worker makes them (get, put, wait for the inserting thread),
without the lists that the worker builds for them. CPU time of all threads of the process, so that work that one of the
two gives to a thread counts. Both emit three tokens a request and step.

    python -m tests.sglang.step_cost
"""

import json
import time

import numpy as np

from ngramspec.engines.sglang.config import EngineConfig
from ngramspec.engines.sglang.drafts import Drafts
from ngramspec.replay.sample import sample
from tests.engine_requests import FakeRequest

N_ROWS, DEPTH, EMITTED = 12, 18, 3


def texts(batch, steps):
    """Prompts and outputs, long enough for so many steps, from the sample's own text."""
    trace = sample()
    stream = np.concatenate([trace.output[row] for row in range(len(trace))])
    need = 600 + EMITTED * (steps + 2)
    starts = np.linspace(0, len(stream) - need, batch).astype(int)
    pieces = [stream[start : start + need].tolist() for start in starts]
    return [(piece[:600], piece[600:]) for piece in pieces], int(stream.max()) + 1


def ours(batch, steps):
    """µs of CPU a step."""
    pieces, vocab_size = texts(batch, steps)
    config = EngineConfig(max_bytes=256 * 2**20, share="all users")
    sizes = config.drafter(vocab_size=vocab_size, eos_ids=(), max_requests=2 * batch)
    drafts = Drafts(config, sizes, max_batch=batch, n_rows=N_ROWS, chain=False)
    requests = [FakeRequest(str(i), prompt, limit=10_000) for i, (prompt, _) in enumerate(pieces)]
    drafts.prefilled(requests)
    spent = 0
    for step in range(steps + 2):
        for request, (_, output) in zip(requests, pieces):
            request.output_ids += output[EMITTED * step : EMITTED * (step + 1)]
        before = time.process_time_ns()
        drafts.rows(requests)
        drafts.decoded(requests)
        if step >= 2:  # the first one waits for the prompts
            spent += time.process_time_ns() - before
    assert drafts.guard.failures == 0
    return spent / steps / 1000


def sglangs(batch, steps):
    """µs of CPU a step."""
    from sglang.srt.speculative.cpp_ngram.ngram_corpus import NgramCorpus

    pieces, _ = texts(batch, steps)
    corpus = NgramCorpus(
        max_trie_depth=DEPTH, min_bfs_breadth=1, max_bfs_breadth=10, draft_token_num=N_ROWS, capacity=2_000_000
    )
    names = [str(i) for i in range(batch)]
    spent = 0
    for step in range(steps + 2):
        histories = [prompt + output[: EMITTED * (step + 1)] for prompt, output in pieces]
        windows, lengths = [history[-DEPTH:] for history in histories], [len(history) for history in histories]
        before = time.process_time_ns()
        corpus.synchronize()
        corpus.batch_get(names, windows, lengths)
        corpus.batch_put(windows)
        corpus.synchronize()
        if step >= 2:
            spent += time.process_time_ns() - before
    return spent / steps / 1000


def measure(batch, steps=100):
    """Both, the better of two runs each, in turn."""
    runs = [(ours(batch, steps), sglangs(batch, steps)) for _ in range(2)]
    mine, theirs = (min(run[k] for run in runs) for k in (0, 1))
    return {"batch": batch, "ours_us": round(mine), "sglang_us": round(theirs), "ratio": round(theirs / mine, 1)}


if __name__ == "__main__":
    for size in (1, 8, 32, 64, 128):
        print(json.dumps(measure(size)))
