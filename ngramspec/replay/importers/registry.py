"""All importers, in the order in which they are asked whether a file is theirs. A new one is one line."""

from __future__ import annotations

from .arrivals import Arrivals
from .base import Importer
from .chat import Chat
from .columns import Columns
from .openai_batch import OpenAIBatch
from .openai_response import OpenAIResponse
from .own import Own
from .sglang_dump import SGLangDump
from .sglang_log import SGLangLog
from .sharegpt import ShareGPT

#: By name.
IMPORTERS: dict[str, type[Importer]] = {
    importer.name: importer
    for importer in (
        Own,
        SGLangDump,
        SGLangLog,
        Arrivals,
        OpenAIBatch,
        OpenAIResponse,
        Chat,
        ShareGPT,
        Columns,
    )
}
