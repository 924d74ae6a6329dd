"""A draft's mask, links, positions and drawing, against definitions written the slow way."""

from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngramspec.draft import ONE_Q30, Draft, DraftBatch, Reason, Source, Topology
from ngramspec.errors import ConfigError

#: 1 ├ 2 ─ 4
#:   └ 3         and a second root, 5.
TOKENS, PARENTS = [1, 2, 3, 4, 5], [-1, 0, 0, 1, -1]


def draft_of(parents, tokens=None, probs=None):
    n = len(parents)
    return Draft(
        np.array(range(n) if tokens is None else tokens, np.int32),
        np.array(parents, np.int32),
        np.array([1.0] * n if probs is None else probs, np.float32),
        np.full(n, Source.OWN, np.int8),
        match_length=3,
        reason=Reason.DRAFTED if n else Reason.NO_MATCH,
    )


@st.composite
def trees(draw, max_nodes=24):
    """Parents of a random tree, each before its children."""
    n = draw(st.integers(0, max_nodes))
    return [draw(st.integers(-1, i - 1)) for i in range(n)]


def chain_to(parents, i):
    """Nodes from `i` up to a child of the root, `i` first."""
    path = []
    while i >= 0:
        path.append(i)
        i = parents[i]
    return path


@given(trees())
def test_a_row_attends_to_the_root_its_ancestors_and_itself(parents):
    mask = draft_of(parents).mask()
    assert mask.dtype == np.bool_ and mask.shape == (len(parents) + 1, len(parents) + 1)
    expected = {(0, 0)}
    for i in range(len(parents)):
        expected |= {(i + 1, 0)} | {(i + 1, j + 1) for j in chain_to(parents, i)}
    assert set(zip(*np.nonzero(mask))) == expected


@given(trees(), st.integers(1, 1000))
def test_positions_count_on_from_the_last_committed_token(parents, n_committed):
    draft = draft_of(parents)
    depths = [len(chain_to(parents, i)) for i in range(len(parents))]
    assert draft.depths().tolist() == depths
    positions = draft.positions(n_committed)
    assert positions.dtype == np.int32
    assert positions.tolist() == [n_committed - 1 + depth for depth in [0, *depths]]


@given(trees())
def test_links_list_the_children_of_every_row_in_draft_order(parents):
    links = draft_of(parents).links()
    assert links.next_token.dtype == links.next_sibling.dtype == np.int32
    seen = []
    for row in range(len(parents) + 1):
        children, child = [], int(links.next_token[row])
        while child != -1:
            children.append(child)
            child = int(links.next_sibling[child])
        assert children == [i + 1 for i, parent in enumerate(parents) if parent == row - 1]
        seen += children
    assert sorted(seen) == list(range(1, len(parents) + 1)), "every token hangs in exactly one list"
    assert links.next_sibling[0] == -1


@given(trees())
def test_walking_the_links_verifies_as_a_verifier_does(parents):
    """The usual kernel: at each row take the child whose token the target emits; all tokens differ here."""
    draft = draft_of(parents)
    links = draft.links()
    for leaf in range(len(parents)):
        target, row, accepted = chain_to(parents, leaf)[::-1], 0, []
        for token in target:
            child = links.next_token[row]
            while child != -1 and draft.tokens[child - 1] != token:
                child = links.next_sibling[child]
            assert child != -1
            accepted.append(int(draft.tokens[child - 1]))
            row = int(child)
        assert accepted == target


def test_one_tree_in_full():
    draft = draft_of(PARENTS, TOKENS)
    assert draft.mask().astype(int).tolist() == [
        [1, 0, 0, 0, 0, 0],
        [1, 1, 0, 0, 0, 0],
        [1, 1, 1, 0, 0, 0],
        [1, 1, 0, 1, 0, 0],
        [1, 1, 1, 0, 1, 0],
        [1, 0, 0, 0, 0, 1],
    ]
    assert draft.links().next_token.tolist() == [1, 2, 4, -1, -1, -1]
    assert draft.links().next_sibling.tolist() == [-1, 5, 3, -1, -1, -1]
    assert draft.positions(10).tolist() == [9, 10, 11, 11, 12, 10]
    assert len(draft) == 5


