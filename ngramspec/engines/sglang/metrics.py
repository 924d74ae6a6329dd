"""`ngramspec:*` metrics beside SGLang's own, where the server has those switched on."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

_log = logging.getLogger("ngramspec")

#: Seconds between two updates; histograms are exact all the same.
EVERY = 1.0

MICROSECONDS = (5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 50_000)

COUNTERS = {
    "steps": "Request steps verified.",
    "rows": "Rows that the model computed in them, padding and committed tokens included.",
    "known_steps": "Request steps whose outcome is known; the divisor of accept length.",
    "emitted": "Tokens that those emitted, bonus tokens included.",
    "accepted": "Drafted tokens that were accepted.",
    "drafted": "Tokens drafted, padding left out.",
    "with_draft": "Request steps that had a draft at all.",
    "failures": "Failures of ours; each cost its step the draft.",
    "digest_mismatches": "Steps that had no draft because rows differed over tensor-parallel ranks.",
    "not_followed": "Times that a request was served without drafts for want of room.",
    "own_tokens_evicted": "Tokens of running requests' own text that made room for newer ones.",
    "shared_tokens_evicted": "Tokens of shared text that made room for newer ones.",
    "recorded": "Requests recorded.",
    "record_dropped": "Requests that could not be recorded.",
    "snapshots": "Snapshots saved.",
    "snapshot_failures": "Snapshots that could not be saved.",
}
LABELLED = {
    "sources": ("drafted_by_source", "source", "Tokens drafted, by where they were found."),
    "reasons": ("empty_drafts", "reason", "Request steps without a draft, by why."),
}
GAUGES = {
    "accept_length": "Tokens emitted a request step since the last update.",
    "coverage": "Share of request steps with a draft since the last update.",
    "paused": "1 while drafting waits after a failure.",
    "slow": "1 while the guard verifies no drafts because they were measured not to pay.",
    "requests": "Requests followed.",
    "cache_bytes": "Bytes of state; fixed, the corpora apart.",
    "corpus_bytes": "Bytes of external corpora.",
    "own_tokens": "Tokens of running requests and sessions held.",
    "shared_tokens": "Tokens of shared text held.",
}


class Kinds(NamedTuple):
    """Classes with the interface of `prometheus_client`'s."""

    counter: Any
    gauge: Any
    histogram: Any


class Metrics:
    """Publishes counts; never raises.

    Parameters
    ----------
    kinds : Kinds
        What to make metrics of.
    labels : mapping
        Label values that every one carries.
    clock : callable
        Seconds.
    """

    def __init__(self, kinds: Kinds, labels: Mapping[str, Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._labels = {name: str(value) for name, value in labels.items()}
        self._clock, self._next = clock, 0.0
        self._said: dict[tuple[str, str], float] = {}
        names = list(self._labels)
        self._counters = {name: kinds.counter(f"ngramspec:{name}", text, names) for name, text in COUNTERS.items()}
        self._labelled = {
            name: kinds.counter(f"ngramspec:{metric}", text, [*names, label])
            for name, (metric, label, text) in LABELLED.items()
        }
        self._gauges = {
            name: kinds.gauge(f"ngramspec:{name}", text, names, multiprocess_mode="mostrecent")
            for name, text in GAUGES.items()
        }
        draft, ingest = (
            kinds.histogram(f"ngramspec:{name}", text, names, buckets=MICROSECONDS).labels(**self._labels)
            for name, text in (
                ("draft_us", "Time of drafting a batch that the model waits for, µs."),
                ("ingest_us", "Time of reading prompts in a step, which runs beside the model, µs."),
            )
        )
        self._draft, self._ingest = draft, ingest
        self._broken = False

    def timed(self, draft_us: float, ingest_us: float) -> None:
        """Note the times of one step.

        Parameters
        ----------
        draft_us, ingest_us : float
            Microseconds; no prompts were read where `ingest_us` is 0.
        """
        self._safely(self._observe, draft_us, ingest_us)

    def publish(self, told: Callable[[], Mapping[str, Any]], *, at_once: bool = False) -> None:
        """Bring the metrics up to date, once in `EVERY` seconds.

        Parameters
        ----------
        told : callable
            Gives what `Drafts.told` does.
        at_once : bool
            However short ago the last time was.
        """
        now = self._clock()
        if at_once or now >= self._next:
            self._next = now + EVERY
            self._safely(lambda: self._publish(told()))

    def _observe(self, draft_us: float, ingest_us: float) -> None:
        self._draft.observe(draft_us)
        if ingest_us:
            self._ingest.observe(ingest_us)

    def _publish(self, told: Mapping[str, Any]) -> None:
        before = {name: self._said.get((name, ""), 0.0) for name in COUNTERS}
        for name, counter in self._counters.items():
            self._add(counter.labels(**self._labels), (name, ""), told.get(name, 0))
        for name, (_, label, _) in LABELLED.items():
            for value, count in told.get(name, {}).items():
                self._add(self._labelled[name].labels(**self._labels, **{label: value}), (name, value), count)
        rates = (("accept_length", "emitted", "known_steps"), ("coverage", "with_draft", "steps"))
        gauges = dict(told)
        for name, above, below in rates:
            n = told.get(below, 0) - before[below]
            if n > 0:
                gauges[name] = (told.get(above, 0) - before[above]) / n
        for name, gauge in self._gauges.items():
            if name in gauges:
                gauge.labels(**self._labels).set(gauges[name])

    def _add(self, counter: Any, key: tuple[str, str], total: float) -> None:
        """Counters only rise: what a reset took back is not counted twice."""
        if total > self._said.get(key, 0.0):
            counter.inc(total - self._said.get(key, 0.0))
        self._said[key] = float(total)

    def _safely(self, call: Callable[..., None], *arguments: float) -> None:
        if self._broken:
            return
        try:
            call(*arguments)
        except Exception as error:  # metrics must not cost a draft
            self._broken = True
            _log.error("ngramspec: metrics failed and are off from now on: %s", error, exc_info=error)
