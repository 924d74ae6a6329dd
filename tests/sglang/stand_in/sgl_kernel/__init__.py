"""Test-only stand-in for the CPU build of sgl-kernel, which no package index carries: plain torch, slow, exact.

Only what SGLang 0.5.23 imports or calls for n-gram speculation on a CPU is here. Names, argument orders and in-place
outputs are the engine's.
"""

import ctypes

from . import attention, speculative  # noqa: F401
from .speculative import verify_tree_greedy_cpu  # noqa: F401


def _spans(rows, starts, ends):
    """Each request's row, its span in that row, and its span in a flat array of all of them."""
    at = 0
    for row, start, end in zip(rows.tolist(), starts.tolist(), ends.tolist()):
        yield row, slice(start, end), slice(at, at + end - start)
        at += end - start


def assign_req_to_token_pool_cpu(rows, req_to_token, starts, ends, cache_loc, width):
    """Write each request's new cache locations into its row."""
    for row, there, here in _spans(rows, starts, ends):
        req_to_token[row, there] = cache_loc[here].to(req_to_token.dtype)


def assign_extend_cache_locs_cpu(rows, req_to_token, starts, ends, cache_loc, width):
    """Read each request's cache locations from its row."""
    for row, there, here in _spans(rows, starts, ends):
        cache_loc[here] = req_to_token[row, there].to(cache_loc.dtype)


def fill_accept_out_cache_loc_cpu(accept_index, cache_loc, accepted):
    """Gather the locations of accepted rows; -1 in `accept_index` is no row."""
    rows = accept_index[accept_index >= 0].long()
    accepted[: len(rows)] = cache_loc[rows]


def copy_all_layer_kv_cache_cpu(buffers, row_bytes, targets, sources):
    """Copy cache rows in every layer, as if all were read before any is written."""
    moves = [(t, s) for t, s in zip(targets.tolist(), sources.tolist()) if t != s]
    for address, size in zip(buffers.tolist(), row_bytes.tolist()):
        rows = [ctypes.string_at(address + source * size, size) for _, source in moves]
        for (target, _), row in zip(moves, rows):
            ctypes.memmove(address + target * size, row, size)


def _not_for_ngram(*arguments, **named):
    raise NotImplementedError("the stand-in covers n-gram speculation only")


# Imported by name for other algorithms, never called for this one.
assign_draft_cache_locs_contiguous_cpu = fill_bonus_tokens_cpu = rotate_input_ids_cpu = _not_for_ngram
build_tree_kernel_efficient_cpu = _not_for_ngram
