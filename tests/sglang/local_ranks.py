"""One of two processes that stand for tensor-parallel ranks which draft for themselves: run by `test_ranks_local`.

Both are told the same requests; the second's clocks run three times as fast, and things go wrong on one at a time.

    python -c START RANK PORT OUT.json SCENARIO COST.json
"""

import json
import logging
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch

from ngramspec.engines.sglang.corpus import Corpus
from ngramspec.engines.sglang.digest import Agreement, Checks
from ngramspec.engines.sglang.local import Local, Offered
from ngramspec.engines.sglang.ranks import Following, Leading, Wire
from tests.engine_requests import N_ROWS, FakeRequest, make
from tests.sglang.two_ranks import CYCLE, RARE, verified

STEPS = 160

#: What is made to fail by scenario: on which rank, which method of the drafter, and in which of its calls.
FAILURES = {
    "drafting": (1, "draft_batch", (7, 40)),
    "learning": (0, "settle", (9, 50)),
    "learning outcomes": (1, "accept_batch", (12, 45)),
    "following": (1, "begin", (3,)),
    "reading": (0, "ingest", (4,)),
    "corpus": (1, "add_corpus", (1, 2)),
    "forgetting": (1, "reset", (1, 2)),
}


def fail(owner, name, calls):
    """Have some calls of a method fail, half of them after the work was done."""
    real, n = getattr(owner, name), [0]

    def method(*arguments, **named):
        n[0] += 1
        if n[0] in calls:
            if n[0] % 2:
                real(*arguments, **named)
            raise MemoryError("made to fail")
        return real(*arguments, **named)

    setattr(owner, name, method)


def serve(source, corpus, rank, scenario):
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


def change_rows(owner, name, step):
    """Have one of the rows that a method gives be another in one step, as a fault of memory or of ours would."""
    real, n = getattr(owner, name), [0]

    def method(*arguments):
        rows = real(*arguments)
        n[0] += 1
        if n[0] == step:
            rows.ids[1] += 1
        return rows

    setattr(owner, name, method)


def main():
    rank, port, (out, scenario, cost) = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    store = torch.distributed.TCPStore("127.0.0.1", port, 2, rank == 0, timedelta(seconds=60))
    torch.distributed.init_process_group("gloo", store=store, rank=rank, world_size=2)
    group = torch.distributed.new_group(backend="gloo")
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("ngramspec").addHandler(handler)

    agreement, offered, corpus = Agreement(group), Offered(), Corpus()
    debug = scenario in ("changed", "changed on the way")
    drafts, used = None, offered.offer
    if scenario == "changed on the way":
        wire, checks = Wire(group, 0, N_ROWS), Checks(agreement)
        if rank == 0:
            drafts = make()
            used, source = drafts.use_corpus, Leading(drafts, wire, checks)
        else:
            used, source = None, Following(wire, checks, n_rows=N_ROWS)
            change_rows(wire, "receive", 30)
    else:
        widths = {"widths": (1, 2, 3, N_ROWS), "width": "cost", "cost": cost} if cost else {}
        drafts = make(ranks="local", **({"guard": "off"} | widths))
        source = Local(drafts, agreement, offered, debug=debug)
        if debug and rank == 1:
            change_rows(drafts, "rows", 30)
    failing, name, calls = FAILURES.get(scenario, (None, "", ()))
    if rank == failing:
        fail(drafts.drafter, name, calls)
    corpus.bind(make().drafter.config, 2**24, used)
    told, times = serve(source, corpus, rank, scenario)
    found = {"told": told, "us": 1e6 * sorted(times)[len(times) // 2], "lines": lines}
    if drafts is not None:
        drafts.requests.wait()
        found |= {"state": drafts.told(), "digest": drafts.drafter.digest(), "guard": drafts.guard.state}
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
