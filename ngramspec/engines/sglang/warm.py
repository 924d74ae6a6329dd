"""Compile every kernel that serving calls, before the first request."""

from __future__ import annotations

from types import SimpleNamespace

from .config import EngineConfig
from .drafts import Drafts


def warm_up(n_rows: int) -> None:
    """Serve two short requests, from prefill to their end, with a small drafter of the same kind.

    Takes seconds where nothing is compiled yet; raises `RuntimeError` where compiled code does not work.

    Parameters
    ----------
    n_rows : int
        Rows verified a request.
    """
    config = EngineConfig(max_bytes=8 * 2**20, share="all users")
    sizes = config.drafter(vocab_size=1000, eos_ids=(0,), max_requests=4)
    for chain in (False, True):
        drafts = Drafts(config, sizes, max_batch=2, n_rows=n_rows, chain=chain)
        requests = [_request(str(i), [7, 8, 9] * 40) for i in range(2)]
        drafts.prefilled(requests)
        for _ in range(3):
            drafts.rows(requests)
            drafts.decoded(requests)
            for request in requests:
                request.output_ids += [7, 8, 9]
        drafts.rows(requests[:1], [[7]])
        drafts.decoded(requests[:1])
        for request in requests:
            request.finished = lambda: True
            request.output_ids_through_stop = request.output_ids[:4]
        drafts.decoded([])
        if drafts.guard.failures:
            raise RuntimeError("compiled kernels failed on two short requests; see the line above")


def _request(rid: str, prompt: list[int]) -> SimpleNamespace:
    """A request as the engine would show it."""
    output: list[int] = []
    return SimpleNamespace(
        rid=rid,
        origin_input_ids_unpadded=prompt,
        output_ids=output,
        output_ids_through_stop=output,
        sampling_params=SimpleNamespace(max_new_tokens=64, custom_params=None),
        extra_key=None,
        cache_salt=None,
        lora_id=None,
        session_id=None,
        finished=lambda: False,
    )
