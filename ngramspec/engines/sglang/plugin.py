"""The entry point that SGLang runs in each of its processes: replace its n-gram worker by ours, or say why not."""

from __future__ import annotations

import logging

from ...errors import NgramSpecError
from .config import SWITCH, asked, from_environment
from .contract import TESTED, installed, mismatches

_log = logging.getLogger("ngramspec")

_MODULE = "sglang.srt.speculative.ngram_worker"


def activate() -> None:
    """Register our worker with SGLang if the environment asks for it; never raises."""
    try:
        if asked():
            _replace()
    except NgramSpecError as error:
        _stand_aside(str(error))
    except Exception as error:
        _stand_aside(f"{type(error).__name__}: {error}", error)


def _replace() -> None:
    config = from_environment()
    wrong = mismatches()
    if wrong:
        _stand_aside(
            f"SGLang {installed()} differs from what ngramspec was written for ({', '.join(TESTED)}): "
            f"{'; '.join(wrong)}. Install a tested SGLang or a newer ngramspec"
        )
        return
    if installed() not in TESTED:
        _log.warning(
            "ngramspec: SGLang %s is untested (tested: %s), but keeps every promise that was checked; "
            "%s=0 switches ngramspec off",
            installed(),
            ", ".join(TESTED),
            SWITCH,
        )
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType
    from sglang.srt.speculative.cpp_ngram.ngram_corpus import NgramCorpus

    from .corpus import Corpus
    from .worker import Worker

    Worker.config = config
    Corpus.stock = NgramCorpus
    HookRegistry.register(f"{_MODULE}.NgramCorpus", Corpus, HookType.REPLACE)
    HookRegistry.register(f"{_MODULE}.NGRAMWorker", Worker, HookType.REPLACE)


def _stand_aside(why: str, error: BaseException | None = None) -> None:
    _log.error("ngramspec: stands aside, the server runs as if it were not installed: %s", why, exc_info=error)
