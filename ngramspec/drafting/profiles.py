"""Example cost models, each labelled as what it is. None was measured by this project: measure your own.

They say what kind of machine speculation suits, not what your server takes: `ngramspec breakeven --cost FILE` reads
your own points.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import ConfigError
from .cost import CostModel
from .cost_points import Point


def _dense() -> CostModel:
    return CostModel.from_linear(
        base_ms=7.1,
        per_token_ms=0.021,
        per_kv_token_ms=3.9e-5,
        name="dense-8b-h100",
        kind="read",
        note="a dense 8B model on one H100: a published linear fit of step time, 7.1 ms + 0.021 ms a token verified "
        "+ 0.000039 ms a KV token; not measured here",
    )


def _sparse() -> CostModel:
    """Time of reading weights, or of the arithmetic where that takes longer.

    With `n` tokens that choose 8 of 128 experts evenly and independently, a share `1 - (1 - 8/128) ** n` of the experts
    is read. Real routing repeats itself from one token to the next, so that real verify steps are cheaper.
    """
    bytes_per_ms = 3.35e9 * 0.8  # memory of an H100 at 80 % of its nominal 3.35 TB/s
    experts_ms, shared_ms, launch_ms = 57e9 / bytes_per_ms, 4e9 / bytes_per_ms, 1.5
    per_token_ms = 2 * 3.3e9 / (0.6 * 989e9)  # active parameters, at 60 % of 989 TFLOP/s
    per_kv_token_ms = 98_304 / bytes_per_ms  # bf16 keys and values of 48 layers of 4 heads of 128

    def at(n: int, batch: int, kv: int) -> Point:
        weights_ms = shared_ms + experts_ms * (1.0 - (1.0 - 8 / 128) ** n)
        ms = launch_ms + max(weights_ms, per_token_ms * n) + per_kv_token_ms * kv
        return Point(n, batch, kv, round(ms, 4))

    sizes = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 1024, 2048, 4096, 8192)
    return CostModel(
        decode=tuple(at(n, n, kv) for n in sizes for kv in (0, 2**20)),
        verify=tuple(at(n, 1, kv) for n in sizes for kv in (0, 2**20)),
        name="sparse-30b-a3b-h100",
        kind="modelled",
        note="a sparse model of 30B parameters, 3B of them active, 8 of 128 experts, bf16 on one H100: computed from "
        "bytes and arithmetic as if routing were even and independent; not measured by anyone",
    )


#: Name -> how to build it.
PROFILES: dict[str, Callable[[], CostModel]] = {"dense-8b-h100": _dense, "sparse-30b-a3b-h100": _sparse}


def profile(name: str) -> CostModel:
    """A named example; raises `ConfigError` for an unknown name, naming those there are."""
    if not isinstance(name, str) or name not in PROFILES:
        raise ConfigError(f"profile: got {name!r}, allowed {', '.join(PROFILES)}")
    return PROFILES[name]()
