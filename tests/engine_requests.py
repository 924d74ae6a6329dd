"""Requests as an engine would show them, and a scheduler's calls around them."""

from types import SimpleNamespace

from ngramspec.engines.sglang.config import EngineConfig
from ngramspec.engines.sglang.drafts import Drafts

N_ROWS = 6


class FakeRequest:
    """Tests append to `output_ids` as the engine would."""

    def __init__(self, rid, prompt, *, limit=100, ended=None, **keys):
        self.rid, self.origin_input_ids_unpadded, self.output_ids = rid, prompt, []
        self.sampling_params = SimpleNamespace(max_new_tokens=limit, custom_params=keys.pop("custom", None))
        self.ended = ended  # output tokens that count once it has ended
        self.spec_correct_drafts_histogram = []
        keys = {"extra_key": None, "cache_salt": None, "lora_id": None, "session_id": None} | keys
        for key, value in keys.items():
            setattr(self, key, value)

    @property
    def output_ids_through_stop(self):
        return self.output_ids[: self.ended]

    @property
    def finished_reason(self):
        return None if self.ended is None else SimpleNamespace(to_json=lambda: {"type": "length"})

    def finished(self):
        return self.ended is not None


def make(share="all users", chain=False, max_requests=8, widths=(), max_bytes=16 * 2**20, **settings):
    """Drafts of up to five tokens for batches of up to four."""
    config = EngineConfig(max_bytes=max_bytes, share=share, **settings)
    sizes = config.drafter(vocab_size=100, eos_ids=(), max_requests=max_requests)
    return Drafts(config, sizes, max_batch=4, n_rows=N_ROWS, chain=chain, widths=widths)


def rows_of(drafts, *requests, latest=None):
    """One decode step; ids as lists, one a request."""
    ids = drafts.rows(requests, latest).ids
    found = ids.reshape(len(requests), -1).tolist()
    drafts.decoded(requests)
    return found


def serve(drafts, request, output):
    """A whole request, one token a step."""
    drafts.prefilled([request])
    for token in output:
        request.output_ids.append(token)
        drafts.rows([request])
        drafts.decoded([request])
    request.ended = len(output)
    drafts.decoded([])


def follow(drafts, request, output):
    """Serve a request whose model goes on with `output` whatever is drafted: verify every step as an engine would.

    Returns tokens emitted by each step, the first token coming from prefill.
    """
    drafts.prefilled([request])
    request.output_ids.append(output[0])
    lengths = []
    while len(request.output_ids) < len(output):
        rows = drafts.rows([request])
        seen = rows.seen.reshape(rows.n_rows, rows.n_rows)
        at, path = len(request.output_ids), 0
        emitted = [output[at]]
        while at + len(emitted) < len(output):
            children = [r for r in range(path + 1, rows.n_rows) if (seen[r, :r].nonzero()[0].max()) == path]
            right = [r for r in children if rows.ids[r] == emitted[-1]]
            if not right:
                break
            path = right[0]
            emitted.append(output[at + len(emitted)])
        drafts.decoded([request])
        request.output_ids += emitted
        lengths.append(len(emitted))
    request.ended = len(output)
    drafts.finished(request.rid)
    return lengths
