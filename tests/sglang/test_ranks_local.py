"""Ranks that draft for themselves, in two processes: the same rows and the same state, whatever fails where."""

import json
import socket
import subprocess
import sys
import threading

import pytest
import torch

from ngramspec import ConfigError, EngineContractError
from ngramspec.engines.sglang import local
from ngramspec.engines.sglang.config import EngineConfig, SnapshotConfig
from ngramspec.engines.sglang.local import everywhere, shaping
from ngramspec.engines.sglang.server import Server
from tests.engine_requests import FakeRequest, make, serve
from tests.sglang.local_ranks import FAILURES
from tests.sources import ROOT
from tests.test_engine_settings import SERVER

#: Clocks differ before anything of ours is imported, so that whatever reads one reads a different one.
START = """
import runpy, sys, time
speed = 1 + 2 * int(sys.argv[1])
for name in ("monotonic", "perf_counter", "perf_counter_ns"):
    setattr(time, name, lambda real=getattr(time, name): speed * real())
runpy.run_module("tests.sglang.local_ranks", run_name="__main__")
"""


def both(folder, scenario, cost=""):
    """What both ranks did."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    runs = [
        subprocess.Popen(
            [sys.executable, "-c", START, str(rank), str(port), str(folder / f"{rank}.json"), scenario, str(cost)],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    try:
        for run in runs:
            said, _ = run.communicate(timeout=120)
            assert run.returncode == 0, said[-5000:]
    finally:
        for run in runs:
            run.kill()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


def agree(first, second):
    """Whether both verified the same rows in every step and ended in the same state."""
    assert len(first["told"]) > 100 and first["told"] == second["told"]
    assert first["digest"] == second["digest"] and first["guard"] == second["guard"]
    assert first["state"]["accepted"] > 0.3 * first["state"]["steps"]


def test_clocks_and_corpora_ready_at_different_steps_make_no_difference(tmp_path):
    first, second = both(tmp_path, "none")
    agree(first, second)
    assert first["state"] == second["state"] and first["state"]["failures"] == 0
    assert first["state"]["sources"]["frozen"] > 0 and first["state"]["sources"]["own"] > 0
    assert first["state"]["corpus_bytes"] == 0  # it was removed


def test_every_rank_takes_the_same_width_by_a_frozen_table(tmp_path):
    cost = tmp_path / "cost.json"
    cost.write_text(json.dumps({"base_ms": 1.0, "per_token_ms": 0.15, "per_kv_token_ms": 0}))
    first, second = both(tmp_path, "drafting", cost)
    agree(first, second)
    assert len({width for width, _, _ in first["told"]}) >= 3


@pytest.mark.parametrize("scenario", FAILURES)
def test_a_failure_on_one_rank_costs_all_the_same(tmp_path, scenario):
    found = both(tmp_path, scenario)
    agree(*found)
    failing, _, calls = FAILURES[scenario]
    assert found[failing]["state"]["failures"] >= len(calls)
    assert found[1 - failing]["state"]["failures"] >= 1
    assert any("drafting failed" in line for line in found[1 - failing]["lines"])


def test_debug_mode_catches_a_rank_whose_draft_was_changed(tmp_path):
    first, second = both(tmp_path, "changed")
    agree(first, second)
    for rank in (first, second):
        assert rank["state"]["digest_mismatches"] == 1 and rank["state"]["failures"] == 0
        (line,) = rank["lines"]
        assert "comparing the rows of step 30 over the ranks failed" in line
        assert "rows of rank 1 are not those of rank 0" in line
    ids = first["told"][29][1]
    assert not any(token for i, token in enumerate(ids) if i % first["told"][29][0])  # a step without draft


def test_debug_mode_catches_rows_changed_on_the_way_from_the_first_rank(tmp_path):
    first, second = both(tmp_path, "changed on the way")
    assert len(first["told"]) > 100 and first["told"] == second["told"]
    assert first["state"]["digest_mismatches"] == 1
    for rank in (first, second):
        (line,) = rank["lines"]
        assert "step 30 " in line and "rows of rank 1 are not those of rank 0" in line


def agreed(builds, settings=(b"", b"")):
    """What each of two ranks gets; a rank without a build is not there."""
    store, found = torch.distributed.HashStore(), {}

    def run(rank):
        try:
            found[rank] = everywhere(store, 0, rank, 2, settings[rank], builds[rank])
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in (0, 1) if builds[rank]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return found


def raises():
    raise EngineContractError("too little memory")


def test_if_one_cannot_build_all_stand_aside():
    found = agreed((make, raises))
    assert isinstance(found[0], EngineContractError) and "rank 1 stands aside: too little memory" in str(found[0])
    assert str(found[1]) == "too little memory"


def test_other_settings_on_one_rank_are_refused_on_all():
    found = agreed((make, make), (b"a", b"b"))
    assert ["has other settings" in str(found[rank]) for rank in (0, 1)] == [True, True]


def test_a_rank_that_does_not_draft_is_noticed_by_its_silence(monkeypatch):
    monkeypatch.setattr(local, "HERE_SECONDS", 1)
    (error,) = agreed((make, None)).values()
    assert isinstance(error, EngineContractError) and "rank 1 does not draft for itself" in str(error)


@pytest.mark.parametrize("other", ["same", "missing"])
def test_ranks_start_from_the_same_snapshot_or_empty(tmp_path, other):
    path = tmp_path / "learned.ngs"
    writer = make(snapshot=SnapshotConfig(path=str(path)))
    serve(writer, FakeRequest("a", [1, 2]), [3, 4, 5, 6, 7])
    writer.close()
    paths = path, path if other == "same" else tmp_path / "none.ngs"
    found = agreed([lambda p=p: make(snapshot=SnapshotConfig(path=str(p))) for p in paths])
    tokens = [found[rank].drafter.stats()["shared_tokens"] for rank in (0, 1)]
    assert tokens[0] == tokens[1] and (tokens[0] > 0) == (other == "same")
    assert found[0].drafter.digest() == found[1].drafter.digest()


def test_what_shapes_drafts_tells_ranks_apart_and_paths_do_not(tmp_path):
    server, costs = Server(**SERVER), [tmp_path / f"{k}.json" for k in range(3)]
    for path, base in zip(costs, (1, 1, 2)):
        path.write_text(json.dumps({"base_ms": base, "per_token_ms": 0.1, "per_kv_token_ms": 0}))
    same, moved, other = (shaping(EngineConfig(width="cost", cost=str(path)), server) for path in costs)
    assert same == moved != other
    plain = EngineConfig()
    assert shaping(plain, server) != shaping(EngineConfig(share="nothing"), server)
    assert shaping(plain, server) != shaping(plain, Server(**SERVER | {"max_running": 5}))
    assert shaping(plain, server) == shaping(EngineConfig(snapshot=SnapshotConfig(path="x")), server)


@pytest.mark.parametrize("change", [{}, {"width": "measured"}, {"width": "measured", "guard": "off"}])
def test_what_a_clock_decides_is_not_left_to_every_rank(change):
    with pytest.raises(ConfigError, match="'local' needs rows that no clock decides"):
        EngineConfig(ranks="local", **change)
