"""What caches are fed, as Hypothesis strategies: small alphabets, repeating text, sessions, tenants, placeholders."""

from dataclasses import dataclass, field

from hypothesis import strategies as st

#: Few ids, so that everything occurs again; the last one ends outputs.
VOCAB_SIZE = 8
EOS = VOCAB_SIZE - 1

#: Ids that stand for no token: negative ones, and those outside the vocabulary.
PLACEHOLDERS = (-1, -7, VOCAB_SIZE, VOCAB_SIZE + 3, 2**31 - 2)

tokens = st.integers(0, EOS)
sessions = st.sampled_from([None, None, "s", "t"])
tenants = st.sampled_from([None, None, "x", "y"])
shares = st.sampled_from(["outputs", "outputs", "all", "none"])
topologies = st.sampled_from(["tree", "tree", "chain"])
min_probs = st.sampled_from([0.0, 0.0, 0.0, 0.1, 0.5, 1.0])
budgets = st.sampled_from([0, 1, 2, 3, 5, 11, 24])
remaining = st.one_of(st.none(), st.none(), st.integers(0, 6))
pieces = st.one_of(st.none(), st.none(), st.integers(0, 5))  # tokens of a prompt ingested at once


@st.composite
def texts(draw, min_size=0, max_size=12, placeholders=True):
    """Token ids that repeat themselves, with a placeholder now and then."""
    text = draw(st.lists(tokens, min_size=min_size, max_size=max_size))
    if len(text) >= 2 and draw(st.booleans()):
        start = draw(st.integers(0, len(text) - 2))
        text = (text + text[start:] + text[start:])[:max_size]
    if placeholders and text and draw(st.integers(0, 7)) == 0:
        text[draw(st.integers(0, len(text) - 1))] = draw(st.sampled_from(PLACEHOLDERS))
    return text


@dataclass(frozen=True)
class Life:
    """One request from its prompt on."""

    prompt: list[int]
    outputs: list[list[int]]  # emitted step by step
    session: str | None
    tenant: str | None
    share: str
    ends: bool  # finished before anything is asked
    pieces: list[int] = field(default_factory=list)  # prompt tokens ingested call by call


@st.composite
def lives(draw, min_size=1, max_size=4):
    """Several requests, one after the other; those that do not end run beside each other."""
    return draw(
        st.lists(
            st.builds(
                Life,
                prompt=texts(min_size=1, max_size=20),
                outputs=st.lists(texts(min_size=1, max_size=6), max_size=4),
                session=sessions,
                tenant=tenants,
                share=shares,
                ends=st.booleans(),
                pieces=st.lists(st.integers(0, 7), max_size=4),
            ),
            min_size=min_size,
            max_size=max_size,
        )
    )
