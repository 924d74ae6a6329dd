"""The SGLang adapter's settings without SGLang: what is refused, the switch, the contract's checks, `doctor`."""

import json
import logging
from dataclasses import fields

import numpy as np
import pytest

from ngramspec import ConfigError, EngineContractError
from ngramspec.cli import main
from ngramspec.engines.sglang import contract, plugin
from ngramspec.engines.sglang.config import EngineConfig, asked, from_environment
from ngramspec.engines.sglang.contract import Promise, mismatches
from ngramspec.engines.sglang.server import Server

SERVER = {
    "tp_size": 1, "pp_size": 1, "disaggregation": "null", "dp_attention": False,
    "backends": ("triton", "triton"), "mla": False, "breadth": 8, "page_size": 1, "vocab_size": 100, "eos_ids": (),
    "context_tokens": 1000, "max_running": 4, "n_rows": 12,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pp_size": 2}, "pipeline parallelism of 2"),
        ({"disaggregation": "decode"}, "disaggregated decode"),
        ({"dp_attention": True}, "data-parallel attention"),
    ],
)
def test_what_is_refused(change, words):
    assert Server(**SERVER).refusals() == []
    with pytest.raises(EngineContractError, match=words):
        Server(**SERVER | change).check()


@pytest.mark.parametrize(
    ("change", "chain"),
    [
        ({}, False),
        ({"backends": ("flashinfer", "flashinfer"), "page_size": 16}, False),
        ({"page_size": 16}, True),
        ({"backends": ("fa3", "fa3")}, True),
        ({"backends": ("triton", "trtllm_mha")}, True),
        ({"mla": True}, False),
        ({"backends": ("flashinfer", "flashinfer"), "mla": True}, True),
        ({"breadth": 1}, True),
    ],
)
def test_trees_only_where_masks_are_known_to_be_read(change, chain):
    server = Server(**SERVER | change)
    assert server.chain(EngineConfig()) is chain
    assert server.chain(EngineConfig(topology="chain"))


@pytest.mark.parametrize(
    ("environment", "on"),
    [
        ({}, False),
        ({"NGRAMSPEC": ""}, False),
        ({"NGRAMSPEC": "1"}, True),
        ({"NGRAMSPEC_CONFIG": "x"}, True),
        ({"NGRAMSPEC": "0", "NGRAMSPEC_CONFIG": "x"}, False),
    ],
)
def test_nothing_happens_unasked(environment, on):
    assert asked(environment) is on


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"max_byte": 1}', r"\$\.max_byte: unknown setting; allowed are max_bytes"),
        ('{"share": "world"}', "share: got 'world', allowed 'tenant'"),
        ('{"topology": "tree"}', "topology: got 'tree', allowed 'auto'"),
        ('{"min_prob": 2}', "min_prob: got 2"),
        ('{"max_bytes": 1.5}', "max_bytes: got 1.5"),
        ("[]", "must hold one JSON object, got list"),
        ("{", "cannot be read as JSON"),
        ("[" * 200_000, "cannot be read as JSON"),
        (None, "cannot be read: No such file or directory$"),
    ],
)
def test_wrong_settings_name_the_file_and_what_is_allowed(tmp_path, text, words):
    path = tmp_path / "config.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=f"NGRAMSPEC_CONFIG={path}: .*{words}"):
        from_environment({"NGRAMSPEC_CONFIG": str(path)})


def test_settings_in_the_place_of_a_file_are_told_apart():
    with pytest.raises(ConfigError, match="it names a file, write the settings into one"):
        from_environment({"NGRAMSPEC_CONFIG": '{"share": "tenant"}'})


def test_settings_go_through_json(tmp_path):
    config = EngineConfig(max_bytes=2**21, share="nothing", topology="chain", min_prob=0.1, draft_threads=2)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config.to_dict()))
    assert from_environment({"NGRAMSPEC_CONFIG": str(path)}) == config


def test_a_switch_that_is_neither_on_nor_off_is_an_error_and_the_plugin_stands_aside(monkeypatch, caplog):
    monkeypatch.setenv("NGRAMSPEC", "yes")
    plugin.activate()
    assert "stands aside" in caplog.text and "allowed 1 (on) and 0 (off)" in caplog.text


