"""A chat template: Jinja in a sandbox, with the few names that templates of published models rely on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ...errors import ConfigError
from .failure import Bad

#: The date for templates that write one, where the row has none. Not today: the same input gives the same trace.
DATE = datetime(2025, 1, 1, tzinfo=UTC)

#: Special tokens that a template may name.
SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")


class Template:
    """A compiled template.

    Parameters
    ----------
    source : str
        Jinja text.
    special : mapping of str
        Special tokens by name (`eos_token`, ...).
    where : Path
        The file it came from, for messages.

    Raises
    ------
    ConfigError
        It is not Jinja.
    """

    def __init__(self, source: str, special: Mapping[str, str], where: Path) -> None:
        self.special = dict(special)
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise ConfigError(f"chat template: {where} cannot be read as Jinja: {error}") from None

    @classmethod
    def find(cls, folder: Path, named: Path | None) -> Template | None:
        """The template `named`, or the one beside a tokenizer in `folder`; None where there is none."""
        config = _json(folder / "tokenizer_config.json")
        special = {name: text for name in SPECIAL if (text := _content(config.get(name)))}
        for path in [named] if named else [folder / "chat_template.jinja"]:
            if os.path.isfile(path):
                return cls(_text(path), special, path)
            if named:
                raise ConfigError(f"--chat-template: {path} does not exist, allowed a file with a Jinja template")
        source = config.get("chat_template") or _json(folder / "chat_template.json").get("chat_template")
        if isinstance(source, list):  # several, by name
            source = next((item["template"] for item in source if item.get("name") == "default"), None)
        return cls(source, special, folder / "tokenizer_config.json") if isinstance(source, str) else None

    def render(self, messages: Sequence[dict[str, Any]], field: str, options: Mapping[str, Any]) -> str:
        """Text of a conversation; raises `Bad` with the template's own words when it refuses.

        Parameters
        ----------
        messages : sequence of dict
            Roles and contents.
        field : str
            Where they stand, for messages.
        options : mapping
            Variables; `date` is what `strftime_now` tells, not the clock.
        """
        date = options.get("date") or DATE
        variables = {**self.special, "tools": None, "documents": None, **options, "strftime_now": date.strftime}
        try:
            return self._template.render(messages=list(messages), **variables)
        except (TemplateError, TypeError, KeyError, ValueError, AttributeError, OverflowError) as error:
            raise Bad("the chat template refuses this conversation", field=field, got=str(error)) from None


class _Generation(Extension):
    """The block that marks a model's own words in templates for training: its content, as it stands."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    # Jinja's own filter writes for HTML and escapes "<", which models have never seen in a prompt.
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _raise(message: str) -> None:
    raise TemplateError(message)


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _json(path: Path) -> dict[str, Any]:
    if not os.path.isfile(path):
        return {}
    try:
        content = json.loads(_text(path))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not JSON: {error}") from None
    return content if isinstance(content, dict) else {}


def _content(token: Any) -> str | None:
    """A special token's text: written plainly, or as an object with a content."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None
