"""Calibration against servers made for the purpose: known paces are found, and whatever goes wrong is named."""

import json
import socket
import threading
import time

import pytest

from ngramspec.cli import main
from ngramspec.drafting.cost import CostModel
from ngramspec.drafting.cost_file import load, parse
from ngramspec.drafting.cost_points import Point
from ngramspec.errors import ConfigError, ServerError
from ngramspec.replay.calibrate import Settings, calibrate
from ngramspec.replay.calibrate.points import ASSUMED
from tests.fake_server import INFO, serving

QUICK = Settings(batches=(1, 2), prompt_tokens=8, output_tokens=24, repeat=2, silence_s=2.0, time_limit_s=10.0)
SPECULATING = INFO | {"speculative_algorithm": "EAGLE3", "speculative_num_draft_tokens": 4}

#: How far a measured time may be from the pace of the server: both share two busy cores.
LOOSE = 0.35


def quick(**changed):
    return Settings(**{name: getattr(QUICK, name) for name in QUICK.__dataclass_fields__} | changed)


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


# Live


def test_an_openai_server_shows_its_decode_steps():
    with serving(step_ms=lambda n: 6.0 + 6.0 * n) as server:
        found = calibrate(server.url, QUICK, kind="measured-cpu")
    assert [step.batch for step in found.steps] == [1, 2]
    assert [point.ms for point in found.cost.decode] == pytest.approx([12.0, 18.0], rel=LOOSE)
    assert found.cost.decode[0].ms < found.cost.decode[1].ms
    assert [point.kv_tokens for point in found.cost.decode] == [8 + 12, 2 * (8 + 12)]
    assert found.cost.name == "tiny" and "test" in found.cost.note and ASSUMED in found.cost.note
    assert found.cost.kind == "modelled"
    assert [m[:3] for m in found.cost.measured] == [(1, 8, 24), (2, 8, 24)]
    assert list(found.reproductions) == pytest.approx([1.0, 1.0], rel=LOOSE)
    posts = [body for method, _, _, body in server.seen if method == "POST"]
    assert len(posts) == 1 + QUICK.n_requests and all(body["max_tokens"] <= 24 for body in posts)
    assert all(body["stream"] is True and body["ignore_eos"] is True for body in posts)


def test_sglang_shows_decode_steps_and_with_speculation_verify_steps():
    with serving(info=INFO, step_ms=lambda n: 5.0) as server:
        plain = calibrate(server.url, QUICK)
    with serving(info=SPECULATING, step_ms=lambda n: 12.0, emits=2) as server:
        both = calibrate(server.url, quick(output_tokens=24), add=parse(plain.cost.describe()))
    assert both.cost.kind == "measured-cpu" and ASSUMED not in both.cost.note and plain.cost.note[:20] in both.cost.note
    assert both.cost.decode == plain.cost.decode and both.cost.measured == plain.cost.measured
    assert [point[:3] for point in both.cost.verify] == [(4, 1, 20), (8, 2, 40)]
    assert [point.ms for point in both.cost.verify] == pytest.approx([12.0, 12.0], rel=LOOSE)
    assert [point.ms for point in both.cost.decode] == pytest.approx([5.0, 5.0], rel=LOOSE)
    assert "EAGLE3 speculation of 4 tokens" in both.cost.note
    assert any("one width of verify steps at batch 1, 2: others" in remark for remark in both.remarks)
    assert both.cost.name == "tiny" and "/models" not in json.dumps(both.cost.describe())


def test_bundled_tokens_of_sglang_do_not_change_the_step_time():
    with serving(info=INFO, step_ms=lambda n: 4.0, bundle=3) as server:
        found = calibrate(server.url, quick(output_tokens=40))
    assert found.cost.decode[0].ms == pytest.approx(4.0, rel=LOOSE)


