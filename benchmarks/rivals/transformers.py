"""transformers' prompt lookup, without logits processors, on one thread. `generate` serves one request at a time."""

from __future__ import annotations

import torch
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

from benchmarks.rivals.base import Drafted, Variant, chain


class PromptLookup:
    def __init__(self, variant: Variant) -> None:
        torch.set_num_threads(1)  # threads that wait for each other would cost CPU time
        self.generator = PromptLookupCandidateGenerator(
            num_output_tokens=variant.options.get("num_tokens", 10),
            max_matching_ngram_size=variant.options.get("max_ngram", 2),
            max_length=1 << 20,
            eos_token_id=torch.tensor(variant.eos_ids) if variant.eos_ids else None,
        )
        self.texts: dict[str, torch.Tensor] = {}

    def hold(self, request: str, prompt: torch.Tensor) -> None:
        self.texts[request] = torch.as_tensor(prompt, dtype=torch.int64)[None]

    def append(self, requests: list[str], emitted: list[list[int]]) -> None:
        for request, tokens in zip(requests, emitted, strict=True):
            self.texts[request] = torch.cat([self.texts[request], torch.tensor([tokens])], dim=1)

    def ingest(self, request: str, prompt: object) -> None:
        """Nothing is kept besides the text."""

    def propose(self, requests: list[str]) -> list[tuple[int, torch.Tensor]]:
        drafts = []
        for request in requests:
            text = self.texts[request]
            drafts.append((text.shape[1], self.generator.get_candidates(text)[0]))
        return drafts

    def learn(self, requests: list[str], emitted: list[list[int]]) -> None:
        """Nothing is kept besides the text."""

    def finish(self, request: str) -> None:
        del self.texts[request]

    def read(self, proposed: list[tuple[int, torch.Tensor]]) -> list[Drafted]:
        return [chain(found[0, n:].tolist()) for n, found in proposed]