def test_the_plugin_is_silent_unless_asked(monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    monkeypatch.delenv("NGRAMSPEC", raising=False)
    monkeypatch.delenv("NGRAMSPEC_CONFIG", raising=False)
    plugin.activate()
    assert caplog.text == ""


@pytest.mark.parametrize("wrong", [None, 5, "x", [], [("share", "nothing")]])
def test_settings_are_an_object(wrong):
    with pytest.raises(ConfigError, match=r"\$: got .*, allowed an object of settings by name"):
        EngineConfig.from_dict(wrong)


@pytest.mark.parametrize("name", [field.name for field in fields(EngineConfig)])
@pytest.mark.parametrize("wrong", [np.ones(2), np.array(["a", "b"]), object()], ids=["numbers", "texts", "object"])
def test_every_setting_refuses_by_name_what_json_cannot_hold(name, wrong):
    with pytest.raises(ConfigError, match=rf"{name}: got (array|<object)"):
        EngineConfig.from_dict({name: wrong})


THIS = "ngramspec.engines.sglang.guard"


@pytest.mark.parametrize(
    ("promise", "wrong"),
    [
        (Promise("override", f"{THIS}:Guard.failed", ("self", "doing", "error")), ""),
        (Promise("override", f"{THIS}:Guard.failed", ("self", "error")), "takes (self, doing, error), ours"),
        (Promise("call", f"{THIS}:Guard", ()), ""),
        (Promise("call", f"{THIS}:Guard", ("clock",)), ""),
        (Promise("call", f"{THIS}:Guard", ("time",)), "does not take time"),
        (Promise("call", f"{THIS}:Guard.failed", ("self", "doing")), "needs error, which ours does not give"),
        (Promise("fields", f"{THIS}:Guard", ("failures", "paused", "_good", "ready")), ""),
        (Promise("fields", f"{THIS}:Guard", ("failures", "mood")), "has no mood"),
        (Promise("fields", f"{THIS}:Shield", ("failures",)), "cannot be found"),
        (Promise("call", "ngramspec.engines.other:f", ()), "cannot be found"),
    ],
)
def test_a_contract_names_what_is_not_kept(promise, wrong):
    found = mismatches([promise])
    assert (found == []) if wrong == "" else (len(found) == 1 and wrong in found[0] and promise.where in found[0])


def test_every_promise_of_the_contract_is_of_a_known_kind_and_said_once():
    assert len({promise.where + promise.kind for promise in contract.CONTRACT}) == len(contract.CONTRACT)
    assert {promise.kind for promise in contract.CONTRACT} == {"override", "call", "fields"}


def test_doctor_says_what_is_missing(capsys, monkeypatch):
    monkeypatch.setattr(contract, "installed", lambda: None)
    assert main(["doctor", "--pp-size", "2", "--tp-size", "2", "--backend", "fa3"]) == 1
    printed = capsys.readouterr().out
    assert "WRONG SGLang is not installed here" in printed and "into the server's environment" in printed
    assert "WRONG refused: pipeline parallelism of 2" in printed
    assert "drafts chains of up to 11 tokens (attention fa3/fa3)" in printed
    assert "memory in rank 0, which drafts for all ranks: 512 MiB" in printed


def test_doctor_tells_what_sglang_takes_only_where_nothing_else_was_given(capsys, monkeypatch):
    monkeypatch.delenv("NGRAMSPEC", raising=False)
    monkeypatch.delenv("NGRAMSPEC_CONFIG", raising=False)
    monkeypatch.setattr(contract, "installed", lambda: None)
    main(["doctor"])
    printed = capsys.readouterr().out
    assert "note  switched off: start the server with NGRAMSPEC=1" in printed and "drafts trees of up to 11" in printed
    assert "max-running-requests becomes 48" in printed and "num-draft-tokens is 12" in printed
    main(["doctor", "--max-running", "64", "--draft-tokens", "6"])
    printed = capsys.readouterr().out
    assert "max-running-requests becomes" not in printed and "num-draft-tokens is" not in printed
    assert "drafts trees of up to 5" in printed and "full context would be 524,288" in printed


def test_doctor_reports_wrong_settings(capsys, monkeypatch):
    monkeypatch.setenv("NGRAMSPEC", "perhaps")
    assert main(["doctor"]) == 1
    assert "WRONG NGRAMSPEC: got 'perhaps'" in capsys.readouterr().out


def test_doctor_tells_of_records_snapshots_and_widths(capsys, monkeypatch, tmp_path):
    path = tmp_path / "config.json"
    settings = {"record": {"folder": "/var/traces", "salt": "secret"}, "snapshot": {"path": "x"}, "width": "measured"}
    path.write_text(json.dumps(settings))
    monkeypatch.setenv("NGRAMSPEC_CONFIG", str(path))
    monkeypatch.setattr(contract, "installed", lambda: None)
    main(["doctor", "--backend", "triton"])
    printed = capsys.readouterr().out
    assert "records token ids of prompts and outputs in /var/traces: at most 1,024 MiB of files" in printed
    assert "as much again for the seconds that a snapshot takes: 512 MiB" in printed
    assert "1/3/6/12 rows a request and step" in printed
    assert "secret" not in printed
    assert main(["doctor", "--backend", "fa3"]) == 1
    assert "WRONG refused: width 'measured' with attention backend fa3" in capsys.readouterr().out


def test_doctor_reads_the_cost_file_and_counts_the_memory_of_ranks_that_draft_for_themselves(
    capsys, monkeypatch, tmp_path
):
    path = tmp_path / "config.json"
    settings = {"width": "cost", "cost": str(tmp_path / "cost.json"), "ranks": "local"}
    path.write_text(json.dumps(settings))
    monkeypatch.setenv("NGRAMSPEC_CONFIG", str(path))
    monkeypatch.setattr(contract, "installed", lambda: None)
    asked = ["doctor", "--backend", "triton", "--tp-size", "4", "--max-running", "64", "--context", "131072"]
    assert main(asked) == 1
    assert "cost.json: cannot be read: No such file" in capsys.readouterr().out
    (tmp_path / "cost.json").write_text('{"baseline_tps": 82, "verify_ms": 30}')
    main(asked)
    printed = capsys.readouterr().out
    assert "ok    step times: cost" in printed and "note  step times: one width of verify steps at batch 1" in printed
    assert "note  if all 64 requests" in printed
    assert "memory in each of 4 ranks (2,048 MiB in all): 512 MiB" in printed
    assert "of 8,388,608; raise max_bytes if they do" in printed and "engine numba;" in printed


def test_doctor_says_where_nothing_watches_whether_it_pays(capsys, monkeypatch):
    monkeypatch.delenv("NGRAMSPEC_CONFIG", raising=False)
    monkeypatch.setattr(contract, "installed", lambda: None)
    main(["doctor", "--backend", "fa3"])
    assert "nothing watches whether speculation pays here" in capsys.readouterr().out
