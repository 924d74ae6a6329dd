"""What can be set in each engine, how to replay it, and how to tell the engine."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ...caches.base import Share
from ...config import MAX_NODES, DrafterConfig
from ...drafting.budget import Budget
from ...drafting.cost import CostModel
from ...errors import ConfigError
from ..drafters import DEFAULT_CAPACITY
from ..options import MAX_DRAFT, Options, Shape
from .space import Setting, Space, Values


class Replay(NamedTuple):
    """One way to replay a trace."""

    drafter: str  #: name in `drafters.DRAFTERS`
    drafter_options: dict[str, Any]  #: settings of its own
    options: Options


@dataclass(frozen=True)
class Engine:
    """One engine.

    Attributes
    ----------
    shape : {"ideal", "vllm", "sglang"}
        What it verifies, unless told otherwise.
    any_shape : bool
        Whether another shape can be asked for.
    settings : tuple of Setting
        What can be set.
    allowed : callable
        Whether values go together, from them and the shape.
    replay : callable
        From values, shape, step times and batch size to a `Replay`.
    advice : callable
        From values, shape and batch sizes to what to set, as JSON can hold it: `config`, `flags` or both.
    note : str
        What to know before setting it.
    """

    shape: Shape
    any_shape: bool
    settings: tuple[Setting, ...]
    allowed: Callable[[Values, Shape], bool]
    replay: Callable[[Values, Shape, CostModel, int], Replay]
    advice: Callable[[Values, Shape, tuple[int, ...]], dict[str, Any]]
    note: str = ""

    def space(self, shape: Shape) -> Space:
        """All that can be set."""
        return Space(self.settings, lambda values: self.allowed(values, shape))


#: Settings of `DrafterConfig` among ours; the others say how to draft and what to verify.
CONFIG = ("orders", "max_hops", "max_match", "counted_per_token", "capacity_tokens")


def _budget(verify: str, cost: CostModel | None, shape: Shape) -> Budget | None:
    """What `verify` asks for: `all`, `cost`, or a least path probability."""
    uniform = shape == "sglang"
    if verify == "all":
        return None
    if verify == "cost":
        return Budget(mode="cost", cost=cost, uniform_width=uniform)
    try:
        return Budget(mode="threshold", min_prob=float(verify), uniform_width=uniform)
    except ValueError:
        raise ConfigError(f"verify: got {verify!r}, allowed all, cost or a path probability") from None


def _ours(values: Values, shape: Shape, cost: CostModel, batch: int) -> Replay:
    options = Options(
        max_draft=values["max_draft"],
        topology=values["topology"],
        share=values["share"],
        budget=_budget(values["verify"], cost, shape),
        shape=shape,
        cost=cost,
        concurrency=batch,
    )
    return Replay("ngramspec", {name: values[name] for name in CONFIG}, options)


def _our_advice(values: Values, shape: Shape, batches: tuple[int, ...]) -> dict[str, Any]:
    config = DrafterConfig(**{name: values[name] for name in CONFIG}, max_requests=max(batches)).to_dict()
    step: dict[str, Any] = {"max_draft": values["max_draft"], "topology": values["topology"]}
    verify = values["verify"]
    if verify == "all":
        step["budget"] = {"mode": "fixed", "max_draft": values["max_draft"]}
    elif verify == "cost":
        step["budget"] = {"mode": "cost"}
    else:
        step["budget"] = {"mode": "threshold", "min_prob": float(verify)}
    step["budget"]["uniform_width"] = shape == "sglang"
    kept = ("capacity_tokens", "max_requests", "orders", "max_hops", "max_match", "counted_per_token")
    return {"config": {"drafter": {name: config[name] for name in kept}, "step": step, "share": values["share"]}}


#: What the plugin's `share` means for a trace, whose requests count as one tenant's.
PLUGIN_SHARES: dict[str, Share] = {"tenant": "outputs", "all users": "outputs", "everything": "all", "nothing": "none"}
PLUGIN_NOTE = (
    "share 'tenant' counts all requests of a trace as one tenant's; in the server those with the same cache_salt or "
    "extra_key are, and without a key nothing is shared unless share is 'all users'"
)


def _plugin(values: Values, shape: Shape, cost: CostModel, batch: int) -> Replay:
    for name, allowed in (("share", tuple(PLUGIN_SHARES)), ("topology", ("auto", "chain"))):
        if values[name] not in allowed:
            raise ConfigError(f"{name}: got {values[name]!r}, allowed {', '.join(allowed)}")
    options = Options(
        max_draft=values["num_draft_tokens"] - 1,
        topology="tree" if values["topology"] == "auto" else "chain",
        share=PLUGIN_SHARES[values["share"]],
        shape=shape,
        cost=cost,
        concurrency=batch,
    )
    config = DrafterConfig.with_max_bytes(values["max_bytes"], max_requests=batch)
    return Replay("ngramspec", {"capacity_tokens": config.capacity_tokens, "deferred": True}, options)


def _plugin_advice(values: Values, shape: Shape, batches: tuple[int, ...]) -> dict[str, Any]:
    config = dict(values)
    return _sglang_advice({"num_draft_tokens": config.pop("num_draft_tokens")}, shape, batches) | {"config": config}


def _vllm(values: Values, shape: Shape, cost: CostModel, batch: int) -> Replay:
    options = Options(
        max_draft=values["num_speculative_tokens"], topology="chain", shape=shape, cost=cost, concurrency=batch
    )
    names = {"min_n": values["prompt_lookup_min"], "max_n": values["prompt_lookup_max"]}
    return Replay("vllm-ngram", names, options)


def _vllm_advice(values: Values, shape: Shape, batches: tuple[int, ...]) -> dict[str, Any]:
    return {"flags": ["--speculative-config", json.dumps({"method": "ngram"} | values)]}


#: Most running requests that SGLang allows with n-gram drafts unless told otherwise.
SGLANG_REQUESTS = 48


def _sglang(values: Values, shape: Shape, cost: CostModel, batch: int) -> Replay:
    own = dict(values)
    own["capacity_nodes"] = own.pop("capacity")
    options = Options(
        max_draft=values["num_draft_tokens"] - 1, topology="tree", shape=shape, cost=cost, concurrency=batch
    )
    return Replay("sglang-ngram", own, options)


def _sglang_advice(values: Values, shape: Shape, batches: tuple[int, ...]) -> dict[str, Any]:
    flags = ["--speculative-algorithm", "NGRAM"]
    for name, value in values.items():
        flags += [f"--speculative-{'' if name == 'num_draft_tokens' else 'ngram-'}{name.replace('_', '-')}", str(value)]
    if max(batches) > SGLANG_REQUESTS:
        flags += ["--max-running-requests", str(max(batches))]
    return {"flags": flags}


ENGINES: dict[str, Engine] = {
    "ngramspec": Engine(
        shape="ideal",
        any_shape=True,
        settings=(
            Setting("orders", ((1, 2, 4, 8), (1, 2, 3, 4), (1, 2, 4), (2, 4, 8), (1, 3, 6, 12)), (1, 2, 4, 8), False),
            Setting("max_match", (8, 16, 32, 64), 32),
            Setting("max_hops", (4, 8, 16), 8),
            Setting("counted_per_token", (0.0, 0.25, 0.5, 1.0), 0.5),
            Setting("max_draft", (3, 5, 7, 11, 15, 23, 31, 47, 63), 11),
            Setting("topology", ("tree", "chain"), "tree", False),
            Setting("verify", ("all", "0.05", "0.1", "0.2", "0.4", "cost"), "all", False),
            Setting("capacity_tokens", (250_000, 1_000_000, DEFAULT_CAPACITY), DEFAULT_CAPACITY),
            Setting("share", ("outputs", "all", "none"), "outputs", False),
        ),
        allowed=lambda values, shape: (
            (shape != "vllm" or values["topology"] == "chain") and max(values["orders"]) <= values["max_match"]
        ),
        replay=_ours,
        advice=_our_advice,
    ),
    "ngramspec-sglang": Engine(
        shape="sglang",
        any_shape=False,
        settings=(
            Setting("num_draft_tokens", (2, 4, 6, 8, 12, 16, 24, 32, 48), 12, limits=(2, MAX_DRAFT + 1)),
            Setting("topology", ("auto", "chain"), "auto", False),
            Setting("max_bytes", (64 * 2**20, 512 * 2**20, 2**31), 512 * 2**20, limits=(2**20, 2**40)),
            Setting("share", ("tenant",), "tenant", False),
        ),
        allowed=lambda values, shape: True,
        replay=_plugin,
        advice=_plugin_advice,
        note=PLUGIN_NOTE,
    ),
    "sglang": Engine(
        shape="sglang",
        any_shape=False,
        settings=(
            Setting("num_draft_tokens", (2, 4, 6, 8, 12, 16, 24, 32, 48), 12, limits=(2, MAX_DRAFT + 1)),
            Setting("max_trie_depth", (4, 8, 12, 18, 24, 36), 18, limits=(2, 1024)),
            Setting("min_bfs_breadth", (1, 2), 1, limits=(1, 1024)),
            Setting("max_bfs_breadth", (1, 2, 4, 10), 10, limits=(1, 1024)),
            Setting("match_type", ("BFS", "PROB"), "BFS", False),
            Setting("capacity", (100_000, 1_000_000, 10_000_000), 10_000_000, limits=(3, MAX_NODES)),
        ),
        allowed=lambda values, shape: (
            values["min_bfs_breadth"] <= values["max_bfs_breadth"] and values["capacity"] > values["max_trie_depth"]
        ),
        replay=_sglang,
        advice=_sglang_advice,
    ),
    "vllm": Engine(
        shape="vllm",
        any_shape=False,
        settings=(
            Setting("num_speculative_tokens", (1, 2, 3, 5, 8, 12, 16, 24, 32, 48), 5, limits=(1, MAX_DRAFT)),
            Setting("prompt_lookup_min", (1, 2, 3, 4, 5), 5, limits=(1, 1024)),
            Setting("prompt_lookup_max", (2, 3, 4, 5, 8, 16), 5, limits=(1, 1024)),
        ),
        allowed=lambda values, shape: values["prompt_lookup_min"] <= values["prompt_lookup_max"],
        replay=_vllm,
        advice=_vllm_advice,
    ),
}


def engine(name: str) -> Engine:
    """An engine by name; raises `ConfigError` for an unknown one, naming those there are."""
    if not isinstance(name, str) or name not in ENGINES:
        raise ConfigError(f"engine: got {name!r}, allowed {', '.join(ENGINES)}")
    return ENGINES[name]
