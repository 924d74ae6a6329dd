"""What a verify step accepts and emits: the reference by hand-made cases, the compiled kernel by the reference."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngramspec.kernels.verify import N_COUNTS, calibrate_batch, verify_batch
from ngramspec.replay import verify
from ngramspec.replay.verify import output_ends
from tests.naive_replay import make_trace, traces

pytestmark = pytest.mark.jit_off
CHAIN = [-1, 0, 1, 2, 3, 4, 5]
EOS = 9


@pytest.mark.parametrize(
    ("tokens", "parents", "continuation", "limits", "accepted", "emitted", "ended"),
    [
        ([], [], [5, 6], {}, [], [5], False),
        ([5, 6], CHAIN, [5, 6, 7, 8], {}, [0, 1], [5, 6, 7], False),
        ([5, 9], CHAIN, [5, 6, 7], {}, [0], [5, 6], False),
        ([4, 6], CHAIN, [5, 6, 7], {}, [], [5], False),
        # A tree: two branches, the second one right, then its second child.
        ([4, 5, 6, 7, 8], [-1, -1, 0, 1, 1], [5, 8, 1, 2], {}, [1, 4], [5, 8, 1], False),
        # All of d d EOS d d match: three are emitted.
        ([1, 2, EOS, 3, 4], CHAIN, [1, 2, EOS, 3, 4, 5], {"eos_ids": [EOS]}, [0, 1, 2], [1, 2, EOS], True),
        ([1], CHAIN, [1, EOS, 2], {"eos_ids": [EOS]}, [0], [1, EOS], True),
        # The record's end cuts the last step: no bonus.
        ([1, 2, 3], CHAIN, [1, 2], {}, [0, 1], [1, 2], True),
        ([1], CHAIN, [1, 2], {}, [0], [1, 2], True),
        ([1, 2, 3], CHAIN, [1, 2, 3, 4], {"max_tokens": 2}, [0, 1], [1, 2], True),
        ([1, 2, 3], CHAIN, [1, 2, 3, 4], {"max_tokens": 4}, [0, 1, 2], [1, 2, 3, 4], True),
        ([], [], [], {}, [], [], True),
        ([0], CHAIN, [0, 0], {}, [0], [0, 0], True),
    ],
)
def test_reference(tokens, parents, continuation, limits, accepted, emitted, ended):
    assert verify(tokens, parents, continuation, **limits) == (accepted, emitted, ended)


@st.composite
def steps(draw):
    """A draft tree without duplicate siblings over a small alphabet, and what is left of the record (not empty)."""
    tokens, parents = [], []
    for _ in range(draw(st.integers(0, 8))):
        parent = draw(st.integers(-1, len(tokens) - 1))
        token = draw(st.integers(0, 2))
        if (token, parent) not in zip(tokens, parents):
            tokens.append(token)
            parents.append(parent)
    continuation = draw(st.lists(st.integers(0, 2), min_size=1, max_size=6))
    return tokens, parents, continuation


class Arrays:
    """A batch of steps laid out for the kernels."""

    def __init__(self, batch, width=8):
        n = len(batch)
        self.tokens, self.parents = np.full((n, width), -7, np.int32), np.full((n, width), -7, np.int32)
        self.n_draft = np.array([len(tokens) for tokens, _, _ in batch], np.int32)
        self.path_q30 = np.zeros((n, width), np.int32)
        self.outputs = np.array([token for _, _, record in batch for token in record], np.int32)
        ends = np.cumsum([len(record) for _, _, record in batch])
        starts = np.append(0, ends[:-1])
        self.state = np.stack([starts, ends, np.full(n, -1), np.arange(n)], 1).astype(np.int64)
        for i, (tokens, parents, _) in enumerate(batch):
            self.tokens[i, : len(tokens)], self.parents[i, : len(tokens)] = tokens, parents
        self.remaining, self.depths = np.zeros(n, np.int32), np.zeros(width, np.int32)
        self.emitted, self.offsets = np.zeros(n * (width + 1), np.int32), np.zeros(n + 1, np.int32)
        self.per_row = np.zeros((n, N_COUNTS), np.int64)
        self.n, self.width = n, width

    def verify(self):
        sources = np.zeros((self.n, self.width), np.int8)
        counts = (np.zeros((self.width + 1, 2), np.int64), np.zeros((5, 2), np.int64), np.zeros(7, np.int64))
        return verify_batch(
            self.n, -1, self.outputs, self.tokens, self.parents, sources, self.n_draft, np.zeros(self.n, np.int32),
            self.state, self.remaining, self.depths, self.emitted, self.offsets, self.per_row, *counts,
        )  # fmt: skip


@given(st.lists(steps(), min_size=1, max_size=4))
def test_kernel_equals_reference(batch):
    arrays = Arrays(batch)
    n_emitted, n_ended = arrays.verify()
    expected = [verify(*step) for step in batch]
    got = [arrays.emitted[arrays.offsets[i] : arrays.offsets[i + 1]].tolist() for i in range(len(batch))]
    assert got == [step.emitted for step in expected]
    assert n_emitted == sum(len(step.emitted) for step in expected)
    assert n_ended == sum(step.ended for step in expected)
    assert arrays.per_row[:, 2].tolist() == [len(step.accepted) for step in expected]
    assert (arrays.state[:, 0] - np.append(0, arrays.state[:-1, 1])).tolist() == [len(e.emitted) for e in expected]


def test_conditional_probabilities_are_binned():
    # Right: 5 at 0.5, then 6 at 0.4 of that. Wrong: 7. Not counted: the child of 7, and 8 past the record.
    arrays = Arrays([([5, 7, 6, 1, 8], [-1, -1, 0, 1, 2], [5, 6])])
    arrays.path_q30[0, :5] = (np.array([0.5, 0.25, 0.2, 0.2, 0.2]) * 2**30).astype(np.int32)
    bins = np.zeros((10, 3), np.int64)
    calibrate_batch(
        1, arrays.outputs, arrays.tokens, arrays.parents, arrays.path_q30, arrays.n_draft, arrays.state,
        arrays.depths, bins
    )  # fmt: skip
    assert {i: (n, hits) for i, (n, _, hits) in enumerate(bins.tolist()) if n} == {2: (1, 0), 3: (1, 1), 5: (1, 1)}
    assert bins[2, 1] == 2**28 and bins[5, 1] == 2**29


def test_certainty_falls_in_the_last_bin():
    arrays = Arrays([([5], [-1], [5])])
    arrays.path_q30[0, 0] = 1 << 30
    bins = np.zeros((10, 3), np.int64)
    calibrate_batch(
        1, arrays.outputs, arrays.tokens, arrays.parents, arrays.path_q30, arrays.n_draft, arrays.state,
        arrays.depths, bins
    )  # fmt: skip
    assert bins[9].tolist() == [1, 1 << 30, 1]


@given(traces, st.sampled_from([None, (), (0,), (1, 2)]), st.sampled_from([None, 1, 3]))
def test_ends_of_outputs(trace, eos_ids, max_tokens):
    ends = output_ends(trace, eos_ids, max_tokens)
    for row in range(len(trace)):
        eos = trace.eos[row].tolist() if eos_ids is None else eos_ids
        kept = []
        for token in trace.output[row].tolist()[:max_tokens]:
            kept.append(token)
            if token in eos:
                break
        assert ends[row] - trace.output.offsets[row] == len(kept)


def test_an_eos_of_the_next_row_does_not_end_this_one():
    trace = make_trace([{"prompt": [], "output": [1, 1]}, {"prompt": [], "output": [EOS, 1]}])
    assert output_ends(trace, [EOS]).tolist() == [2, 3]
