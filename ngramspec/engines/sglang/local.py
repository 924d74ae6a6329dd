"""Every rank drafts for itself: nothing of the rows is sent, only whether all went well.

Equal sequences of calls give equal drafters and equal rows, as long as nothing depends on a clock, a thread, a file or
a failure. Clocks are refused (`EngineConfig.ranks`). The rest is settled once a step in one small message: where any
rank failed since the last step, whatever it was doing, all forget everything and pause alike, and the step has no draft
on any; corpora are drafted from only while all ranks have the same. The number of rows is always compared, the rows
themselves where debugging is asked for.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ...arena import digest63
from ...caches.frozen import FrozenCorpus
from ...errors import EngineContractError
from .config import EngineConfig
from .digest import Agreement, Checks, digest_of
from .drafts import Drafts, Rows
from .followed import Request
from .ranks import HERE_SECONDS, READY_SECONDS, Latest, wait_for
from .server import Server

_log = logging.getLogger("ngramspec")


class Text(NamedTuple):
    """A frozen text that may be drafted from, or none."""

    corpus: FrozenCorpus | None
    number: int  #: 63 bits that tell it from others; 0 for none


NONE = Text(None, 0)


class Offered:
    """The text that this rank has ready.

    Attributes
    ----------
    text : Text
        It; put here by any thread, looked at once a step.
    """

    def __init__(self) -> None:
        self.text = NONE
        self._lock = threading.Lock()
        self._latest = 0

    def offer(self, corpus: FrozenCorpus | None) -> None:
        """Have this text and no other, or none; modifies, once a thread has read it through.

        Parameters
        ----------
        corpus : FrozenCorpus, optional
            None: no text.
        """
        with self._lock:
            self._latest += 1
            latest, self.text = self._latest, NONE
        if corpus is not None:
            threading.Thread(target=self._read, args=(corpus, latest), name="ngramspec-corpus", daemon=True).start()

    def _read(self, corpus: FrozenCorpus, number: int) -> None:
        text = Text(corpus, 1 + digest63(corpus.digest().encode()) // 2)
        with self._lock:
            if number == self._latest:
                self.text = text


class Local:
    """A rank among others that draft for themselves, too; each calls everything alike.

    Parameters
    ----------
    drafts : Drafts
        Of this rank; they look at no clock.
    agreement : Agreement
        Of the ranks.
    offered : Offered
        Text that this rank has ready.
    debug : bool
        Compare rows, not their number alone.
    """

    def __init__(self, drafts: Drafts, agreement: Agreement, offered: Offered, *, debug: bool = False) -> None:
        self.drafts, self.checks = drafts, Checks(agreement)
        self.prefilled, self.decoded = drafts.prefilled, drafts.decoded
        self.finished, self.flush, self.fix_width = drafts.finished, drafts.flush, drafts.fix_width
        self._agreement, self._offered, self._debug = agreement, offered, debug
        self._used = self._wanted = NONE
        self._agree()

    def rows(self, requests: Sequence[Request], latest: Latest = None) -> Rows:
        """Rows of a decode step, the same on every rank; modifies.

        Parameters
        ----------
        requests, latest
            See `Drafts.rows`.
        """
        drafts, guard, checks, text = self.drafts, self.drafts.guard, self.checks, self._offered.text
        if self._wanted.number != self._used.number and not guard.paused:
            self._used = self._wanted
            drafts.use_corpus(self._used.corpus)
        rows = drafts.rows(requests, latest)
        failed = guard.failures > self._failures
        number = digest_of(rows) if self._debug else rows.n_rows
        (_, failures), (least, most), (oldest, newest) = self._agreement.bounds(failed, number, text.number)
        checks.n_steps += 1
        if failures or least != most:
            if not failures:
                checks.complain(number)
                drafts.counters.digest_mismatches = checks.mismatches
            self._start_over(failed, failures > 0)
            rows = drafts.bare(requests)
        else:
            self._agree()
        self._wanted = text if oldest == newest else NONE
        return rows

    def _agree(self) -> None:
        """Note what all ranks have in common now."""
        self._failures, self._state = self.drafts.guard.failures, self.drafts.guard.state

    def _start_over(self, failed: bool, any_failed: bool) -> None:
        """Be where every rank is after this, whatever happened on each; what fails in here counts for the next step."""
        drafts, guard = self.drafts, self.drafts.guard
        guard.state = self._state
        if any_failed and not failed:
            guard.failed("drafting", EngineContractError("another rank failed, its own log says why"))
        else:
            guard.pause()
        self._agree()
        self._wanted = self._used = NONE
        drafts.use_corpus(None)
        drafts.forget()


def shaping(config: EngineConfig, server: Server) -> bytes:
    """All that shapes drafts on a rank; where files lie, and what the first rank alone does, does not.

    Parameters
    ----------
    config : EngineConfig
        Settings.
    server : Server
        As this rank sees it.
    """
    alike = replace(config, record=None, snapshot=None)
    kept = {key: value for key, value in alike.to_dict().items() if key != "cost"}
    cost = Path(config.cost).read_bytes() if config.cost else b""
    return repr((kept, replace(server, model=""), server.drafter(config), cost)).encode()


def everywhere(store: Any, first: int, rank: int, size: int, settings: bytes, build: Callable[[], Drafts]) -> Drafts:
    """Have every rank build its drafts, with equal settings and from the same state, or none; returns this rank's.

    Over the store of the process group, for the reason that `together` has. Where what ranks loaded at start differs,
    all start empty.

    Parameters
    ----------
    store : Store
        Of the process group.
    first : int
        Global number of the first rank: it tells groups apart.
    rank, size : int
        Place in the group, and ranks in it.
    settings : bytes
        All that shapes drafts; must be equal on all ranks.
    build : callable
        Run on every rank.

    Raises
    ------
    EngineContractError
        On every rank that takes part, if some rank could not build, has other settings or did not show up.
    """
    place = f"ngramspec/{first}/local"
    others = [other for other in range(size) if other != rank]
    store.set(f"{place}/here/{rank}", "1")
    try:
        for other in others:
            absent = f"rank {other} does not draft for itself: give every node the same settings"
            wait_for(store, f"{place}/here/{other}", HERE_SECONDS, absent)
        built = build()
        mine = {"error": "", "settings": digest63(settings), "state": built.drafter.digest()}
    except Exception as error:
        store.set(f"{place}/ready/{rank}", json.dumps({"error": str(error) or type(error).__name__}))
        raise
    store.set(f"{place}/ready/{rank}", json.dumps(mine))
    for other in others:
        wait_for(store, f"{place}/ready/{other}", READY_SECONDS, f"rank {other} did not get ready")
    answers = {other: json.loads(store.get(f"{place}/ready/{other}")) for other in others}
    for other, answer in answers.items():
        if answer["error"]:
            raise EngineContractError(f"rank {other} stands aside: {answer['error']}")
        if answer["settings"] != mine["settings"]:
            raise EngineContractError(f"rank {other} has other settings: give every node the same settings and files")
    if any(answer["state"] != mine["state"] for answer in answers.values()):
        _log.error("ngramspec: ranks loaded different snapshots, all start empty: give every node the same file")
        built.drafter.reset()
    return built
