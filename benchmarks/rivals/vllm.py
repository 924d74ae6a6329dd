"""vLLM's CPU n-gram proposer, loaded from the installed file alone: the rest of vLLM needs a GPU build."""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np

from benchmarks.rivals.base import Drafted, Variant, chain

MAX_MODEL_LEN = 262_144
MAX_REQUESTS = 64


@functools.cache
def proposer_class() -> type:
    """The class `NgramProposer`; a stand-in serves the one name it imports from the rest of vLLM."""
    spec = importlib.util.find_spec("vllm")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'vllm'")
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
        # The engine's matrix of ids: a request keeps its row while it runs.
        self.tokens = np.zeros((MAX_REQUESTS, MAX_MODEL_LEN), np.int32)
        self.lengths = np.zeros(MAX_REQUESTS, np.int32)
        self.sampled: list[list[int]] = [[] for _ in range(MAX_REQUESTS)]  # empty: nothing is drafted for the row
        self.rows: dict[str, int] = {}

    def hold(self, request: str, prompt: np.ndarray) -> None:
        row = self.rows[request] = min(set(range(MAX_REQUESTS)) - set(self.rows.values()))
        self.tokens[row, : len(prompt)] = prompt
        self.lengths[row] = len(prompt)

    def append(self, requests: list[str], emitted: list[list[int]]) -> None:
        for request, tokens in zip(requests, emitted, strict=True):
            row = self.rows[request]
            n = self.lengths[row]
            self.tokens[row, n : n + len(tokens)] = tokens
            self.lengths[row] = n + len(tokens)
            self.sampled[row] = tokens

    def ingest(self, request: str, prompt: np.ndarray) -> None:
        """Nothing is kept besides the text."""

    def propose(self, requests: list[str]) -> tuple[list[str], list[list[int]]]:
        n = 1 + max(self.rows.values())
        return requests, self.proposer.propose(self.k, self.sampled[:n], self.lengths[:n], self.tokens[:n])

    def learn(self, requests: list[str], emitted: list[list[int]]) -> None:
        """Nothing is kept besides the text."""

    def finish(self, request: str) -> None:
        row = self.rows.pop(request)
        self.lengths[row], self.sampled[row] = 0, []

    def read(self, proposed: tuple[list[str], list[list[int]]]) -> list[Drafted]:
        requests, drafts = proposed
        return [chain(drafts[self.rows[request]]) for request in requests]
