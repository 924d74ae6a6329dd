"""One of two processes that stand for tensor-parallel ranks: run by `test_ranks`, once a rank.

Both are told the same requests and hold the same model, a fixed cycle of tokens; what differs between them is what
differs between ranks of a server: clocks, failures, and when a corpus gets ready.

    python -m tests.sglang.two_ranks RANK PORT OUT.json
"""

import json
import sys
import time
from pathlib import Path

from ngramspec.engines.sglang.corpus import Corpus
from ngramspec.engines.sglang.drafts import Drafts
from ngramspec.engines.sglang.ranks import Following, Leading, Wire, together
from tests.engine_requests import N_ROWS, make
from tests.sglang.rank_steps import meet, serve


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


def main():
    out = Path(sys.argv[3])
    rank, store, group = meet()

    wrong = disturbed(rank)
    drafts = together(store, 0, rank, 2, lambda: wrong(make(widths=(1, 2, 3, N_ROWS))))
    wire = Wire(group, 0, N_ROWS)
    assert isinstance(drafts, Drafts) == (rank == 0)
    source = Leading(drafts, wire) if drafts is not None else Following(wire)
    corpus = Corpus()
    corpus.bind(make().drafter.config, 2**24, drafts.use_corpus if drafts is not None else None)

    told, times = serve(source, corpus, rank)
    state = drafts.told() if drafts is not None else {}
    out.write_text(json.dumps({"told": told, "state": state, "us": 1e6 * sorted(times)[len(times) // 2]}))


if __name__ == "__main__":
    main()