def test_vllm_without_speculation_may_bundle_tokens():
    with serving(paths={"/metrics": (200, b"vllm:num_requests_running 0\n")}, bundle=2) as server:
        found = calibrate(server.url, quick(output_tokens=40), kind="measured-gpu")
    assert found.cost.decode[0].ms == pytest.approx(3.0, rel=LOOSE)


def test_a_server_that_refuses_extras_is_asked_without():
    def refuse(path, body):
        return (400, b'{"error":"unknown field ignore_eos"}') if "ignore_eos" in body else None

    with serving(refuse=refuse) as server:
        found = calibrate(server.url, QUICK, kind="measured-cpu")
    assert [step.output_tokens for step in found.steps] == [24, 24]


def test_nothing_but_the_address_is_contacted(monkeypatch):
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    with serving() as other:
        elsewhere = f"{other.url}/v1/completions".encode()
        with serving(refuse=lambda path, body: (302, elsewhere)) as server, pytest.raises(ServerError, match="302"):
            calibrate(server.url, QUICK, kind="measured-cpu")
        assert other.seen == []


def test_the_key_is_sent_and_its_absence_explained(monkeypatch, tmp_path, capsys):
    def refuse(path, body):
        return None if server.seen[-1][2].get("Authorization") == "Bearer sesame" else (401, b"who are you?")

    arguments = ["--kind", "measured-cpu", "--batches", "1,2", "--output-tokens", "16", "-o", str(tmp_path / "c.json")]
    monkeypatch.setenv("KEY", "sesame")
    with serving(refuse=refuse) as server:
        assert main(["calibrate", "--url", server.url, *arguments]) == 2
        assert "401" in capsys.readouterr().err
        assert main(["calibrate", "--url", server.url, "--api-key-env", "KEY", *arguments]) == 0
    assert main(["calibrate", "--url", server.url, "--api-key-env", "NO_SUCH_KEY", *arguments]) == 2
    assert "no variable 'NO_SUCH_KEY'" in capsys.readouterr().err
    monkeypatch.setenv("KEY", "open\nsesame")
    assert main(["calibrate", "--url", server.url, "--api-key-env", "KEY", *arguments]) == 2
    said = capsys.readouterr().err
    assert "api_key: holds characters that no header takes" in said and "sesame" not in said


@pytest.mark.parametrize(
    ("does", "message"),
    [
        ({"paths": {"/v1/models": (200, b"<html>hello</html>")}}, "got '<html>hello</html>', must be JSON"),
        ({"paths": {"/v1/models": (404, b"")}}, "no list of models there"),
        ({"paths": {"/v1/models": (200, b'{"data": [3]}')}}, "data: got '[3]' from the server"),
        ({"paths": {"/v1/models": (503, b"loading")}}, "got status 503 Service Unavailable: 'loading'"),
        ({"refuse": lambda path, body: (500, b"out of memory")}, "status 500 Internal Server Error: 'out of memory'"),
        ({"refuse": lambda path, body: (404, b"")}, "/v1/completions: got status 404"),
        ({"script": b'{"choices": [{"text": "all at once"}]}'}, "must be a stream of events"),
        ({"script": b'data: {"error": {"message": "too long"}}\n\n'}, "the server reports: too long"),
        ({"script": b"data: {broken\n\n"}, "got '{broken' in a stream of events"),
        ({"script": b"data: 7\n\n"}, "got '7' in a stream"),
        ({"script": b'data: {"choices": [7]}\n\n'}, "choices: got '[7]'"),
        ({"script": b'data: {"choices": [], "usage": {"completion_tokens": "x"}}\n\ndata: [DONE]\n\n'}, "broke off"),
        ({"script": b'data: {"choices": [{"text": "a"}]}\n\n'}, "broke off after 1 events"),
        (
            {"script": b'data: {"choices": [{"text": "a"}], "usage": {"completion_tokens": "x"}}\n\ndata: [DONE]\n\n'},
            "completion_tokens: got '\"x\"' from the server, must be a count",
        ),
        ({"cut": 2}, "the connection broke off"),
        ({"emits": 3}, "the server speculates or bundles tokens"),
        ({"hold_s": 1.0}, "no byte for 0.5 s"),
        ({"at_a_time": 1, "step_ms": lambda n: 3.0}, None),
    ],
    ids=lambda value: None if callable(value) else str(value)[:30],
)
def test_what_an_openai_server_does_wrong_is_named(does, message):
    settings = quick(batches=(2,)) if message is None else quick(output_tokens=16, repeat=1, silence_s=0.5)
    with serving(**does) as server, pytest.raises(ServerError) as caught:
        calibrate(server.url, settings, kind="measured-cpu")
    assert (message or "did not run together") in str(caught.value)


