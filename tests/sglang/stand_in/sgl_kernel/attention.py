"""Attention over a paged cache, one request at a time."""

import torch


def _attend(out, queries, keys, values, visible, scale):
    """Write to `out` attention of `queries` [n, heads, size] to cached rows where `visible` bool[n, rows] says so."""
    q, k, v = (x.transpose(0, 1)[None].float() for x in (queries, keys, values))
    mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, visible, scale=scale, enable_gqa=True)
    out.copy_(mixed[0].transpose(0, 1))


def _within(positions, n_rows, window):
    """Causal visibility bool[len(positions), n_rows], within the last `window` rows where it is positive."""
    rows = torch.arange(n_rows)[None]
    causal = rows <= positions[:, None]
    return causal & (rows > positions[:, None] - window) if window and window > 0 else causal


def _store(buffer, new, cache_loc):
    buffer[cache_loc] = new.view(-1, *buffer.shape[1:]).to(buffer.dtype)


def decode_attention_cpu(
    q, keys, values, key_scale, value_scale, out, new_k, new_v, cache_loc, logits, req_to_token, rows, seq_lens, scale,
    cap, cross, window, encoder_lens, sinks,
):  # fmt: skip
    """One query a request, to everything cached of it."""
    assert not cap and not cross and sinks is None
    if new_k is not None:
        _store(keys, new_k, cache_loc)
        _store(values, new_v, cache_loc)
    for i, (row, n) in enumerate(zip(rows.tolist(), seq_lens.tolist())):
        at = req_to_token[row, :n].long()
        _attend(out[i : i + 1], q[i : i + 1], keys[at], values[at], _within(torch.tensor([n - 1]), n, window), scale)


def extend_attention_cpu(
    q, new_k, new_v, out, keys, values, key_scale, value_scale, req_to_token, rows, seq_lens, extend_lens,
    extend_starts, max_extend, scale, cap, cross, window, encoder_lens, sinks, tree_mask, causal,
):  # fmt: skip
    """Several queries a request; those of a tree see the committed tokens and their own ancestors."""
    assert not cap and not cross and sinks is None and causal
    read = 0
    lengths = zip(rows.tolist(), seq_lens.tolist(), extend_lens.tolist(), extend_starts.tolist())
    for row, n, n_new, start in lengths:
        n_before = n - n_new
        if tree_mask is None:
            visible = _within(torch.arange(n_before, n), n, window)
        else:
            tree = tree_mask[read : read + n_new * n_new].view(n_new, n_new)
            read += n_new * n_new
            depth = tree.sum(1) - 1
            visible = torch.cat([_within(n_before + depth, n_before, window), tree], 1)
            assert not (window and window > 0) or n_new <= window
        at = req_to_token[row, :n].long()
        new = slice(start, start + n_new)
        _attend(out[new], q[new], keys[at], values[at], visible, scale)


for _function in (decode_attention_cpu, extend_attention_cpu):
    setattr(torch.ops.sgl_kernel, _function.__name__, _function)
