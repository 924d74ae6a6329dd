"""Drafts as an engine that verifies trees of a fixed number of rows wants them."""

from .._jit import kernel


@kernel
def fill_rows(batch, tokens, parents, n_draft, last, chain, n_rows, ids, mask):
    """Write each draft as `n_rows` rows: ids int64[batch * n_rows] and ancestors bool[batch * n_rows * n_rows].

    Row 0 is the last committed token, row j + 1 is draft token j, a parent's row always comes before its children's.
    Unused rows hold token 0, as a child of row 0 in a tree and as the next of the chain where `chain` is set: under
    plain causal attention, which is all that a chain may rely on, no other parent would be true.
    """
    for i in range(batch):
        first = i * n_rows
        ids[first] = last[i]
        drafted = min(n_draft[i], n_rows - 1)
        for row in range(n_rows):
            at = (first + row) * n_rows
            mask[at : at + n_rows] = False
            if row > 0:
                parent = parents[i, row - 1] + 1 if row <= drafted else (row - 1 if chain else 0)
                above = (first + parent) * n_rows
                for column in range(parent + 1):
                    mask[at + column] = mask[above + column]
                ids[first + row] = tokens[i, row - 1] if row <= drafted else 0
            mask[at + row] = True
