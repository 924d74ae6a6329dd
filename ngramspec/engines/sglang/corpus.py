"""What stands where SGLang builds its own n-gram corpus, so that its memory is not spent beside ours."""

from __future__ import annotations

from typing import Any, ClassVar

from ...errors import EngineContractError


class Corpus:
    """Keeps nothing; builds SGLang's own corpus if the server goes back to it.

    Parameters
    ----------
    **options
        What SGLang gives its own.
    """

    #: SGLang's class. An attribute, because the plugin machinery rebinds module globals that name it.
    stock: ClassVar[Any] = None

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.remaining_token_budget = 0

    def build_stock(self) -> Any:
        """SGLang's own corpus with the options given."""
        return type(self).stock(**self.options)

    def load_external_corpus_named(self, corpus_id: str, chunks: Any) -> int:
        """Refuse: raises `EngineContractError`, which the endpoint reports."""
        raise EngineContractError(
            f"external corpus {corpus_id!r}: ngramspec drafts from no external corpora in this version; "
            "start the server with NGRAMSPEC=0 to use SGLang's own n-gram drafts with them"
        )

    def remove_external_corpus(self, corpus_id: str) -> None:
        """Refuse: nothing was loaded; raises `EngineContractError`."""
        raise EngineContractError(f"external corpus {corpus_id!r}: none is loaded")

    def list_external_corpora(self) -> dict[str, int]:
        """No corpora."""
        return {}

    def reset(self) -> None:
        """Nothing to forget."""

    def erase_match_state(self, req_ids: list[str]) -> None:
        """Nothing to erase."""
