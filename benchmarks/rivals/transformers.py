"""transformers' prompt lookup, without logits processors."""

from __future__ import annotations

import torch
from transformers.generation.candidate_generator import PromptLookupCandidateGenerator

from benchmarks.parity import Drafted, Variant


class PromptLookup:
    def __init__(self, variant: Variant) -> None:
        self.generator = PromptLookupCandidateGenerator(
            num_output_tokens=variant.options.get("num_tokens", 10),
            max_matching_ngram_size=variant.options.get("max_ngram", 2),
            max_length=1 << 20,
            eos_token_id=torch.tensor(variant.eos_ids) if variant.eos_ids else None,
        )
        self.texts: dict[str, list[int]] = {}

    def begin(self, request: str, prompt: list[int]) -> None:
        self.texts[request] = list(prompt)

    def draft(self, requests: list[str]) -> list[Drafted]:
        drafts = []
        for request in requests:
            text = torch.tensor([self.texts[request]])
            found = self.generator.get_candidates(text)[0][0, text.shape[1] :].tolist()
            drafts.append((found, list(range(-1, len(found) - 1))))
        return drafts

    def accept(self, requests: list[str], emitted: list[list[int]]) -> None:
        for request, tokens in zip(requests, emitted, strict=True):
            self.texts[request] += tokens

    def finish(self, request: str) -> None:
        del self.texts[request]
