"""`Trace.of`: what is at hand becomes a trace, and what is none is refused by name, not bent."""

import json

import numpy as np
import pytest

from ngramspec.errors import ConfigError, TraceError
from ngramspec.replay import Trace, read, write


def test_a_trace_of_requests_at_hand_is_what_was_given():
    arrays = [np.array([1, 2], np.int32), [3]]
    trace = Trace.of(arrays, [[4, 0], [5]], session=["s", None], turn=[0, -1], arrival=[0.5, 1.0], eos_ids=(0,))
    assert trace.prompt[0].tolist() == [1, 2] and trace.output[1].tolist() == [5] and trace.name == "made"
    assert trace.session.tolist() == ["s", None] and trace.arrival.tolist() == [0.5, 1.0] and trace.eos_ids == (0,)
    assert trace.finish_reason.tolist() == [None, None] and len(Trace.of([], [])) == 0
    assert repr(trace) == "<Trace 'made': 2 requests, 3 output tokens>"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"outputs": [[1]]}, "outputs: got 1 values, need 2, one a prompt"),
        ({"turn": [1]}, "turn: got 1 values"),
        ({"session": []}, "session: got 0 values"),
        ({"outputs": [[1], [-1]]}, "output: got ids from -1 to 1, allowed 0"),
        ({"prompts": None}, "prompts: got NoneType, must be a list of one entry a request"),
        ({"prompts": ([1] for _ in range(2))}, "prompts: got generator"),
        ({"prompts": {0: [1], 1: [2]}}, "prompts: got dict"),
        ({"prompts": "12"}, "prompts: got str"),
        ({"prompts": np.array(2)}, "prompts: got ndarray"),
        ({"outputs": None}, "outputs: got NoneType"),
        ({"outputs": {1, 2}}, "outputs: got set"),
        ({"outputs": 5}, "outputs: got int"),
        ({"session": "ab"}, "session: got str"),
        ({"session": iter("ab")}, "session: got str_"),
        ({"session": ["a", 1]}, "session: got 1, allowed text or None"),
        ({"session": ["a", []]}, r"session: got \[\], allowed text or None"),
        ({"session": ["a", "\ud800"]}, r"session: got '.ud800', allowed characters of Unicode"),
        ({"category": [b"a", None]}, "category: got b'a', allowed text or None"),
        ({"finish_reason": [None, 0]}, "finish_reason: got 0"),
        ({"turn": 1}, "turn: got int"),
        ({"turn": [0, -2]}, "turn: got -2 to 0, allowed integers from 0"),
        ({"arrival": [[0.5], [1.0]]}, "arrival: got .* must be a flat list of seconds"),
        ({"arrival": [[0.5], [1.0, 2.0]]}, "arrival: got .* must be a flat list of seconds"),
        ({"arrival": ["0.5", "1"]}, "arrival: got .* must be a flat list of seconds"),
        ({"arrival": [None, 1.0]}, "arrival: got .* must be a flat list of seconds"),
        ({"arrival": [0.5, -1.0]}, "arrival: got -1.0, allowed seconds from 0, NaN where not recorded"),
        ({"arrival": [float("inf"), 1.0]}, "arrival: got inf"),
        ({"name": None}, "name: got None, allowed text"),
    ],
)
def test_requests_that_do_not_fit_together_are_refused(settings, message):
    with pytest.raises(TraceError, match=message):
        Trace.of(**{"prompts": [[1], [2]], "outputs": [[1], [2]]} | settings)


@pytest.mark.parametrize(
    "ids", [[1.5], [2**31], np.array([2**33]), "12", ["1"], [[1]], [None], np.array([2**32 - 1], np.uint32)]
)
def test_ids_that_are_none_are_refused_not_bent(ids):
    for settings in ({"prompts": [ids]}, {"outputs": [ids]}, {"eos_ids": ids}):
        with pytest.raises(ConfigError, match=next(iter(settings))):
            Trace.of(**{"prompts": [[1]], "outputs": [[1]]} | settings)
    assert Trace.of([[1]], [[2]], session=np.array(["a"])).session.tolist() == ["a"]


@pytest.mark.parametrize("turn", [[1.5], [1.0], [[1]], [None], ["1"], [True], [2**31]])
def test_turns_that_are_none_are_refused_not_bent(turn):
    with pytest.raises(TraceError, match=r"turn: got .* integers from 0 below 2..31, -1 where not recorded"):
        Trace.of([[1]], [[1]], turn=turn)


@pytest.mark.parametrize("ids", [[5], ["\ud800"]])
def test_names_in_an_npz_are_text(tmp_path, ids):
    write(Trace.of([[1]], [[2]]), tmp_path / "t.npz")
    with np.load(tmp_path / "t.npz") as data:
        parts = {name: data[name] for name in data.files}
    meta = json.loads(parts["meta"].tobytes())
    for change in ({"ids": ids}, {"session": ids}):
        parts["meta"] = np.frombuffer(json.dumps(meta | change).encode(), np.uint8)
        np.savez(tmp_path / "t.npz", **parts)
        with pytest.raises(TraceError, match=rf"t.npz: {next(iter(change))}: got .*, allowed"):
            read(tmp_path / "t.npz")
