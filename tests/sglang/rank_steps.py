"""What both pairs of processes that stand for tensor-parallel ranks do: meet, and serve requests step by step."""

import sys
import time
from datetime import timedelta

import torch

from tests.engine_requests import FakeRequest

STEPS = 160
#: The model, a fixed cycle of tokens, and what is in a corpus only.
CYCLE, RARE = [*range(10, 40), 5, *range(10, 34), 7, *range(20, 40)], [*range(60, 90)]


def meet():
    """Rank and port from the command line; the store and the group of both processes."""
    rank, port = int(sys.argv[1]), int(sys.argv[2])
    store = torch.distributed.TCPStore("127.0.0.1", port, 2, rank == 0, timedelta(seconds=60))
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    return rank, store, torch.distributed.new_group(backend="gloo")


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


def serve(source, corpus, rank):
    """Serve requests; what each step verified, and seconds a step."""
    told, times = [], []
    requests, outputs, n_begun = [], [], 0
    for step in range(STEPS):
        if step == 20 + 30 * rank:  # ready at different steps
            corpus.commit_external_corpus_load("rare", corpus.load_external_corpus_named("rare", [RARE]))
        if step == 130 + 10 * rank:
            corpus.remove_external_corpus("rare")
        if step == 90:
            source.flush()
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
        torch.distributed.barrier()
        if rank == 1 and step % 40 == 0:
            time.sleep(0.01)
    return told, times
