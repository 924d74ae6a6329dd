"""Tensor parallelism with two processes: identical rows every step, and agreement on whether to draft at all."""

import json
import socket
import subprocess
import sys
import threading

import pytest
import torch

from ngramspec import EngineContractError
from ngramspec.engines.sglang import ranks
from ngramspec.engines.sglang.ranks import together
from tests.sources import ROOT


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """What both ranks did."""
    folder = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tests.sglang.two_ranks"]
    runs = [
        subprocess.Popen(
            [*command, str(rank), str(port), str(folder / f"{rank}.json")],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    for run in runs:
        said, _ = run.communicate(timeout=300)
        assert run.returncode == 0, said[-5000:]
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in (0, 1)]


def test_every_rank_verifies_the_same_rows_in_every_step(two):
    first, second = two
    assert len(first["told"]) > 100 and first["told"] == second["told"]


def test_clocks_failures_and_corpora_did_make_a_difference(two):
    told, state = two[0]["told"], two[0]["state"]
    assert len({width for width, _, _ in told}) >= 3  # by step times of a clock three times as fast
    assert state["failures"] >= 2
    assert state["sources"]["frozen"] > 0 and state["sources"]["own"] > 0
    assert state["accepted"] > 0.5 * state["steps"]


def agreed(build, present=(0, 1)):
    """What each of two ranks gets; a rank that is not present runs without us."""
    store, found = torch.distributed.HashStore(), {}

    def run(rank):
        try:
            found[rank] = together(store, 0, rank, 2, build)
        except Exception as error:
            found[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in present]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return found


def test_one_rank_builds_and_all_agree():
    assert agreed(lambda: "drafts") == {0: "drafts", 1: None}


def test_if_the_first_cannot_build_all_stand_aside():
    def build():
        raise EngineContractError("too little memory")

    found = agreed(build)
    assert str(found[0]) == "too little memory"
    assert isinstance(found[1], EngineContractError) and "rank 0 stands aside: too little memory" in str(found[1])


@pytest.mark.parametrize("present", [(0,), (1,)])
def test_a_rank_without_us_is_noticed_by_its_silence(monkeypatch, present):
    monkeypatch.setattr(ranks, "HERE_SECONDS", 1)
    (error,) = agreed(lambda: "drafts", present).values()
    assert isinstance(error, EngineContractError) and f"rank {1 - present[0]} does not run ngramspec" in str(error)
