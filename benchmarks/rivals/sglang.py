"""SGLang's own n-gram corpus in C++, called as its `NGRAMWorker` calls it.

The corpus is built from the installed wheel by tvm-ffi; stand-in packages keep the rest of SGLang, which needs a GPU
build, from being imported.
"""

from __future__ import annotations

import functools
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import tvm_ffi.cpp

from benchmarks.parity import Drafted, Variant

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
    assert spec is not None and spec.origin is not None
    root = Path(spec.origin).parent
    for name in PACKAGES:
        package = ModuleType(name)
        package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules[name] = package
    sources = root / "kernels" / "jit"
    utils = ModuleType("sglang.kernels.jit.utils")
    utils.cache_once = functools.cache  # type: ignore[attr-defined]
    utils.load_jit = lambda name, cpp_files, **_: tvm_ffi.cpp.load(  # type: ignore[attr-defined]
        f"parity_{name}",
        cpp_files=[str(sources / "csrc" / file) for file in cpp_files],
        extra_cflags=["-std=c++20", "-O2"],
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
        self.texts: dict[str, list[int]] = {}
        self.drafted: list[list[int]] = []

    # Ids go in one higher: the corpus pads with 0, which is a token.

    def begin(self, request: str, prompt: list[int]) -> None:
        self.texts[request] = [token + 1 for token in prompt]
        if self.index_prompts:
            self.corpus.batch_put([self.texts[request]])

    def draft(self, requests: list[str]) -> list[Drafted]:
        self.corpus.synchronize()
        self.drafted = [self.texts[request][-self.depth :] for request in requests]
        lengths = [len(self.texts[request]) for request in requests]
        tokens, mask = self.corpus.batch_get(requests, self.drafted, lengths)
        rows = np.asarray(tokens).reshape(-1, self.width)
        masks = np.asarray(mask).reshape(-1, self.width, self.width)
        return [self.tree(*one) for one in zip(rows, masks, strict=True)]

    def tree(self, tokens: np.ndarray, mask: np.ndarray) -> Drafted:
        """Rows 1 and on, up to the padding, with the nearest ancestor of each; row 0 is the last token."""
        n = 1 + int(np.count_nonzero(tokens[1:]))
        parents = [int(np.flatnonzero(mask[i, :i])[-1]) - 1 for i in range(1, n)]
        return (tokens[1:n] - 1).tolist(), parents

    def accept(self, requests: list[str], emitted: list[list[int]]) -> None:
        if self.drafted:  # a decode step: the windows that were drafted from are inserted
            self.corpus.batch_put(self.drafted)
            self.drafted = []
        for request, tokens in zip(requests, emitted, strict=True):
            self.texts[request] += [token + 1 for token in tokens]

    def finish(self, request: str) -> None:
        self.corpus.erase_match_state([request])
        del self.texts[request]
