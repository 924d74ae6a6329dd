"""Recording served traffic: what is in the files, what is left out, and that nothing of it reaches the server."""

import gzip
import json
import os
import stat
import time

import numpy as np
import pytest

from ngramspec import ConfigError
from ngramspec.engines.sglang.config import EngineConfig, RecordConfig
from ngramspec.engines.sglang.record import Recorder
from ngramspec.replay import Options, Trace, read, simulate
from ngramspec.replay.recorded.steps import recorded_steps
from tests.engine_requests import FakeRequest, follow, make, serve

CYCLE = [*range(10, 30), 5, *range(10, 24)]


def files(folder):
    return sorted(folder.glob("trace-*.jsonl.gz"))


def rows(folder):
    return [json.loads(line) for path in files(folder) for line in gzip.open(path, "rt")]


def recording(folder, **settings):
    return make(record=RecordConfig(folder=str(folder), salt="s", **settings))


def written(drafts):
    assert drafts.recorder.flush(timeout=20)


def row(n=3, **fields):
    return {"prompt_ids": np.arange(n, dtype=np.int32), "output_ids": np.arange(2, dtype=np.int32)} | fields


def test_a_request_is_recorded_with_the_steps_that_served_it(tmp_path):
    drafts = recording(tmp_path)
    request = FakeRequest("a", [1, 2, *CYCLE], session_id="mine")
    lengths = follow(drafts, request, CYCLE)
    written(drafts)
    (found,) = rows(tmp_path)
    assert found["prompt_ids"] == [1, 2, *CYCLE] and found["output_ids"] == CYCLE
    assert found["finish_reason"] == "length" and found["sampling"] == {"max_new_tokens": 100}
    assert found["spec"]["accept_lengths"] == lengths and max(lengths) > 3
    assert len(found["spec"]["n_drafted"]) == len(lengths)
    assert (found["spec"]["first_step"], found["spec"]["last_step"]) == (0, len(lengths))
    assert abs(found["timestamp"] - time.time()) < 60
    assert "mine" not in json.dumps(found) and len(found["session"]) == 16


def test_replaying_the_record_gives_the_steps_that_served_it(tmp_path):
    drafts = recording(tmp_path)
    random = np.random.default_rng(3)
    for i in range(6):
        start = int(random.integers(0, 20))
        output = (CYCLE * 3)[start : start + 40]
        follow(drafts, FakeRequest(str(i), [int(t) for t in random.integers(0, 60, 9)], limit=40), output)
    written(drafts)
    trace = Trace.concat([read(path) for path in files(tmp_path)])
    fresh = make().drafter
    counts = simulate(trace, fresh, Options(max_draft=5, eos_ids=()))
    assert counts.per_row[:, 0].tolist() == [len(steps) for steps in recorded_steps(trace).lengths]


def test_steps_that_are_told_a_step_late_are_counted_alike(tmp_path):
    drafts = recording(tmp_path)
    request = FakeRequest("a", [1, 2, 3, 4, 5, 6, 1, 2])
    drafts.prefilled([request])
    for emitted in ([3], [4, 5, 6], [1], [2, 3]):  # the first is the prefill's
        drafts.rows([request], [emitted])
        drafts.decoded([request])
        request.output_ids += emitted
    request.ended = 6  # the last step is cut
    drafts.finished("a")
    written(drafts)
    (found,) = rows(tmp_path)
    assert found["output_ids"] == [3, 4, 5, 6, 1, 2] and found["spec"]["accept_lengths"] == [3, 1, 2]
    assert recorded_steps(read(files(tmp_path)[0])).lengths == [[3, 1, 2]]


@pytest.mark.parametrize("option", ["private", "off"])
def test_requests_that_want_to_be_left_alone_are_not_recorded(tmp_path, option):
    drafts = recording(tmp_path)
    serve(drafts, FakeRequest("a", [1, 2], custom={"ngramspec": option}), [3, 4])
    serve(drafts, FakeRequest("b", [1, 2]), [3, 4])
    written(drafts)
    assert len(rows(tmp_path)) == 1


def test_rows_of_a_file_are_in_order_of_arrival(tmp_path):
    recorder = Recorder(RecordConfig(folder=str(tmp_path)))
    for when in (5.0, 3.0, 4.0):
        recorder.add(row(timestamp=when))
    assert recorder.flush(timeout=20)
    assert [found["timestamp"] for found in rows(tmp_path)] == [3.0, 4.0, 5.0]


