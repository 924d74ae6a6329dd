"""SGLang's own n-gram corpus in C++, called as its `NGRAMWorker` calls it.

The corpus is built from the installed wheel by tvm-ffi; stand-in packages keep the rest of SGLang, which needs a GPU
build, from being imported. The worker's copies to the GPU and its index kernels are left out.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from array import array
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import tvm_ffi.cpp

from benchmarks.rivals.base import Drafted, Variant

PACKAGES = (
    "sglang",
    "sglang.kernels",
    "sglang.kernels.jit",
    "sglang.kernels.ops",
    "sglang.kernels.ops.speculative",
    "sglang.srt",
    "sglang.srt.speculative",
    "sglang.srt.speculative.cpp_ngram",
)


@functools.cache
def corpus_class() -> Any:
    spec = importlib.util.find_spec("sglang")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("No module named 'sglang'")
    root = Path(spec.origin).parent
    for name in PACKAGES:
        package = ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
    sources = root / "kernels" / "jit"
    utils = ModuleType("sglang.kernels.jit.utils")
    utils.cache_once = functools.cache  # type: ignore[attr-defined]
    utils.load_jit = lambda name, cpp_files, **_: tvm_ffi.cpp.load(  # type: ignore[attr-defined]
        f"rival_{name}",
        cpp_files=[str(sources / "csrc" / file) for file in cpp_files],
        extra_cflags=["-std=c++20", "-O3"],
        extra_include_paths=[str(sources / "include"), str(sources / "csrc")],
    )
    sys.modules[utils.__name__] = utils
    from sglang.srt.speculative.cpp_ngram.ngram_corpus import NgramCorpus

    return NgramCorpus


class Ngram:
    def __init__(self, variant: Variant) -> None:
        options = variant.options
        self.width = options.get("num_draft_tokens", 12)
        self.depth = options.get("max_trie_depth", 18)
        self.corpus = corpus_class()(
            max_trie_depth=self.depth,
            min_bfs_breadth=options.get("min_bfs_breadth", 1),
            max_bfs_breadth=options.get("max_bfs_breadth", 10),
            draft_token_num=self.width,
            match_type=options.get("match_type", "BFS"),
            capacity=options.get("capacity_nodes", 2_000_000),
        )
        self.index_prompts = options.get("index_prompts", False)
        self.prompts: dict[str, array[int]] = {}
        self.outputs: dict[str, array[int]] = {}
        self.stepped = False  # a first token comes from prefill, after which nothing is inserted

    # Ids go in one higher: the corpus pads with 0, which is a token.

    def hold(self, request: str, prompt: np.ndarray) -> None:
        self.prompts[request] = array("q", (prompt + 1).tolist())
        self.outputs[request] = array("q")

    def append(self, requests: list[str], emitted: list[list[int]]) -> None:
        self.stepped = False
        for request, tokens in zip(requests, emitted, strict=True):
            self.outputs[request].extend(token + 1 for token in tokens)

    def ingest(self, request: str, prompt: Sequence[int]) -> None:
        if self.index_prompts:
            self.corpus.batch_put([self.prompts[request].tolist()])

    def _windows(self, requests: list[str]) -> list[list[int]]:
        """The last `depth` tokens of each request, put together as the worker does."""
        depth, windows = self.depth, []
        for request in requests:
            prompt, output = list(self.prompts[request][-depth:]), list(self.outputs[request][-depth:])
            windows.append(output if len(output) >= depth else prompt[len(output) - depth :] + output)
        return windows

    def propose(self, requests: list[str]) -> tuple[Any, Any]:
        lengths = [len(self.prompts[request]) + len(self.outputs[request]) for request in requests]
        self.corpus.synchronize()
        tokens, mask = self.corpus.batch_get(requests, self._windows(requests), lengths)
        self.stepped = True
        return tokens, mask

    def learn(self, requests: list[str], emitted: list[list[int]]) -> None:
        if self.stepped:  # the windows that were drafted from are inserted
            self.corpus.batch_put(self._windows(requests))
            self.corpus.synchronize()  # else the next draft would wait for it: the work is counted here

    def fill(self, tokens: np.ndarray) -> None:
        """Insert a whole finished output; step by step its windows would come to the same nodes."""
        self.corpus.batch_put([(tokens + 1).tolist()])
        self.corpus.synchronize()

    def finish(self, request: str) -> None:
        self.corpus.erase_match_state([request])
        del self.prompts[request], self.outputs[request]

    def read(self, proposed: tuple[Any, Any]) -> list[Drafted]:
        tokens, mask = proposed
        rows = np.asarray(tokens).reshape(-1, self.width)
        masks = np.asarray(mask).reshape(-1, self.width, self.width)
        return [self.tree(*one) for one in zip(rows, masks, strict=True)]

    def tree(self, tokens: np.ndarray, mask: np.ndarray) -> Drafted:
        """Rows 1 and on, up to the padding, with the nearest ancestor of each; row 0 is the last token."""
        n = 1 + int(np.count_nonzero(tokens[1:]))
        parents = [int(np.flatnonzero(mask[i, :i])[-1]) - 1 for i in range(1, n)]
        return (tokens[1:n] - 1).tolist(), parents
