"""The installed SGLang keeps the contract, and our rows and masks are what its own code makes of the same trees."""

import numpy as np
import pytest
import torch

from ngramspec import Draft
from ngramspec.cli import main
from ngramspec.engines.sglang.contract import CAPTURE, mismatches
from ngramspec.engines.sglang.mask import full_mask
from ngramspec.kernels.rows import fill_rows

N_ROWS = 6
TREES = [[], [-1], [-1, 0, 1, 2, 3], [-1, -1, 0, 1, 2], [-1, 0, 0, -1, 3]]


@pytest.fixture
def rows():
    """Ids and masks of the trees, tokens being 10, 11, ..."""
    n = len(TREES)
    parents = np.array([tree + [-1] * (N_ROWS - 1 - len(tree)) for tree in TREES], np.int32)
    tokens = np.arange(10, 10 + N_ROWS - 1, dtype=np.int32) + np.zeros((n, 1), np.int32)
    n_draft = np.array([len(tree) for tree in TREES], np.int32)
    ids, mask = np.zeros(n * N_ROWS, np.int64), np.zeros(n * N_ROWS**2, np.bool_)
    fill_rows(n, tokens, parents, n_draft, np.full(n, 9, np.int64), False, N_ROWS, ids, mask)
    return ids, mask


def links(tree):
    """Child and sibling links of a padded tree by our own definition."""
    full = np.array(tree + [-1] * (N_ROWS - 1 - len(tree)), np.int32)
    return Draft(np.zeros(N_ROWS - 1, np.int32), full, np.ones(N_ROWS - 1, np.float32)).links()


def test_the_installed_release_keeps_every_promise():
    assert mismatches() == [] and mismatches(CAPTURE) == []


def test_doctor_finds_nothing_wrong(capsys):
    assert main(["doctor", "--backend", "triton"]) == 0
    assert "WRONG" not in capsys.readouterr().out


def test_links_of_our_masks_are_the_drafts_own(rows):
    from sglang.srt.speculative.ngram_worker import _derive_tree_links

    child, sibling = _derive_tree_links(rows[1], len(TREES), N_ROWS)
    for i, tree in enumerate(TREES):
        ours = links(tree)
        assert child[i].tolist() == ours.next_token.tolist()
        # Of rows 1 and on: the engine gives row 0, which has no parent, no sibling.
        assert sibling[i].tolist() == ours.next_sibling.tolist()


@pytest.mark.parametrize("lengths", [[1, 1, 1, 1, 1], [5, 1, 9, 30, 2]])
def test_the_full_mask_is_the_engines_loop(rows, lengths):
    tree = torch.from_numpy(rows[1])
    expected = []
    for i, length in enumerate(lengths):
        own = tree.view(len(lengths), N_ROWS, N_ROWS)[i]
        expected.append(torch.cat((torch.ones(N_ROWS, length), own.float()), dim=1).to(torch.bool).flatten())
    seq_lens = torch.tensor(lengths, dtype=torch.int32)
    assert torch.equal(full_mask(tree, seq_lens, sum(lengths), N_ROWS), torch.cat(expected))


#: What SGLang's corpus is taught and asked; the trees that come out are hand-made by that: a chain, branches at the
#: root, branches further down, siblings under several parents, and none.
TAUGHT = [
    ([[1, 2, 3, 4, 5]], [1, 2]),
    ([[1, 2, 3], [1, 2, 4], [1, 2, 5]], [1, 2]),
    ([[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 6, 7]], [1, 2]),
    ([[1, 2, 3, 4, 8], [1, 2, 3, 5, 9], [1, 2, 3, 5, 10]], [9, 1, 2]),
    ([[1, 2, 3]], [7, 8]),
]


@pytest.mark.parametrize(("taught", "asked"), TAUGHT)
def test_rows_of_a_tree_are_those_of_sglangs_own_corpus(taught, asked):
    from sglang.srt.speculative.cpp_ngram.ngram_corpus import NgramCorpus

    corpus = NgramCorpus(max_trie_depth=8, min_bfs_breadth=1, max_bfs_breadth=8, draft_token_num=N_ROWS, capacity=5000)
    corpus.batch_put(taught)
    corpus.synchronize()
    ids, mask = corpus.batch_get(["a"], [asked], [len(asked)])
    seen = np.asarray(mask, np.bool_).reshape(N_ROWS, N_ROWS)
    n_draft = int(np.count_nonzero(np.asarray(ids)[1:]))
    assert (n_draft == 0) == (asked == [7, 8])
    # The same tree as a draft of ours: tokens, and the nearest row that each sees as its parent.
    tokens = np.asarray(ids, np.int32)[None, 1:]
    parents = np.full((1, N_ROWS - 1), -1, np.int32)
    for row in range(1, 1 + n_draft):
        parents[0, row - 1] = np.flatnonzero(seen[row, :row])[-1] - 1
    ours, our_mask = np.zeros(N_ROWS, np.int64), np.zeros(N_ROWS**2, np.bool_)
    last = np.array([asked[-1]], np.int64)
    fill_rows(1, tokens, parents, np.array([n_draft], np.int32), last, False, N_ROWS, ours, our_mask)
    assert ours.tolist() == np.asarray(ids).tolist()
    for row in range(N_ROWS):
        assert our_mask.reshape(N_ROWS, N_ROWS)[row].tolist() == seen[row].tolist(), row
