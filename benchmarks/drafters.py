"""The drafters whose cost is measured: our own and the released rivals, and what to keep in mind about each."""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import NamedTuple

from benchmarks.rivals.base import Rival, Variant


class Measured(NamedTuple):
    """One drafter, set up one way."""

    package: str  #: distribution whose version is recorded
    place: str  #: "module:class" below `benchmarks.rivals`
    variant: Variant
    shares: bool  #: drafts from other requests' text too
    note: str  #: what is fair and unfair about its numbers


OURS = "The engine's lists are made into arrays within what is timed. Kernels are compiled before; see start-up."
LLAMA = "The class of llama.cpp's server, cut out of the released sources and called over ctypes. {}"

DRAFTERS: dict[str, Measured] = {
    "ngramspec": Measured("ngramspec", "own:Ngramspec", Variant({}, "tree", 11), True, f"Tree of 11. {OURS}"),
    "ngramspec, chain of 24": Measured(
        "ngramspec", "own:Ngramspec", Variant({}, "chain", 24), True, "As long as Arctic's longest draft."
    ),
    "ngramspec, C core": Measured(
        "ngramspec",
        "own:Ngramspec",
        Variant({"engine": "native"}, "tree", 11),
        True,
        "The same drafts by the C core, which a C compiler makes once; numba is imported all the same, but compiles "
        "nothing. Its calls take arrays as numba's do.",
    ),
    "rolling-hash": Measured("ngramspec", "own:RollingHash", Variant({}, "tree", 11), True, "Tree of 11."),
    "suffix-trie": Measured("ngramspec", "own:SuffixTrie", Variant({}, "tree", 11), True, "Tree of 11."),
    "Arctic, depth 24": Measured(
        "arctic-inference",
        "arctic:Arctic",
        Variant({"max_tree_depth": 24, "max_cached_requests": 1_000_000}, "chain", 24),
        True,
        "Chains no longer than the match, one call a request, as vLLM drives it with its default depth. Counts each "
        "token in two trees.",
    ),
    "Arctic, depth 64": Measured(
        "arctic-inference",
        "arctic:Arctic",
        Variant({"max_tree_depth": 64, "max_cached_requests": 1_000_000}, "chain", 64),
        True,
        "Arctic Inference's own default depth.",
    ),
    "SGLang": Measured(
        "sglang",
        "sglang:Ngram",
        Variant({"capacity_nodes": 10_000_000}, "tree", 11),
        True,
        "The C++ corpus with the worker's Python around it; the worker's copies to the GPU and index kernels are left "
        "out. Inserting runs in a thread beside the forward pass: its CPU time counts, though it may hide there.",
    ),
    "vLLM n-gram": Measured(
        "vllm",
        "vllm:Ngram",
        Variant({"min_n": 2, "max_n": 5}, "chain", 10),
        False,
        "Searches the whole context anew each step and learns nothing. Compiled when it is constructed.",
    ),
    "transformers": Measured(
        "transformers",
        "transformers:PromptLookup",
        Variant({}, "chain", 10),
        False,
        "`generate` serves one request at a time: larger batches are calls one after the other.",
    ),
    "llama.cpp ngram-mod": Measured(
        "llama-cpp-python",
        "llama:NgramMod",
        Variant({}, "chain", 64),
        True,
        LLAMA.format(
            "Its table has a fixed size of 16 MiB and wipes itself (read), so that bytes a cached token mean little."
        ),
    ),
    "llama.cpp ngram-simple": Measured(
        "llama-cpp-python",
        "llama:NgramSimple",
        Variant({}, "chain", 48),
        False,
        LLAMA.format("Drafts only after a match of 12 tokens."),
    ),
    "llama.cpp ngram-map-k": Measured(
        "llama-cpp-python",
        "llama:NgramMapK",
        Variant({}, "chain", 48),
        False,
        LLAMA.format("Drafts only after a match of 12 tokens."),
    ),
    "llama.cpp ngram-cache": Measured(
        "llama-cpp-python",
        "llama:NgramCache",
        Variant({}, "chain", 8),
        False,
        LLAMA.format("Without cache files. It copies the whole text for each draft."),
    ),
}


def build(name: str, **options: object) -> Rival:
    """A fresh drafter; `options` over those of its variant. Raises `ImportError` where its package is missing."""
    measured = DRAFTERS[name]
    module, _, rule = measured.place.partition(":")
    variant = measured.variant._replace(options=measured.variant.options | options)
    rival: Rival = getattr(importlib.import_module(f"benchmarks.rivals.{module}"), rule)(variant)
    return rival


def version(name: str) -> str:
    """Version of a drafter's package. Raises `ImportError` where it is missing."""
    measured = DRAFTERS[name]
    module = importlib.import_module(f"benchmarks.rivals.{measured.place.partition(':')[0]}")
    return str(module.version()) if hasattr(module, "version") else importlib.metadata.version(measured.package)


def present(wanted: list[str] | None = None) -> tuple[dict[str, str], dict[str, str]]:
    """Versions of the drafters that can be built here, and why the others cannot."""
    found, missing = {}, {}
    for name in wanted or list(DRAFTERS):
        try:
            found[name] = version(name)
            build(name)
        except Exception as error:  # whatever keeps a stranger's package from being built here
            found.pop(name, None)
            missing[name] = f"{type(error).__name__}: {error}"
    return found, missing
