"""Tree verification: links from a mask, and the walk along a greedy model's choices."""

import torch


def reconstruct_indices_from_tree_mask(mask, seq_lens, positions, rows, next_token, next_sibling, batch, n):
    """Fill positions and links of `batch` trees of `n` rows from bool mask[batch * n * n]; -1 is no link."""
    before = mask.view(-1)[: batch * n * n].view(batch, n, n) & torch.ones(n, n, dtype=torch.bool).tril(-1)
    positions.copy_((before.sum(2) + seq_lens[:batch, None]).flatten())
    rows.copy_(torch.arange(batch * n).view(batch, n))
    parents = torch.where(before, torch.arange(n), -1).amax(2)
    next_token.fill_(-1)
    next_sibling.fill_(-1)
    for tree, tree_parents in enumerate(parents.tolist()):
        youngest = {}
        for row, parent in enumerate(tree_parents):
            if parent < 0:
                continue
            if parent in youngest:
                next_sibling[tree, youngest[parent]] = row
            else:
                next_token[tree, parent] = row
            youngest[parent] = row


def verify_tree_greedy_cpu(
    predicts, accept_index, accept_token_num, candidates, retrive_index, retrive_next_token, retrive_next_sibling,
    target_predict,
):  # fmt: skip
    """Walk each tree along the model's choices: what it accepts, and the choice after the last accepted row."""
    chosen = target_predict.flatten().tolist()
    trees = zip(*(x.tolist() for x in (candidates, retrive_index, retrive_next_token, retrive_next_sibling)))
    for tree, (tokens, rows, next_token, next_sibling) in enumerate(trees):
        path, at = [0], next_token[0]
        while at >= 0 and len(path) < accept_index.shape[1]:
            if tokens[at] == chosen[rows[path[-1]]]:
                path.append(at)
                at = next_token[at]
            else:
                at = next_sibling[at]
        accept_token_num[tree] = len(path) - 1
        for k, node in enumerate(path):
            accept_index[tree, k] = rows[node]
            predicts[rows[node]] = chosen[rows[node]]