@pytest.mark.parametrize(
    ("info", "does", "message"),
    [
        (INFO | {"dp_size": 2}, {}, "dp_size: the server spreads requests"),
        (SPECULATING, {}, "shows verify steps alone: calibrate it without speculation first"),
        (SPECULATING | {"speculative_adaptive": True}, {}, "vary in width"),
        (SPECULATING | {"speculative_num_draft_tokens": None}, {}, "does not say how wide"),
        (INFO, {"script": b'data: {"text": "a"}\n\ndata: [DONE]\n\n'}, "completion_tokens: missing"),
        (
            INFO,
            {"script": b'data: {"meta_info": {"completion_tokens": 3, "finish_reason": null}}\n\n'},
            "broke off after 3 tokens",
        ),
        (
            INFO,
            {"script": b'data: {"meta_info": {"finish_reason": {"type": "abort", "message": "no room"}}}\n\n'},
            "aborted a request: no room",
        ),
        (INFO, {"cut": 3}, "the connection broke off"),
    ],
)
def test_what_sglang_does_wrong_is_named(info, does, message):
    with serving(info=info, **does) as server, pytest.raises((ServerError, ConfigError)) as caught:
        calibrate(server.url, QUICK)
    assert message in str(caught.value)


def test_verify_steps_that_are_not_counted_are_refused():
    add = CostModel(decode=(Point(1, 1, 0, 5.0),), verify=(Point(2, 1, 0, 5.0),), name="tiny", kind="modelled")
    script = b'data: {"meta_info": {"completion_tokens": 9}}\n\ndata: [DONE]\n\n'
    with (
        serving(info=SPECULATING, script=script) as server,
        pytest.raises(ServerError, match="spec_verify_ct: missing"),
    ):
        calibrate(server.url, QUICK, add=add)


@pytest.mark.parametrize(
    ("does", "arguments", "message"),
    [
        ({}, {}, "kind: the server does not say what it runs on"),
        ({}, {"kind": "measured-tpu"}, "kind: got 'measured-tpu', allowed"),
        ({}, {"api": "grpc"}, "api: got 'grpc', allowed auto, openai, sglang"),
        ({}, {"api": "sglang"}, "does not answer as SGLang does"),
        ({"info": INFO}, {"kind": "measured-gpu"}, "the server says that it is measured-cpu"),
        ({"info": SPECULATING}, {"api": "openai"}, "this is SGLang and speculates; take --api sglang"),
        ({"info": INFO}, {"model": "huge"}, "model: got 'huge', but the server serves /models/tiny"),
        ({}, {"model": "huge"}, "model: got 'huge', but the server serves tiny"),
        ({"models": [{"id": "a"}, {"id": "b"}]}, {}, "serves a, b; choose one"),
        ({"models": []}, {}, "serves none; choose one"),
        ({"paths": {"/metrics": (200, b"vllm:spec_decode_num_drafts_total 3\n")}}, {}, "its metrics count drafts"),
    ],
)
def test_settings_that_do_not_suit_a_server_are_refused(does, arguments, message):
    with serving(**does) as server, pytest.raises((ConfigError, ServerError)) as caught:
        calibrate(server.url, QUICK, **arguments)
    assert message in str(caught.value)
    assert [path for method, path, _, _ in server.seen if method == "POST" and path == "/generate"] == []


