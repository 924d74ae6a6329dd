"""The bundled sample trace is what its README says."""

import gzip
import importlib.resources
import json
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import pytest

SAMPLE = importlib.resources.files("ngramspec") / "data" / "sample.jsonl.gz"
GEMMA_VOCAB_SIZE = 262_144

Row = dict[str, Any]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return [json.loads(line) for line in gzip.decompress(SAMPLE.read_bytes()).splitlines()]


@pytest.fixture(scope="module")
def sessions(rows: list[Row]) -> dict[str, list[Row]]:
    grouped = defaultdict(list)
    for row in rows:
        grouped[row["session"]].append(row)
    return grouped


def test_file_is_small_enough_to_ship() -> None:
    assert len(SAMPLE.read_bytes()) < 1_000_000


def test_trace_is_large_enough_to_calibrate_on(rows: list[Row], sessions: dict[str, list[Row]]) -> None:
    assert len(rows) >= 100
    assert sum(len(row["output_ids"]) for row in rows) >= 25_000
    assert len(sessions) >= 40


def test_ids_are_unique_and_times_rise(rows: list[Row]) -> None:
    assert len({row["id"] for row in rows}) == len(rows)
    times = [row["timestamp"] for row in rows]
    assert times == sorted(times)


def test_token_ids_lie_within_the_vocabulary(rows: list[Row]) -> None:
    for row in rows:
        for field in ("prompt_ids", "output_ids", "eos_ids"):
            assert row[field], (row["id"], field)
            assert all(type(token) is int and 0 <= token < GEMMA_VOCAB_SIZE for token in row[field]), row["id"]


def test_prompts_start_with_bos_once(rows: list[Row]) -> None:
    for row in rows:
        assert row["prompt_ids"][0] == 2, row["id"]
        assert 2 not in row["prompt_ids"][1:], row["id"]


def test_lengths_are_those_of_the_readme(rows: list[Row]) -> None:
    for row in rows:
        assert 90 <= len(row["prompt_ids"]) <= 900, row["id"]
        assert 1 <= len(row["output_ids"]) <= 400, row["id"]


def test_finish_reason_agrees_with_the_last_token(rows: list[Row]) -> None:
    for row in rows:
        ended = [token in row["eos_ids"] for token in row["output_ids"]]
        assert not any(ended[:-1]), row["id"]
        if ended[-1]:
            assert row["finish_reason"] == "stop", row["id"]
        else:
            assert row["finish_reason"] == "length", row["id"]
            assert len(row["output_ids"]) == row["sampling"]["max_tokens"], row["id"]
    assert set(Counter(row["finish_reason"] for row in rows)) == {"stop", "length"}


def test_each_turn_extends_the_turn_before_token_for_token(sessions: dict[str, list[Row]]) -> None:
    assert sum(len(turns) >= 3 for turns in sessions.values()) >= 20
    for name, turns in sessions.items():
        assert [row["turn"] for row in turns] == list(range(len(turns))), name
        for before, after in pairwise(turns):
            context = before["prompt_ids"] + before["output_ids"]
            assert after["prompt_ids"][: len(context)] == context, after["id"]
            assert len(after["prompt_ids"]) > len(context), after["id"]


def test_sampling_is_greedy_and_sampled_and_constant_in_a_session(sessions: dict[str, list[Row]]) -> None:
    temperatures = Counter[float]()
    for name, turns in sessions.items():
        assert len({row["sampling"]["temperature"] for row in turns}) == 1, name
        temperatures[turns[0]["sampling"]["temperature"]] += 1
    assert set(temperatures) == {0.0, 0.7, 0.8, 0.9, 1.0}
    assert min(temperatures.values()) >= 4
