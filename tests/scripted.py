"""One long run of random calls, the same wherever it is made; `python -m tests.scripted NAME` prints its digests."""

import hashlib
import json
import os
import random
import subprocess
import sys
from itertools import chain

import numpy as np

from ngramspec.draft import DraftBatch
from tests.kinds import make
from tests.sources import ROOT
from tests.strategies import PLACEHOLDERS, VOCAB_SIZE

WIDTH = 11


def scripted(name: str, n_calls: int = 400, seed: int = 1) -> dict[str, str]:
    """Digests of a cache's state and of all its drafts after the same `n_calls` calls.

    Capacity is small, so that text and sessions are evicted all the time.
    """
    rng = random.Random(seed)
    cache = make(name, max_requests=4, max_sessions=3, capacity_tokens=640)
    drafts = hashlib.blake2b(digest_size=16)
    slots: dict[str, int] = {}
    lengths: dict[str, int] = {}
    out = DraftBatch.allocate(4, WIDTH)
    for _ in range(n_calls):
        call = rng.choices(("begin", "step", "one", "refuse", "truncate", "finish"), (3, 8, 4, 1, 1, 2))[0]
        if call == "begin" and len(slots) < 4:
            request_id = rng.choice([i for i in "abcdef" if i not in slots])
            prompt = text(rng, rng.choice((0, 3, 40, 100)))
            slots[request_id] = cache.begin(
                request_id,
                prompt,
                session=rng.choice((None, "s")),
                tenant=rng.choice((None, "x")),
                share=rng.choice(("outputs", "all", "none")),
                max_tokens=rng.choice((None, 20)),
            )
            lengths[request_id] = len(prompt)
        elif not slots:
            continue
        elif call == "step":
            ids = rng.sample(sorted(slots), rng.randint(1, len(slots)))
            rows = np.array([slots[i] for i in ids], np.int32)
            most = np.array([rng.randint(0, WIDTH) for _ in ids], np.int32)
            cache.draft_batch(rows, out, max_draft=most, topology=rng.choice(("tree", "chain")))
            for i in range(len(ids)):
                note(drafts, out.row(i))
            emitted = [text(rng, rng.randint(0, 4)) for _ in ids]
            offsets = np.cumsum([0, *map(len, emitted)]).astype(np.int32)
            cache.accept_batch(rows, np.array([*chain(*emitted)], np.int32), offsets)
            for request_id, tokens in zip(ids, emitted):
                lengths[request_id] += len(tokens)
        else:
            request_id = rng.choice(sorted(slots))
            if call == "truncate":
                lengths[request_id] = rng.randint(0, lengths[request_id])
                cache.truncate(request_id, lengths[request_id])
            elif call == "finish":
                cache.finish(request_id)
                del slots[request_id], lengths[request_id]
            else:
                note(drafts, cache.draft(request_id, max_draft=WIDTH, min_prob=rng.choice((0.0, 0.05))))
                tokens = [] if call == "refuse" else text(rng, 3)
                cache.accept(request_id, tokens)
                lengths[request_id] += len(tokens)
    cache.check_integrity()
    return {"state": cache.digest(), "drafts": drafts.hexdigest()}


def elsewhere(name: str, **environment: str) -> dict[str, str]:
    """The same digests from another process, with these environment variables; any warning there is an error."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.scripted", name],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


def text(rng: random.Random, n: int) -> list[int]:
    """Tokens that often repeat what stood a few places before."""
    tokens: list[int] = []
    for _ in range(n):
        back = rng.choice((0, 0, 3, 5))
        token = tokens[-back] if 0 < back <= len(tokens) else rng.randrange(VOCAB_SIZE)
        tokens.append(rng.choice(PLACEHOLDERS) if rng.random() < 0.01 else token)
    return tokens


def note(digest, draft) -> None:
    """Add every part of a draft to a digest."""
    for part in (draft.tokens, draft.parents, draft.probs, draft.sources):
        digest.update(part.tobytes())
    digest.update(f"{len(draft)} {draft.match_length} {draft.reason.name};".encode())


if __name__ == "__main__":
    print(json.dumps(scripted(sys.argv[1])))
