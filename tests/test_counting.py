"""Small kernels that count, compared with plain Python, compiled and not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngramspec._jit import highest_bit, kernel
from ngramspec.draft import DraftBatch, Reason, Source
from ngramspec.kernels.limits import tally

pytestmark = pytest.mark.jit_off


@kernel
def called(bits):
    """`highest_bit` as kernels call it."""
    return highest_bit(bits)


@given(st.integers(0, 2**63 - 1))
def test_highest_bit_is_that_of_python(bits):
    assert called(bits) == bits.bit_length() - 1


@given(st.lists(st.lists(st.sampled_from(list(Source)[1:]), max_size=5), max_size=6))
def test_drafts_are_counted_by_reason_and_source(drafts):
    out = DraftBatch.allocate(8, 5)
    out.sources[:] = Source.OWN  # what is behind a draft's end does not count
    for i, sources in enumerate(drafts):
        out.n_draft[i], out.sources[i, : len(sources)] = len(sources), sources
        out.reason[i] = Reason.DRAFTED if sources else Reason.NO_MATCH
    by_source, by_reason = np.ones(len(Source), np.int64), np.zeros(len(Reason), np.int64)
    counted = tally(out.n_draft, out.sources, out.reason, len(drafts), by_source, by_reason)
    assert tuple(counted) == (sum(map(len, drafts)), sum(bool(sources) for sources in drafts))
    assert by_source.tolist() == [1 + sum(one.count(source) for one in drafts) for source in Source]
    assert by_reason[Reason.NO_MATCH] == sum(not sources for sources in drafts)
