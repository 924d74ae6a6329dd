"""Arctic Inference's suffix cache, called as vLLM's `SuffixDecodingProposer` calls it."""

from __future__ import annotations

import numpy as np
from arctic_inference.suffix_decoding import SuffixDecodingCache

from benchmarks.parity import Drafted, Variant


class Arctic:
    def __init__(self, variant: Variant) -> None:
        options = variant.options
        self.depth = options["max_tree_depth"]
        self.cache = SuffixDecodingCache(max_tree_depth=self.depth, max_cached_requests=10_000)
        self.settings = {
            "max_spec_tokens": variant.max_draft,
            "max_spec_factor": options.get("max_spec_factor", 1.0),
            "max_spec_offset": options.get("max_spec_offset", 0.0),
            "min_token_prob": options.get("min_token_prob", 0.1),
            "use_tree_spec": variant.topology == "tree",
        }
        self.tails: dict[str, list[int]] = {}

    def begin(self, request: str, prompt: list[int]) -> None:
        self.cache.start_request(request, np.array(prompt, np.int32))
        self.tails[request] = prompt[-self.depth :]

    def draft(self, requests: list[str]) -> list[Drafted]:
        drafts = []
        for request in requests:
            draft = self.cache.speculate(request, np.array(self.tails[request], np.int32), **self.settings)
            drafts.append((draft.token_ids, draft.parents))
        return drafts

    def accept(self, requests: list[str], emitted: list[list[int]]) -> None:
        for request, tokens in zip(requests, emitted, strict=True):
            self.cache.add_active_response(request, np.array(tokens, np.int32))
            self.tails[request] = (self.tails[request] + tokens)[-self.depth :]

    def finish(self, request: str) -> None:
        self.cache.stop_request(request)
        del self.tails[request]
