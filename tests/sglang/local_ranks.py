"""One of two processes that stand for tensor-parallel ranks which draft for themselves: run by `test_ranks_local`.

Both are told the same requests; the second's clocks run three times as fast, and things go wrong on one at a time.

    python -c START RANK PORT OUT.json SCENARIO COST.json
"""

import json
import logging
import sys
from pathlib import Path

from ngramspec.engines.sglang.corpus import Corpus
from ngramspec.engines.sglang.digest import Agreement, Checks
from ngramspec.engines.sglang.local import Local, Offered
from ngramspec.engines.sglang.ranks import Following, Leading, Wire
from tests.engine_requests import N_ROWS, make
from tests.sglang.rank_steps import meet, serve

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
    out, scenario, cost = sys.argv[3:]
    rank, _, group = meet()
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
    told, times = serve(source, corpus, rank)
    found = {"told": told, "us": 1e6 * sorted(times)[len(times) // 2], "lines": lines}
    if drafts is not None:
        drafts.requests.wait()
        found |= {"state": drafts.told(), "digest": drafts.drafter.digest(), "guard": drafts.guard.state}
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
