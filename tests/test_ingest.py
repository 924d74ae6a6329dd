"""A prompt taken in at once leaves the text and chains that its tokens leave one by one, whatever gives way."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngramspec import HashConfig, RollingHashCache
from ngramspec.arena import S_HEAD, S_LINKS, S_META, S_TEXT

pytestmark = pytest.mark.jit_off

VOCAB = 5  # a sixth id is a placeholder


def make(orders, max_sessions):
    config = {"vocab_size": VOCAB, "max_requests": 2, "max_sessions": max_sessions, "orders": orders, "max_match": 64}
    least = HashConfig(**config).min_capacity_tokens
    return RollingHashCache(HashConfig(capacity_tokens=least, **config))


def text_of(cache):
    """Own text and its chains, all there is of them."""
    sections = [cache.arena.section("own", word) for word in (S_TEXT, S_LINKS, S_HEAD, S_META)]
    return [cache.arena.header("own").tobytes(), *(section.tobytes() for section in sections)]


# Long ones too: of two running texts the longer loses its beginning when the space for both runs out.
prompts = st.builds(
    lambda n, seed: np.random.default_rng(seed).choice(VOCAB + 1, n, p=[0.24, 0.24, 0.2, 0.2, 0.1, 0.02]).tolist(),
    st.integers(1, 200),
    st.integers(0, 99),
)


@given(
    requests=st.lists(st.tuples(prompts, st.booleans()), min_size=2, max_size=6),
    orders=st.sampled_from([(1, 2, 4, 8), (3,), (1, 33, 64)]),
    max_sessions=st.sampled_from([0, 2]),
    piece=st.sampled_from([1, 7, 16, 17, 1000]),
)
def test_at_once_and_one_after_the_other(requests, orders, max_sessions, piece):
    whole, single = make(orders, max_sessions), make(orders, max_sessions)
    running = []
    for i, (prompt, ends) in enumerate(requests):
        if len(running) == 2:
            gone = running.pop(0)
            whole.finish(gone)
            single.finish(gone)
        name, share = f"r{i}", {"share": "none"}
        whole.begin(name, prompt, max_tokens=0, **share)
        while whole.ingest(name, piece):
            pass
        single.begin(name, prompt[:1], **share)
        for token in prompt[1:]:
            single.accept(name, np.array([token], np.int32))
        running.append(name)
        assert text_of(whole) == text_of(single)
        if ends:
            running.remove(name)
            whole.finish(name)
            single.finish(name)
            assert text_of(whole) == text_of(single)