@pytest.mark.parametrize("name", ["\ud800", "\0", "", "x" * 100_000, 17])
def test_whatever_a_client_calls_itself_is_served_and_recorded(tmp_path, name):
    drafts = make(record=RecordConfig(folder=str(tmp_path), salt="\udfff", fraction=0.999999))
    keys = {"session_id": name, "cache_salt": name, "extra_key": name if isinstance(name, str) else str(name)}
    request = FakeRequest(f"{name}", [1, 2, 3, 1, 2], limit=2**40, **keys)
    lengths = follow(drafts, request, [3, 1, 2, 3, 1, 2])
    assert max(lengths) > 1 and drafts.guard.failures == 0
    request.ended = 6
    drafts.finished(request.rid)
    assert drafts.recorder.flush(timeout=10)
    assert drafts.guard.failures == 0 and drafts.recorder.n_recorded == 1 and drafts.recorder.n_dropped == 0


def test_a_long_prompt_is_written_whole(tmp_path):
    recorder = Recorder(RecordConfig(folder=str(tmp_path)))
    recorder.add(row(5000))
    recorder.close()
    assert rows(tmp_path)[0]["prompt_ids"] == list(range(5000)) and recorder.n_recorded == 1
    recorder.add(row())
    assert recorder.n_dropped == 1


def test_files_are_whole_private_and_make_room(tmp_path):
    recorder = Recorder(RecordConfig(folder=str(tmp_path / "new"), max_bytes=2**16, file_bytes=2**12))
    noise = np.random.default_rng(0)
    for _ in range(40):
        recorder.add(row() | {"prompt_ids": noise.integers(0, 100_000, 2000).astype(np.int32)})
        assert recorder.flush(timeout=20)
    found = files(tmp_path / "new")
    total = sum(path.stat().st_size for path in found)
    assert recorder.n_recorded == 40 and 2 <= len(found) < 40 and total <= 2**16
    assert {stat.S_IMODE(path.stat().st_mode) for path in found} == {0o600}
    assert [path.name for path in (tmp_path / "new").iterdir() if path not in found] == []


def test_the_fraction_keeps_sessions_whole(tmp_path):
    recorder = Recorder(RecordConfig(folder=str(tmp_path), fraction=0.3, salt="s"))
    names = [str(i) for i in range(2000)]
    chosen = [recorder.chosen(name) for name in names]
    assert 0.25 < np.mean(chosen) < 0.35 and chosen == [recorder.chosen(name) for name in names]


def test_without_a_salt_nobody_can_tell_sessions_of_two_starts_apart_or_together(tmp_path):
    salted = [Recorder(RecordConfig(folder=str(tmp_path), salt=salt)).hashed("me") for salt in ("s", "s", "t", "", "")]
    assert salted[0] == salted[1] and len(set(salted)) == 4


def test_a_full_disk_costs_rows_and_a_line_a_minute(tmp_path, monkeypatch, caplog):
    recorder = Recorder(RecordConfig(folder=str(tmp_path)))
    with monkeypatch.context() as patch:

        def full(handle):
            raise OSError(28, "No space left on device")

        patch.setattr(os, "fsync", full)
        for _ in range(3):
            recorder.add(row())
            assert recorder.flush(timeout=20)
    assert recorder.n_dropped == 3 and list(tmp_path.iterdir()) == []
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1 and "No space left on device" in said[0] and "1 requests are not recorded" in said[0]
    recorder.add(row())
    assert recorder.flush(timeout=20) and len(rows(tmp_path)) == 1


def test_a_folder_that_cannot_be_made_does_not_reach_the_server(tmp_path):
    (tmp_path / "file").write_text("")
    drafts = recording(tmp_path / "file" / "below")
    serve(drafts, FakeRequest("a", [1, 2]), [3, 4])
    written(drafts)
    assert drafts.recorder.n_dropped == 1 and drafts.guard.failures == 0


def test_what_waits_is_bounded(tmp_path, monkeypatch):
    config = RecordConfig(folder=str(tmp_path), file_bytes=1024)
    recorder = Recorder(config)
    monkeypatch.setattr(recorder, "_write", lambda rows: time.sleep(0.2))
    for _ in range(500):
        recorder.add(row(100))
    assert recorder.n_dropped > 400


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, r"\$\.record: missing 1 required keyword-only argument: 'folder'"),
        ({"folder": ""}, r"\$\.record\.folder: got ''"),
        ({"folder": "a\0b"}, r"\$\.record\.folder: got 'a.x00b', allowed the path of a folder"),
        ({"folder": "a\ud800b"}, r"\$\.record\.folder: got 'a.ud800b', allowed the path of a folder"),
        ({"folder": "a", "salt": 5}, r"\$\.record\.salt: got 5, allowed a text"),
        ({"folder": "x", "fraction": 2}, r"\$\.record\.fraction: got 2, allowed 0 to 1"),
        ({"folder": "x", "size": 2}, r"\$\.record\.size: unknown setting; allowed are folder, fraction"),
        ({"folder": "x", "seconds": 0}, r"\$\.record\.seconds: got 0"),
        (True, "record: got True, allowed an object"),
    ],
)
def test_wrong_settings_name_what_is_allowed(settings, words):
    with pytest.raises(ConfigError, match=words):
        EngineConfig.from_dict({"record": settings})
