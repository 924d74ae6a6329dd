"""Rival rules for the tests: how to build one, and how to let a request emit a text."""

import importlib

from ngramspec.baselines import BASELINES

#: Options under which a rule drafts from short texts, where its own defaults ask for long matches.
EAGER = {
    "ngram-mod": {"n_match": 2, "n_min": 0, "n_entries": 1 << 16},
    "vllm-ngram": {"min_n": 1},
}

#: Rules that remember what other requests emitted.
SHARING = ["sglang-ngram", "suffix-decoding", "vllm-suffix-adaptive"]

#: Rules that do not know whose their tokens are, and so cannot take any back when a request is truncated.
UNFORGETTING = ["ngram-mod", "sglang-ngram"]
ALL = sorted(BASELINES)
LEARNING = [name for name in ALL if name != "rest"]

#: Long enough for rules that take note of an output now and then only.
LOOP = [1, 2, 3, 4, 5, 6, 7, 8] * 10


def rule(name, **options):
    module, cls = BASELINES[name].split(":")
    common = {"vocab_size": 200_000, "capacity_tokens": 10_000}
    return getattr(importlib.import_module(module), cls)(**{**common, **EAGER.get(name, {}), **options})


def chain(cache, request="a", max_draft=3, **options):
    return cache.draft(request, max_draft=max_draft, topology="chain", **options).tokens.tolist()


def replay(cache, request, prompt, output, step=1, **options):
    """Let a request emit `output`, `step` tokens at a time, drafting before each."""
    cache.begin(request, prompt, **options)
    for i in range(0, len(output), step):
        cache.draft(request, max_draft=4)
        cache.accept(request, output[i : i + step])


def seen(name, *outputs, **options):
    """The rule after requests that emitted `outputs`, none of them running any more."""
    cache = rule(name, **options)
    for i, output in enumerate(outputs):
        replay(cache, f"seen-{i}", [], output)
        cache.finish(f"seen-{i}")
    return cache


def every_path(draft):
    """Tokens from the last committed one down to each drafted one."""
    found = []
    for token, parent in zip(draft.tokens.tolist(), draft.parents.tolist()):
        found.append([*(found[parent] if parent >= 0 else []), token])
    return found