def test_a_server_that_is_not_there():
    with pytest.raises(ServerError, match=r"127\.0\.0\.1:\d+: cannot be reached: Connection refused; is the server up"):
        calibrate(f"http://127.0.0.1:{free_port()}", QUICK, kind="measured-cpu")


ADDRESSES = ["127.0.0.1:30000", "ftp://x", "http://", "http://a:b@c", "http://x?y=1", "http://x:y", "http://[", None]
UNSENT = ["http://a b", "http://x/é", "http://x/a b", "http://\udcff", f"http://{'x' * 64}", b"http://x"]


@pytest.mark.parametrize("url", [*ADDRESSES, *UNSENT])
def test_an_address_that_is_none(url):
    with pytest.raises(ConfigError, match="url: got"):
        calibrate(url, QUICK, kind="measured-cpu")


def test_what_was_measured_before_a_failure_is_kept():
    def refuse(path, body):
        return (429, b"too many") if server.n >= 4 else None  # one that just ended may still count

    with serving(refuse=refuse, step_ms=lambda n: 3.0) as server:
        found = calibrate(server.url, quick(batches=(1, 2, 8), repeat=1), kind="measured-cpu")
    assert [step.batch for step in found.steps] == [1, 2]
    assert any("nothing measured from batch 8 on: " in remark and "429" in remark for remark in found.remarks)


def test_the_time_limit_ends_it_with_what_there_is():
    with serving(step_ms=lambda n: 4.0 if n < 3 else 600.0) as server:
        found = calibrate(server.url, quick(batches=(1, 2, 4), repeat=1, time_limit_s=5.0), kind="measured-cpu")
    assert [step.batch for step in found.steps] == [1, 2]
    assert "nothing measured from batch 4 on: time limit" in found.remarks


def test_an_interrupt_ends_every_request():
    def interrupt(done):
        raise KeyboardInterrupt

    with serving(step_ms=lambda n: 500.0) as server:
        began = time.perf_counter()
        with pytest.raises(KeyboardInterrupt):
            calibrate(server.url, quick(batches=(4,), silence_s=30.0), kind="measured-cpu", on_progress=interrupt)
        assert time.perf_counter() - began < 10.0  # to the end of the outputs it would be 12
    assert not [thread for thread in threading.enumerate() if "ThreadPoolExecutor" in thread.name]


# The command


def test_the_command_writes_a_file_that_loads(tmp_path, capsys):
    out = tmp_path / "cost.json"
    with serving(info=INFO) as server:
        status = main([
            "calibrate", "--url", f"{server.url}/v1", "--batches", "1,2", "--prompt-tokens", "8",
            "--output-tokens", "24", "--repeat", "1", "-o", str(out),
        ])  # fmt: skip
    printed = capsys.readouterr().out
    assert status == 0 and "tiny: " in printed and "tokens a second of runs held out are reproduced within" in printed
    cost = load(out)
    assert cost.name == "tiny" and "SGLang 0.0.1" in cost.note and len(cost.measured) == 2
    assert main(["breakeven", "--cost", str(out)]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "cost.csv"], "must end in .json"),
        (["-o", "cost.json", "--batches", "1,x"], "--batches: got '1,x'"),
        (["-o", "cost.json", "--batches", "2,1"], "batches: got [2, 1], allowed 1 to 1024, rising"),
        (["-o", "cost.json", "--output-tokens", "3"], "output_tokens: got 3, allowed 16 to 2048"),
        (["-o", "cost.json", "--time-limit", "0"], "time_limit_s: got 0.0"),
        (["-o", "no/such/cost.json"], "cannot be written"),
        (["-o", "cost.json", "--add", "none.json"], "none.json: cannot be read"),
        (["-o", "cost.json"], "cannot be reached"),
    ],
)
def test_the_command_refuses_in_one_line_and_leaves_no_file(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert main(["calibrate", "--url", f"http://127.0.0.1:{free_port()}", *arguments]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith("error: ") and message in last
    assert list(tmp_path.iterdir()) == []
