"""Text to token ids: a local tokenizer, and a chat template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ConfigError
from ..tokenizer import load
from .failure import Bad

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from .template import Template

#: Stands for an answer when the template is asked what it puts behind one.
PROBE = "probe"


@dataclass(frozen=True)
class End:
    """How a template ends an answer: the text it puts there, and the token the model ends with, if known."""

    text: str
    ids: tuple[int, ...]


class Encoder:
    """Turns text into token ids.

    Parameters
    ----------
    tokenizer : Path, optional
        `tokenizer.json` or a folder that has one. None: every text is refused.
    chat_template : Path, optional
        A Jinja file. None: `chat_template.jinja` or `tokenizer_config.json` beside the tokenizer.

    Raises
    ------
    ConfigError
        A file is missing or not what it should be.
    """

    def __init__(self, tokenizer: Path | None = None, chat_template: Path | None = None) -> None:
        self._tokenizer: Tokenizer | None = None
        self._template: Template | None = None
        #: Whether each was needed.
        self.used, self.used_template = False, False
        if tokenizer is None:
            if chat_template is not None:
                raise ConfigError("--chat-template: has no effect without --tokenizer")
            return
        from .template import Template

        self._tokenizer = load(tokenizer)
        self._template = Template.find(tokenizer if tokenizer.is_dir() else tokenizer.parent, chat_template)

    def prompt(self, text: str, field: str) -> list[int]:
        """Ids of a whole prompt, with what the tokenizer itself puts around it (a BOS token, say)."""
        return self._encode(text, field, True)

    def written(self, text: str, field: str) -> list[int]:
        """Ids of text that a template or the model wrote: nothing is added."""
        return self._encode(text, field, False)

    def render(self, messages: Sequence[dict[str, Any]], field: str, **options: Any) -> str:
        """Text of a conversation by the chat template; raises `Bad` without one, or when it refuses.

        Parameters
        ----------
        messages : sequence of dict
            Roles and contents.
        field : str
            Where they stand, for messages.
        **options : object
            Variables of the template: `add_generation_prompt`, `tools`, ...
        """
        self._need(field)
        if self._template is None:
            raise Bad(
                "no chat template beside the tokenizer, in chat_template.jinja or tokenizer_config.json; name one with "
                "--chat-template",
                field=field,
            )
        self.used_template = True
        return self._template.render(messages, field, options)

    @cached_property
    def end(self) -> End:
        """How the template ends an answer."""
        question = {"role": "user", "content": "?"}
        answer = {"role": "assistant", "content": PROBE}
        try:
            text = self.render([question, answer], "", add_generation_prompt=False).rpartition(PROBE)[2]
        except Bad:
            return End("", ())
        ids = self.written(text, "")[:1]
        return End(text, tuple(ids) if ids and self._is_special(ids[0]) else self.eos)

    @cached_property
    def eos(self) -> tuple[int, ...]:
        """The tokenizer's own EOS token, if its configuration names one."""
        name = self._template.special.get("eos_token") if self._template else None
        found = self._tokenizer.token_to_id(name) if self._tokenizer and name else None
        return () if found is None else (found,)

    def _is_special(self, token: int) -> bool:
        assert self._tokenizer is not None
        added = self._tokenizer.get_added_tokens_decoder()
        return token in added and added[token].special

    def _need(self, field: str) -> Tokenizer:
        if self._tokenizer is None:
            raise Bad("holds text, not token ids: name a local tokenizer.json with --tokenizer", field=field)
        self.used = True
        return self._tokenizer

    def _encode(self, text: str, field: str, add_special_tokens: bool) -> list[int]:
        tokenizer = self._need(field)
        try:
            ids: list[int] = tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        except TypeError:  # half a character, from a pickle or a template: what no UTF-8 holds
            raise Bad("must be text of whole characters", field=field, got=ascii(text[:40])) from None
        return ids
