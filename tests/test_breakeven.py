"""`ngramspec breakeven`: the one-line answer, the table, and one clear line for wrong input."""

import json

import pytest

from ngramspec.cli import main
from ngramspec.cli.breakeven import BATCHES, WIDTHS
from ngramspec.drafting.profiles import profile


def said(arguments, capsys):
    assert main(["breakeven", *arguments]) == 0
    return capsys.readouterr().out


def test_two_numbers_give_the_answer_and_what_an_accept_length_of_two_loses(capsys):
    printed = said(["--baseline-tps", "82", "--verify-ms", "30"], capsys)
    assert "pays above an accept length of 2.46" in printed
    assert "An accept length of 2.0 loses 19 %" in printed
    assert "2.5                83.3               +2%" in printed


@pytest.mark.parametrize(
    ("length", "message"), [("2.46", "makes no difference"), ("3", "gains 22 %"), ("1", "loses 59 %")]
)
def test_another_accept_length(length, message, capsys):
    arguments = ["--baseline-tps", "82", "--verify-ms", "30", "--accept-length", length]
    assert message in said(arguments, capsys)


def test_exposed_drafting_is_charged(capsys):
    arguments = ["--baseline-tps", "82", "--verify-ms", "30", "--exposed-us", "2000"]
    assert "above an accept length of 2.62: a verify step takes 30.0 ms and 2.00 ms of drafting" in said(
        arguments, capsys
    )


def test_a_profile_gives_a_table_over_batch_and_width_and_says_what_it_is(capsys):
    printed = said(["--profile", "dense-8b-h100", "--batch", "32", "--width", "7", "--kv-tokens", "500"], capsys)
    model = profile("dense-8b-h100")
    needed = (7.1 + 0.021 * 32 * 8 + 3.9e-5 * 16_000) / (7.1 + 0.021 * 32 + 3.9e-5 * 16_000)
    assert f"at batch 32 with 7 drafted tokens a request above an accept length of {needed:.2f}" in printed
    rows = {line.split()[0]: line.split()[1:] for line in printed.splitlines() if line.strip()[:1].isdigit()}
    assert sorted(rows, key=int) == [str(b) for b in BATCHES]
    for b in BATCHES:
        expected = [f"{model.breakeven_accept_length(b, w, 500 * b):.2f}" for w in WIDTHS]
        assert rows[str(b)] == expected
    assert "step times: dense-8b-h100, read" in printed and "not measured here" in printed


def test_one_width_of_verify_steps_a_batch_says_that_it_tells_nothing_of_others(tmp_path, capsys):
    # What a server gives at hand: a decode and a verify step at each batch size. A draft of 31 then looks free.
    (tmp_path / "s.csv").write_text("batch,n_tokens,ms\n1,1,10\n1,4,12\n8,8,11\n8,32,15\n8,64,20\n")
    printed = said(["--cost", str(tmp_path / "s.csv")], capsys)
    assert "step times: s, read; one width of verify steps at batch 1: others are taken to cost as much" in printed
    (tmp_path / "two.json").write_text('{"baseline_tps": 82, "verify_ms": 30}')
    assert "one width of verify steps at batch 1:" in said(["--cost", str(tmp_path / "two.json")], capsys)
    assert "one width" not in said(["--profile", "dense-8b-h100"], capsys)


def test_a_file_of_points_and_every_number_as_json(tmp_path, capsys):
    (tmp_path / "s.csv").write_text("batch,n_tokens,ms\n1,1,10\n1,4,12\n")
    out = tmp_path / "out.json"
    printed = said(["--cost", str(tmp_path / "s.csv"), "--width", "3", "--json", str(out)], capsys)
    assert "at batch 1 with 3 drafted tokens a request above an accept length of 1.20" in printed
    content = json.loads(out.read_text())
    assert content["schema"] == "ngramspec.breakeven/1" and content["kind"] == "modelled"
    assert content["breakeven_accept_length"] == pytest.approx(1.2)
    assert content["speedup"] == pytest.approx(2.0 / 1.2)
    assert content["cost"]["kind"] == "read" and len(content["cost"]["points"]) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "step times: missing; give --baseline-tps and --verify-ms, or --cost, or --profile"),
        (["--baseline-tps", "82"], "--verify-ms: missing"),
        (["--verify-ms", "30"], "--baseline-tps: missing"),
        (["--baseline-tps", "0", "--verify-ms", "30"], "baseline_tps: got 0.0, must be a number above 0"),
        (["--baseline-tps", "1e300", "--verify-ms", "30"], "baseline_tps: got 1e+300, must be a number above 0, from"),
        (["--profile", "dense-8b-h100", "--kv-tokens", "1000000000000000000"], "--kv-tokens"),
        (["--baseline-tps", "82", "--verify-ms", "nan"], "verify_ms: got nan, must be a number"),
        (["--baseline-tps", "82", "--verify-ms", "30", "--profile", "dense-8b-h100"], "give one of --cost, --profile"),
        (["--baseline-tps", "82", "--verify-ms", "30", "--batch", "8"], "--batch has no effect with two numbers"),
        (["--baseline-tps", "82", "--verify-ms", "30", "--accept-length", "0.5"], "--accept-length: got 0.5"),
        (["--profile", "tpu"], "profile: got 'tpu', allowed dense-8b-h100"),
        (["--profile", "dense-8b-h100", "--width", "0"], "--width"),
        (["--profile", "dense-8b-h100", "--exposed-us", "-1"], "exposed_us: got -1.0"),
        (["--exposed-us", "5"], "--exposed-us has no effect without step times"),
        (["--cost", "none.csv"], "none.csv: cannot be read: No such file"),
        (["--cost", "{bad}"], "row 2, field ms: got 'fast', must be a number"),
    ],
)
def test_wrong_input_is_one_line_and_status_2(arguments, message, tmp_path, capsys):
    bad = tmp_path / "bad.csv"
    bad.write_text("batch,n_tokens,ms\n1,1,fast\n")
    assert main(["breakeven", *(argument.replace("{bad}", str(bad)) for argument in arguments)]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("error: ") == 1
    assert message in printed.err.strip().splitlines()[-1]


def test_help_ends_with_an_example(capsys):
    printed = said(["--help"], capsys)
    assert "Example: ngramspec breakeven --baseline-tps 82 --verify-ms 30" in printed.strip().splitlines()[-1]
