"""External corpora without SGLang: loading, committing, removing, limits, and the way back to SGLang's own."""

import numpy as np
import pytest

from ngramspec import EngineContractError
from ngramspec.engines.sglang.corpus import SEPARATOR, Corpus, split
from tests.engine_requests import FakeRequest, make, rows_of


def bound(max_bytes=2**24):
    drafts, corpus = make(), Corpus(external_corpus_max_tokens=1000)
    corpus.bind(drafts.drafter.config, max_bytes, drafts.use_corpus)
    return drafts, corpus


def load(corpus, name, *documents):
    chunks = [([SEPARATOR] if i else []) + document for i, document in enumerate(documents)]
    n = corpus.load_external_corpus_named(name, chunks)
    corpus.commit_external_corpus_load(name, n)
    return n


def first_draft(drafts, name, context):
    """What follows a context that nothing but a corpus knows."""
    request = FakeRequest(name, context[:-1])
    drafts.prefilled([request])
    request.output_ids.append(context[-1])
    (found,) = rows_of(drafts, request)
    request.ended = 1
    drafts.finished(name)
    return found[1:]


def settled(corpus):
    if corpus._merging is not None:
        corpus._merging.join(20)
    corpus.between_steps()


@pytest.mark.parametrize(
    ("chunks", "documents"),
    [
        ([], []),
        ([[1, 2], [3]], [[1, 2, 3]]),
        ([[1, 2], [SEPARATOR, 3], [4]], [[1, 2], [3, 4]]),
        ([[SEPARATOR, SEPARATOR, 1], [SEPARATOR]], [[1]]),
    ],
)
def test_a_stream_is_split_into_its_documents(chunks, documents):
    assert [document.tolist() for document in split(chunks)] == documents


def test_a_corpus_is_drafted_from_once_committed_and_no_longer_once_removed():
    drafts, corpus = bound()
    corpus.load_external_corpus_named("a", [[50, 51, 52, 53]])
    assert first_draft(drafts, "1", [7, 50, 51])[0] == 0
    corpus.commit_external_corpus_load("a", 4)
    assert first_draft(drafts, "2", [7, 50, 51])[:2] == [52, 53]
    corpus.remove_external_corpus("a")
    settled(corpus)
    assert first_draft(drafts, "3", [8, 50, 51])[0] == 0 and drafts.guard.failures == 0


def test_of_two_corpora_the_other_stays():
    drafts, corpus = bound()
    assert (load(corpus, "a", [50, 51, 52, 53]), load(corpus, "b", [60, 61, 62], [70, 71])) == (4, 5)
    assert corpus.list_external_corpora() == {"a": 4, "b": 5} and corpus.remaining_token_budget == 991
    assert first_draft(drafts, "1", [7, 50, 51])[:2] == [52, 53]
    assert first_draft(drafts, "2", [7, 60, 61])[:2] == [62, 0]  # never across documents
    corpus.remove_external_corpus("a")
    assert drafts.drafter.corpora == ()  # at once, whatever there still is to put together
    settled(corpus)
    assert first_draft(drafts, "3", [8, 50, 51])[0] == 0
    assert first_draft(drafts, "4", [8, 60, 61])[0] == 62


def test_corpora_outlive_a_flush_and_a_failure():
    drafts, corpus = bound()
    load(corpus, "a", [50, 51, 52, 53])
    drafts.flush()
    drafts.guard.failed("testing", ValueError())
    drafts.guard.ready()
    assert first_draft(drafts, "1", [7, 50, 51])[:2] == [52, 53]


def test_what_was_loaded_before_there_is_a_drafter_is_used_from_the_start():
    corpus, drafts = Corpus(), make()
    load(corpus, "a", [50, 51, 52])
    corpus.bind(drafts.drafter.config, 2**24, drafts.use_corpus)
    assert first_draft(drafts, "1", [7, 50, 51])[0] == 52


def test_a_rank_that_does_not_draft_knows_names_and_sizes_only():
    corpus = Corpus()
    corpus.bind(make().drafter.config, 0, None)
    assert load(corpus, "a", [50, 51, 52]) == 3 and corpus.list_external_corpora() == {"a": 3}
    corpus.remove_external_corpus("a")
    assert corpus.list_external_corpora() == {}


@pytest.mark.parametrize(
    ("max_bytes", "chunks", "words"),
    [
        (2**24, [[1] * 1001], "has 1001 tokens, 1000 may still be loaded"),
        (2**24, [[SEPARATOR], []], "has no token"),
        (2**10, [[1, 2, 3]], "max_corpus_bytes is 1024"),
    ],
)
def test_what_is_refused_changes_nothing(max_bytes, chunks, words):
    drafts, corpus = bound(max_bytes)
    with pytest.raises((ValueError, EngineContractError), match=words):
        corpus.load_external_corpus_named("a", chunks)
    assert corpus.list_external_corpora() == {} and drafts.drafter.corpora == ()


def test_names_are_taken_once_and_must_be_known():
    _, corpus = bound()
    load(corpus, "a", [1, 2, 3])
    with pytest.raises(ValueError, match="'a' is there already"):
        corpus.load_external_corpus_named("a", [[1]])
    with pytest.raises(ValueError, match=r"'b' is not there; there are \['a'\]"):
        corpus.remove_external_corpus("b")


def test_none_is_removed_while_one_is_loaded():
    _, corpus = bound()
    load(corpus, "a", [1, 2, 3])
    corpus.load_external_corpus_named("b", [[4, 5]])
    with pytest.raises(ValueError, match="try again in a moment"):
        corpus.remove_external_corpus("a")
    corpus.commit_external_corpus_load("b", 2)
    corpus.remove_external_corpus("a")


def test_going_back_to_sglangs_own_takes_the_corpora_along(monkeypatch):
    class Stock:
        def __init__(self, **options):
            self.options, self.loaded, self.sizes = options, {}, {}

        def load_external_corpus_named(self, name, chunks):
            self.loaded[name] = chunks
            return sum(map(len, chunks))

        def commit_external_corpus_load(self, name, n):
            self.sizes[name] = n

    monkeypatch.setattr(Corpus, "stock", Stock)
    corpus = Corpus(capacity=7)
    load(corpus, "a", [1, 2], [3])
    stock = corpus.build_stock()
    assert stock.options == {"capacity": 7} and stock.sizes == {"a": 4}
    assert [np.asarray(chunk).tolist() for chunk in stock.loaded["a"]] == [[1, 2], [SEPARATOR, 3]]
