"""Cut a draft to what may be offered."""

from .._jit import kernel


@kernel
def prune(n, max_depth, tree, banned, tokens, parents, path_q30, scratch):
    """Keep what may be offered and return how many tokens that is.

    Left out: placeholders, what lies too deep, refused first tokens, second children where a chain is
    wanted, and all below these. `scratch int32[3, n + 1]`: new place of each token (-1: left out), its
    depth, whether a new place (+ 1) has a child.
    """
    place, depth, has_child = scratch[0], scratch[1], scratch[2]
    has_child[0] = 0
    kept = 0
    for i in range(n):
        parent = parents[i]
        place[i] = -1
        if parent >= 0 and place[parent] < 0:
            continue
        above = place[parent] if parent >= 0 else -1
        depth[i] = depth[parent] + 1 if parent >= 0 else 1
        if tokens[i] < 0 or depth[i] > max_depth or (not tree and has_child[above + 1]):
            continue
        refused = False
        if parent < 0:
            for token in banned:
                refused = refused or token == tokens[i]
        if refused:
            continue
        has_child[above + 1] = 1
        has_child[kept + 1] = 0
        place[i] = kept
        tokens[kept], parents[kept], path_q30[kept] = tokens[i], above, path_q30[i]
        kept += 1
    return kept
