"""What happens beside the drafts of a server: prompts read by a thread, snapshots, metrics."""

import threading
from typing import ClassVar

import numpy as np
import pytest

from ngramspec import ConfigError
from ngramspec.engines.sglang.config import EngineConfig, SnapshotConfig
from ngramspec.engines.sglang.metrics import COUNTERS, GAUGES, Kinds, Metrics
from ngramspec.engines.sglang.snapshots import Snapshots
from tests.engine_requests import FakeRequest, follow, make, rows_of, serve

CYCLE = [*range(10, 30), 5, *range(10, 24)]


def test_prompts_are_read_by_another_thread_and_visible_in_the_next_step(monkeypatch):
    drafts, seen, read, gate = make(), [], [], threading.Event()
    real = type(drafts.drafter).ingest

    def slow(self, *arguments):
        seen.append(threading.current_thread())
        read.append(gate.wait(20))
        return real(self, *arguments)

    monkeypatch.setattr(type(drafts.drafter), "ingest", slow)
    request = FakeRequest("a", [1, 2, 3, 4, 5, 6, 1, 2])
    drafts.prefilled([request])
    assert not read, "the step waited for the prompt"
    gate.set()
    request.output_ids.append(3)
    assert rows_of(drafts, request)[0][:4] == [3, 4, 5, 6]
    assert seen and threading.main_thread() not in seen


def test_a_failure_in_the_thread_is_a_failure_like_any_other(monkeypatch, caplog):
    drafts = make()
    with monkeypatch.context() as patch:

        def broken(self, *arguments):
            raise ZeroDivisionError("made to fail")

        patch.setattr(type(drafts.drafter), "ingest", broken)
        request = FakeRequest("a", [1, 2, 3, 1, 2])
        drafts.prefilled([request])
        request.output_ids.append(3)
        assert rows_of(drafts, request)[0] == [3, 0, 0, 0, 0, 0]
    assert drafts.guard.failures == 1 and "made to fail" in caplog.records[0].exc_text
    for token in (1, 2, 3):
        request.output_ids.append(token)
        last = rows_of(drafts, request)[0]
    assert last[:3] == [3, 1, 2] and drafts.guard.failures == 1


def snapshot_of(path, **settings):
    return make(snapshot=SnapshotConfig(path=str(path), **settings))


def taught(drafts):
    """Whether the drafts know what another server's request left behind."""
    request = FakeRequest("new", [1, 2])
    drafts.prefilled([request])
    request.output_ids.append(3)
    return rows_of(drafts, request)[0][:4] == [3, 4, 5, 6]


@pytest.mark.parametrize("how", ["flush", "close", "period"])
def test_what_was_learned_is_saved_and_loaded(tmp_path, how):
    path = tmp_path / "folder" / "learned.ngs"
    drafts = snapshot_of(path)
    assert not taught(drafts)
    serve(drafts, FakeRequest("a", [1, 2]), [3, 4, 5, 6, 7])
    if how == "flush":
        drafts.flush()
    elif how == "close":
        drafts.close()
    else:
        drafts.snapshots._next = 0
        drafts.decoded([])
    if drafts.snapshots._writing is not None:
        drafts.snapshots._writing.join(20)
    assert drafts.snapshots.n_saved == 1
    assert taught(snapshot_of(path))


def test_a_path_that_no_file_can_have_is_told_and_serving_goes_on(tmp_path, caplog):
    drafts = snapshot_of(tmp_path / ("x" * 300))
    assert not taught(drafts) and "no snapshot at" in caplog.text
    serve(drafts, FakeRequest("a", [1, 2]), [3, 4, 5, 6, 7])
    drafts.close()
    assert (drafts.snapshots.n_saved, drafts.snapshots.failures) == (0, 1) and "File name too long" in caplog.text


def test_serving_goes_on_while_a_snapshot_is_written(tmp_path, monkeypatch):
    from ngramspec import snapshot

    drafts, release, real = snapshot_of(tmp_path / "s.ngs"), threading.Event(), snapshot.save

    def slow(*arguments, **named):
        release.wait(20)
        return real(*arguments, **named)

    monkeypatch.setattr(snapshot, "save", slow)
    serve(drafts, FakeRequest("a", [1, 2]), [3, 4, 5, 6, 7])
    drafts.snapshots._next = 0
    drafts.decoded([])
    serve(drafts, FakeRequest("b", [21, 22]), [23, 24])  # not in the file: the copy was taken before
    assert drafts.snapshots.n_saved == 0
    release.set()
    drafts.snapshots._writing.join(20)
    other = snapshot_of(tmp_path / "s.ngs")
    assert taught(other) and other.drafter.stats()["shared_tokens"] < drafts.drafter.stats()["shared_tokens"]


def test_a_damaged_snapshot_is_refused_with_the_reason(tmp_path, caplog):
    path = tmp_path / "s.ngs"
    drafts = snapshot_of(path)
    serve(drafts, FakeRequest("a", [1, 2]), [3, 4, 5, 6, 7])
    drafts.close()
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    fresh = snapshot_of(path)
    assert "the snapshot is refused" in caplog.text and "checksum" in caplog.text
    assert not taught(fresh) and fresh.guard.failures == 0


