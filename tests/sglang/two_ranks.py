"""One of two processes that stand for tensor-parallel ranks: run by `test_ranks`, once a rank.

Both are told the same requests and hold the same model, a fixed cycle of tokens; what differs between them is what
differs between ranks of a server: clocks, failures, and when a corpus gets ready.

    python -m tests.sglang.two_ranks RANK PORT OUT.json
"""

import json
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch

from ngramspec.engines.sglang.corpus import Corpus
from ngramspec.engines.sglang.drafts import Drafts
from ngramspec.engines.sglang.ranks import Following, Leading, Wire, together
from tests.engine_requests import N_ROWS, FakeRequest, make

STEPS = 160
CYCLE = [*range(10, 40), 5, *range(10, 34), 7, *range(20, 40)]
#: In a corpus only.
RARE = [*range(60, 90)]


def disturbed(rank):
    """This rank's drafts or none, with what goes wrong on it."""
    fails = [rank * 10]  # rank 0 fails first

    def break_sometimes(drafts):
        real = drafts.drafter.draft_batch

        def draft_batch(*arguments, **named):
            fails[0] += 1
            if fails[0] % 23 == 0:
                raise MemoryError("made to fail")
            return real(*arguments, **named)

        drafts.drafter.draft_batch = draft_batch
        drafts.pace._clock = lambda: (3 if rank == 0 else 1) * time.perf_counter()
        return drafts

    return break_sometimes


def verified(rows, n, outputs, at):
    """Tokens that each of `n` requests emits: what the model accepts of its rows, and one more."""
    width = rows.n_rows
    ids, seen = rows.ids.reshape(n, width), rows.seen.reshape(n, width, width)
    found = []
    for i in range(n):
        path, emitted = 0, [outputs[i][at[i]]]
        while True:
            below = [r for r in range(path + 1, width) if seen[i, r, :r].nonzero()[0].max() == path]
            right = [r for r in below if ids[i, r] == emitted[-1]]
            if not right or at[i] + len(emitted) >= len(outputs[i]):
                break
            path = right[0]
            emitted.append(outputs[i][at[i] + len(emitted)])
        found.append(emitted)
    return found


def main():
    rank, port, out = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    store = torch.distributed.TCPStore("127.0.0.1", port, 2, rank == 0, timedelta(seconds=60))
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    group = torch.distributed.new_group(backend="gloo")

    wrong = disturbed(rank)
    drafts = together(store, 0, rank, 2, lambda: wrong(make(widths=(1, 2, 3, N_ROWS))))
    wire = Wire(group, 0, N_ROWS)
    assert isinstance(drafts, Drafts) == (rank == 0)
    source = Leading(drafts, wire) if drafts is not None else Following(wire)
    corpus = Corpus()
    corpus.bind(make().drafter.config, 2**24, drafts.use_corpus if drafts is not None else None)

    told, times = [], []
    requests, outputs, n_begun = [], [], 0
    for step in range(STEPS):
        if step == 20 + 30 * rank:  # ready at different steps
            corpus.commit_external_corpus_load("rare", corpus.load_external_corpus_named("rare", [RARE]))
        if step % 9 == 0 and len(requests) < 4:
            text = RARE[:20] if n_begun % 3 == 2 else CYCLE[n_begun % 7 :]
            request = FakeRequest(str(n_begun), [3, n_begun % 50, text[0], text[1]], limit=500)
            n_begun += 1
            source.prefilled([request])
            request.output_ids.append(text[2])
            requests.append(request)
            outputs.append(text[2:])
        if not requests:
            continue
        started = time.perf_counter()
        corpus.between_steps()
        rows = source.rows(requests)
        times.append(time.perf_counter() - started)
        told.append([rows.n_rows, rows.ids.tolist(), rows.seen.astype(int).tolist()])
        source.decoded(requests)
        emitted = verified(rows, len(requests), outputs, [len(request.output_ids) for request in requests])
        for request, new, output in zip(requests, emitted, outputs):
            request.output_ids += new
            if len(request.output_ids) >= len(output):
                request.ended = len(output)
                source.finished(request.rid)
        left = [i for i, request in enumerate(requests) if not request.finished()]
        requests, outputs = [requests[i] for i in left], [outputs[i] for i in left]
    state = drafts.told() if drafts is not None else {}
    out.write_text(json.dumps({"told": told, "state": state, "us": 1e6 * sorted(times)[len(times) // 2]}))


if __name__ == "__main__":
    main()