def test_an_empty_draft_is_the_root_alone():
    draft = draft_of([])
    assert draft.mask().tolist() == [[True]]
    assert [part.tolist() for part in draft.links()] == [[-1], [-1]]
    assert draft.positions(1).tolist() == [0]


@pytest.mark.parametrize("reason", [r for r in Reason if r is not Reason.DRAFTED])
def test_an_empty_draft_says_why(reason):
    assert str(Draft(*(np.zeros(0, t) for t in (np.int32, np.int32, np.float32)), reason=reason)) == (
        f"(no draft: {reason.name.lower()})"
    )


@pytest.mark.parametrize("size", [-1, 2**16 + 1, 2**70, 1.0, "1", None, True])
def test_arrays_of_a_batch_have_sizes_that_can_be(size):
    for batch, width in ((size, 1), (1, size)):
        with pytest.raises(ConfigError, match="both must be integers from 0 to 65536"):
            DraftBatch.allocate(batch, width)


def test_str_draws_the_tree():
    draft = draft_of(PARENTS, TOKENS, [0.75, 0.5, 0.25, 0.125, 0.0625])
    assert str(draft).splitlines() == [
        "├─ 1  0.750",
        "│  ├─ 2  0.500",
        "│  │  └─ 4  0.125",
        "│  └─ 3  0.250",
        "└─ 5  0.062",
    ]


def test_render_shows_text_where_it_can_be_decoded():
    words = {1: "if", 2: " x", 3: " y", 4: ":\n", 5: "for"}
    drawn = draft_of(PARENTS, TOKENS).render(lambda ids: "".join(words[i] for i in ids))
    assert drawn.splitlines() == [
        "├─ 1 'if'  1.000",
        "│  ├─ 2 ' x'  1.000",
        "│  │  └─ 4 ':\\n'  1.000",
        "│  └─ 3 ' y'  1.000",
        "└─ 5 'for'  1.000",
    ]


@given(trees())
def test_the_drawing_has_one_line_a_token_indented_by_depth(parents):
    draft = draft_of(parents)
    if not parents:
        return
    lines = str(draft).splitlines()
    drawn = {int(line.split("─ ")[1].split()[0]): line.index("─") // 3 + 1 for line in lines}
    assert drawn == dict(enumerate(draft.depths().tolist()))


def test_a_batch_gives_each_row_as_a_draft_of_its_own():
    out = DraftBatch.allocate(2, 3)
    out.tokens[1], out.parents[1], out.path_q30[1] = [7, 8, 99], [-1, 0, 99], [ONE_Q30, ONE_Q30 // 4, 99]
    out.sources[1], out.n_draft[1], out.match_length[1] = [Source.OWN, Source.SHARED, 9], 2, 5
    out.reason[:] = [Reason.NO_MATCH, Reason.DRAFTED]
    draft = out.row(1)
    out.tokens[1] = 0
    assert draft.tokens.tolist() == [7, 8], "a copy: the caller reuses the arrays"
    assert draft.parents.tolist() == [-1, 0]
    assert draft.probs.tolist() == [1.0, 0.25] and draft.probs.dtype == np.float32
    assert draft.sources.tolist() == [Source.OWN, Source.SHARED]
    assert (draft.match_length, draft.reason) == (5, Reason.DRAFTED)
    assert len(out.row(0)) == 0 and out.row(0).reason is Reason.NO_MATCH
    assert out.width == 3


def test_topologies_are_parsed_by_name():
    assert Topology.parse("chain") is Topology.CHAIN
    assert Topology.parse(Topology.TREE) is Topology.TREE
    for wrong in ("star", "", 1, None):
        with pytest.raises(ConfigError, match="allowed 'chain' or 'tree'"):
            Topology.parse(wrong)


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("parents", np.zeros((2, 1), np.int32)),
        ("sources", np.zeros((2, 4), np.int32)),
        ("reason", np.zeros(1, np.int32)),
        ("tokens", np.zeros(8, np.int32)),
    ],
)
def test_arrays_of_a_batch_that_do_not_fit_are_refused(name, array):
    whole = DraftBatch.allocate(2, 4)
    arrays = {item.name: getattr(whole, item.name) for item in fields(whole)} | {name: array}
    with pytest.raises(ConfigError, match=f"out.{name}: got .*must be"):
        DraftBatch(**arrays)
