"""The attention mask of a verify step on a GPU: a row sees its request's whole context and its own ancestors."""

from __future__ import annotations

import torch


def full_mask(tree: torch.Tensor, seq_lens: torch.Tensor, n_context: int, n_rows: int) -> torch.Tensor:
    """Lay every request's mask out flat, in a number of torch calls that does not grow with the batch.

    Parameters
    ----------
    tree : bool[batch * n_rows * n_rows]
        Which rows of its own draft each row sees.
    seq_lens : int[batch]
        Committed tokens a request, on the device of `tree`.
    n_context : int
        Sum of `seq_lens`, known on the host, so that nothing waits for the device.
    n_rows : int
        Rows verified a request.

    Returns
    -------
    bool[n_rows * (n_context + batch * n_rows)]
        Request after request, row after row: ones for the context, then the row of `tree`.
    """
    batch = len(seq_lens)
    context = seq_lens.to(torch.int64)
    length = context + n_rows
    first = (length.cumsum(0) - length) * n_rows
    row = torch.arange(n_rows, device=tree.device)
    starts = first[:, None] + row * length[:, None] + context[:, None]
    mask = torch.ones(n_rows * (n_context + batch * n_rows), dtype=torch.bool, device=tree.device)
    mask[(starts[:, :, None] + row).flatten()] = tree
    return mask
