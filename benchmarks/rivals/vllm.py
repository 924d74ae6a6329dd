"""vLLM's CPU n-gram proposer, loaded from the installed file alone: the rest of vLLM needs a GPU build."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np

from benchmarks.parity import Drafted, Variant

MAX_MODEL_LEN = 32_768
MAX_REQUESTS = 64


@functools.cache
def proposer_class() -> type:
    """The class `NgramProposer`; a stand-in serves the one name it imports from the rest of vLLM."""
    spec = importlib.util.find_spec("vllm")
    assert spec is not None and spec.origin is not None
    config = ModuleType("vllm.config")
    config.VllmConfig = object  # type: ignore[attr-defined]
    sys.modules["vllm"] = ModuleType("vllm")
    sys.modules["vllm.config"] = config
    path = Path(spec.origin).parent / "v1" / "spec_decode" / "ngram_proposer.py"
    alone = importlib.util.spec_from_file_location("vllm_ngram_proposer", path)
    assert alone is not None and alone.loader is not None
    module = importlib.util.module_from_spec(alone)
    sys.modules[alone.name] = module
    alone.loader.exec_module(module)
    return module.NgramProposer  # type: ignore[no-any-return]


class Ngram:
    def __init__(self, variant: Variant) -> None:
        speculative = SimpleNamespace(
            prompt_lookup_min=variant.options.get("min_n", 5),
            prompt_lookup_max=variant.options.get("max_n", 5),
            num_speculative_tokens=variant.max_draft,
        )
        self.proposer = proposer_class()(
            SimpleNamespace(
                speculative_config=speculative,
                model_config=SimpleNamespace(max_model_len=MAX_MODEL_LEN),
                scheduler_config=SimpleNamespace(max_num_seqs=MAX_REQUESTS),
                parallel_config=SimpleNamespace(tensor_parallel_size=1),
            )
        )
        self.k = variant.max_draft
        self.texts: dict[str, list[int]] = {}

    def begin(self, request: str, prompt: list[int]) -> None:
        self.texts[request] = list(prompt)

    def draft(self, requests: list[str]) -> list[Drafted]:
        texts = [self.texts[request] for request in requests]
        lengths = np.array([len(text) for text in texts], np.int32)
        padded = np.zeros((len(texts), max(lengths)), np.int32)
        for i, text in enumerate(texts):
            padded[i, : len(text)] = text
        sampled = [[text[-1]] for text in texts]
        drafts = self.proposer.propose(self.k, sampled, lengths, padded)
        return [(draft, list(range(-1, len(draft) - 1))) for draft in drafts]

    def accept(self, requests: list[str], emitted: list[list[int]]) -> None:
        for request, tokens in zip(requests, emitted, strict=True):
            self.texts[request] += tokens

    def finish(self, request: str) -> None:
        del self.texts[request]