def test_another_models_snapshot_is_refused(tmp_path, caplog):
    config = SnapshotConfig(path=str(tmp_path / "s.ngs"))
    Snapshots(config, "one").save(make().drafter, wait=True)
    assert not Snapshots(config, "two").load(make().drafter) and "tokenizer" in caplog.text
    assert Snapshots(config, "one").load(make().drafter)


def test_a_snapshot_that_cannot_be_written_is_counted_and_logged(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    drafts = snapshot_of(tmp_path / "file" / "s.ngs")
    drafts.close()
    assert drafts.snapshots.failures == 1 and "saving a snapshot failed" in caplog.text
    assert drafts.guard.failures == 0


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"path": ""}, r"\$\.snapshot\.path: got ''"),
        ({"path": "a\0"}, r"\$\.snapshot\.path: got 'a.x00', allowed the path of a file"),
        ({"path": "x", "seconds": 0.5}, r"\$\.snapshot\.seconds: got 0.5"),
        ({"file": "x"}, r"\$\.snapshot\.file: unknown setting; allowed are path, seconds"),
    ],
)
def test_wrong_settings_name_what_is_allowed(settings, words):
    with pytest.raises(ConfigError, match=words):
        EngineConfig.from_dict({"snapshot": settings})


class FakeMetric:
    """As much of a metric of `prometheus_client` as is used."""

    all: ClassVar[dict] = {}

    def __init__(self, name, text, labels, **more):
        assert text.endswith(".")
        self.name, self.names, self.key = name, labels, ()

    def labels(self, **labels):
        assert list(labels) == self.names
        found = object.__new__(type(self))
        found.name, found.names, found.key = self.name, self.names, (self.name, *sorted(labels.items()))
        return found

    def inc(self, amount):
        assert amount > 0
        self.all[self.key] = self.all.get(self.key, 0) + amount

    def set(self, value):
        self.all[self.key] = value

    def observe(self, value):
        self.all.setdefault(self.key, []).append(value)


@pytest.fixture
def metrics():
    FakeMetric.all = {}
    now = [0.0]
    made = Metrics(Kinds(FakeMetric, FakeMetric, FakeMetric), {"tp_rank": 0}, lambda: now[0])
    made.now = now
    return made


def value(name, **labels):
    return FakeMetric.all.get((f"ngramspec:{name}", *sorted({"tp_rank": "0", **labels}.items())))


def test_metrics_are_what_happened(metrics):
    drafts = make()
    drafts.metrics = metrics
    lengths = follow(drafts, FakeRequest("a", [1, 2]), CYCLE)
    n = len(lengths)
    assert (value("steps"), value("known_steps"), value("emitted")) == (n, n, sum(lengths))
    assert value("accepted") == sum(lengths) - n and value("rows") == 6 * n
    assert value("drafted") == drafts.counters.drafted == value("drafted_by_source", source="own")
    empty = sum(n for key, n in FakeMetric.all.items() if key[0] == "ngramspec:empty_drafts")
    assert 0 < empty == n - value("with_draft")
    assert value("cache_bytes") == drafts.drafter.nbytes and value("requests") == 0
    assert len(value("draft_us")) == n and min(value("draft_us")) > 0
    assert len(value("ingest_us")) == 1  # one prompt, read in one go


def test_metrics_are_brought_up_to_date_once_a_second_and_never_count_twice(metrics):
    told = {"steps": 10, "known_steps": 10, "emitted": 30, "with_draft": 5}
    metrics.publish(lambda: told)
    told |= {"steps": 14, "known_steps": 14, "emitted": 50, "with_draft": 8}
    metrics.publish(lambda: told)
    assert value("steps") == 10 and value("accept_length") == 3.0
    metrics.now[0] = 1.0
    metrics.publish(lambda: told)
    assert (value("steps"), value("accept_length"), value("coverage")) == (14, 5.0, 0.75)


def test_a_counter_that_was_reset_starts_over(metrics):
    for i, total in enumerate((5, 2, 3)):
        metrics.now[0] = float(i)
        metrics.publish(lambda total=total: {"own_tokens_evicted": total})
    assert value("own_tokens_evicted") == 6


def test_metrics_that_fail_are_switched_off_and_cost_nothing_else(metrics, caplog):
    def told():
        raise KeyError("made to fail")

    drafts = make()
    drafts.metrics, drafts.told = metrics, told
    follow(drafts, FakeRequest("a", [1, 2, *CYCLE]), CYCLE)
    assert drafts.guard.failures == 0
    assert len([r for r in caplog.records if "metrics failed and are off" in r.getMessage()]) == 1


def test_everything_told_is_shown():
    told = make().told()
    names = set(told) - {"sources", "reasons"}
    assert names == set(COUNTERS) | (set(GAUGES) - {"accept_length", "coverage"})
    assert np.isfinite([told[name] for name in names]).all()
