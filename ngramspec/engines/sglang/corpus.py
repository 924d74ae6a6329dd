"""What stands where SGLang builds its own n-gram corpus: external corpora as frozen text that our drafts may copy from.

Corpora are loaded by a thread of SGLang's and committed between two steps; all that takes long happens in the thread.
A drafter looks at one frozen text, so that every load makes one of all corpora.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import numpy as np

from ...caches.base import Int32
from ...caches.frozen import FrozenCorpus
from ...config import DrafterConfig
from ...errors import EngineContractError

#: Stands between two documents in what SGLang's endpoints deliver.
SEPARATOR = -(2**31)

Use = Callable[[FrozenCorpus | None], None]


class Corpus:
    """External corpora by name, with the interface of SGLang's own; builds that one if the server goes back to it.

    Parameters
    ----------
    **options
        What SGLang gives its own.
    """

    #: SGLang's class. An attribute, because the plugin machinery rebinds module globals that name it.
    stock: ClassVar[Any] = None

    def __init__(self, **options: Any) -> None:
        self.options = options
        self._documents: dict[str, list[Int32]] = {}
        self._n_tokens: dict[str, int] = {}
        self._drafter: DrafterConfig | None = None
        self._max_bytes = 0
        self._use: Use | None = None
        self._loaded: tuple[str, list[Int32], FrozenCorpus | None] | None = None
        self._merged: list[FrozenCorpus] = []  # by a thread, to be taken up at the next step
        self._merging: threading.Thread | None = None

    def bind(self, drafter: DrafterConfig, max_bytes: int, use: Use | None) -> None:
        """Know the drafter, and give it what was loaded before there was one; modifies.

        Parameters
        ----------
        drafter : DrafterConfig
            Its settings.
        max_bytes : int
            Hard limit of the frozen text.
        use : callable, optional
            Makes the drafter use a frozen text; called between two steps. None: this rank does not draft.
        """
        self._drafter, self._max_bytes, self._use = drafter, max_bytes, use
        if self._documents and use is not None:
            use(self._build(self._documents))

    def build_stock(self) -> Any:
        """SGLang's own corpus with the options given and the corpora loaded so far."""
        stock = type(self).stock(**self.options)
        for name, documents in self._documents.items():
            chunks = [([SEPARATOR] if i else []) + document.tolist() for i, document in enumerate(documents)]
            stock.commit_external_corpus_load(name, stock.load_external_corpus_named(name, chunks))
        return stock

    @property
    def remaining_token_budget(self) -> int:
        """Tokens that may still be loaded, as the server limits them."""
        return int(self.options.get("external_corpus_max_tokens", 10_000_000)) - sum(self._n_tokens.values())

    def load_external_corpus_named(self, corpus_id: str, chunks: Iterable[Sequence[int]]) -> int:
        """Build a corpus, to be used once committed; returns its tokens. For a thread of SGLang's.

        Parameters
        ----------
        corpus_id : str
            Its name.
        chunks : iterable of sequences of int
            Token ids; `SEPARATOR` stands between two documents.

        Raises
        ------
        ValueError
            The name is taken, there is no token, or there are too many.
        """
        if corpus_id in self._n_tokens:
            raise ValueError(f"external corpus {corpus_id!r} is there already: remove it first, or use another name")
        documents = split(chunks)
        n_tokens = sum(map(len, documents))
        if not n_tokens:
            raise ValueError(f"external corpus {corpus_id!r} has no token")
        if n_tokens > self.remaining_token_budget:
            raise ValueError(
                f"external corpus {corpus_id!r} has {n_tokens} tokens, {self.remaining_token_budget} may still be "
                "loaded: raise --speculative-ngram-external-corpus-max-tokens"
            )
        text = None
        if self._drafter is not None and self._use is not None:
            text = self._build({**self._documents, corpus_id: documents})
        self._loaded = corpus_id, documents, text
        return n_tokens

    def commit_external_corpus_load(self, corpus_id: str, loaded_token_count: int) -> None:
        """Use what was loaded, from the next step on; modifies.

        Parameters
        ----------
        corpus_id : str
            Its name.
        loaded_token_count : int
            What `load_external_corpus_named` returned.
        """
        loaded, self._loaded = self._loaded, None
        if loaded is None or loaded[0] != corpus_id:
            return
        _, self._documents[corpus_id], text = loaded
        self._n_tokens[corpus_id] = loaded_token_count
        if text is not None and self._use is not None:
            self._merged.clear()
            self._use(text)

    def remove_external_corpus(self, corpus_id: str) -> None:
        """Forget a corpus; modifies. At once nothing is drafted from any, and from the others again once they are put
        together anew, which a thread does. An unknown name, or a load going on, is a `ValueError`.
        """  # noqa: D205
        if corpus_id not in self._n_tokens:
            raise ValueError(f"external corpus {corpus_id!r} is not there; there are {sorted(self._n_tokens)}")
        if self._loaded is not None or (self._merging is not None and self._merging.is_alive()):
            raise ValueError("external corpora are being put together: try again in a moment")
        del self._documents[corpus_id], self._n_tokens[corpus_id]
        if self._use is None:
            return
        self._use(None)
        if self._documents:
            documents = dict(self._documents)
            self._merging = threading.Thread(target=lambda: self._merged.append(self._build(documents)), daemon=True)
            self._merging.start()

    def list_external_corpora(self) -> dict[str, int]:
        """Tokens of each corpus."""
        return dict(self._n_tokens)

    def between_steps(self) -> None:
        """Take up what a thread has put together; modifies. Call it between two steps."""
        if self._merged and self._use is not None:
            self._use(self._merged.pop())

    def reset(self) -> None:
        """Nothing: corpora outlive a flush, as SGLang's do."""

    def erase_match_state(self, req_ids: list[str]) -> None:
        """Nothing: requests are followed elsewhere."""

    def _build(self, named: dict[str, list[Int32]]) -> FrozenCorpus:
        """One frozen text of all; raises `EngineContractError` where it would be too large."""
        drafter, documents = self._drafter, [document for each in named.values() for document in each]
        assert drafter is not None
        nbytes = FrozenCorpus.nbytes_for(map(len, documents), drafter.orders)
        if nbytes > self._max_bytes:
            raise EngineContractError(
                f"external corpora need {nbytes} bytes together, max_corpus_bytes is {self._max_bytes}: "
                "raise it, or load fewer"
            )
        return FrozenCorpus.build(
            "external",
            documents,
            vocab_size=drafter.vocab_size,
            orders=drafter.orders,
            max_hops=drafter.max_hops,
            max_match=drafter.max_match,
        )


def split(chunks: Iterable[Sequence[int]]) -> list[Int32]:
    """Documents of a stream of token ids, empty ones left out.

    Parameters
    ----------
    chunks : iterable of sequences of int
        Pieces of the stream; `SEPARATOR` stands between two documents.
    """
    pieces = [np.asarray(chunk, np.int64) for chunk in chunks]
    stream = np.concatenate(pieces) if pieces else np.zeros(0, np.int64)
    ends = [*np.flatnonzero(stream == SEPARATOR).tolist(), len(stream)]
    starts = [0, *(end + 1 for end in ends[:-1])]
    return [stream[a:b].astype(np.int32) for a, b in zip(starts, ends, strict=True) if b > a]
