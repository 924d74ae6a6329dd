"""`replay --arrivals`, `run` with `serving`, what both say, and drafting time that is charged once."""

import json
from html import unescape

import pytest

from ngramspec.cli import main
from ngramspec.cli.output import caveats
from ngramspec.cli.serving import served_caveats
from ngramspec.drafting.cost import CostModel
from ngramspec.drafting.cost_file import parse
from ngramspec.errors import ConfigError
from ngramspec.replay import Options, Serving, drafters, run, write
from ngramspec.replay.calibrate import Step
from ngramspec.replay.calibrate.points import as_model
from ngramspec.replay.report import write_report
from tests.naive_replay import NaiveLookup, make_trace

COST = CostModel.from_linear(5.0, 0.5, name="line")
TEXT = [1, 2, 3, 4, 5, 6]


@pytest.fixture
def naive(monkeypatch):
    monkeypatch.setitem(drafters.DRAFTERS, "naive", lambda facts: NaiveLookup())
    return "naive"


def made(n=6, **others):
    return make_trace([{"prompt": [*TEXT, i], "output": [*TEXT, i, 7], "arrival": i / 100, **others} for i in range(n)])


@pytest.fixture
def file(tmp_path):
    write(made(), tmp_path / "t.jsonl")
    return str(tmp_path / "t.jsonl")


def result_of(file, tmp_path, *arguments):
    out = tmp_path / "r.json"
    assert main(["replay", file, "--drafter", "naive", "--json", str(out), *arguments]) == 0
    return json.loads(out.read_text())["runs"][0]


def test_the_command_prints_latencies_with_and_without(file, naive, tmp_path, capsys):
    result = result_of(file, tmp_path, "--profile", "dense-8b-h100", "--arrivals", "trace", "--speed", "2")
    printed = capsys.readouterr().out
    assert "served, modelled" in printed and "without speculation" in printed
    assert "sent at their time stamps, 2 times as fast, at most 256 run at a time" in printed
    assert "its own time is not charged; measured here afterwards" in printed
    assert "in file order, not at their recorded times" not in printed
    both = result["serving"]
    assert both["kind"] == "modelled" and set(both["charged_us"].values()) == {0.0}
    assert 0 < both["speculating"]["tpot_ms"]["p99"] < both["plain"]["tpot_ms"]["p50"]
    assert result["config"]["serving"]["speed"] == 2.0 and result["config"]["concurrency"] == 256
    assert result["modelled_speedup"] > 1.2


def test_the_command_takes_every_setting(file, naive, tmp_path, capsys):
    arguments = [
        *("--arrivals", "poisson", "--rate", "30", "--seed", "3", "--prefill-chunk", "4", "--no-prefix-cache"),
        *("--draft-us", "20", "--accept-us", "3", "--ingest-us", "0.5", "--overlap", "--concurrency", "2"),
    ]
    result = result_of(file, tmp_path, "--profile", "dense-8b-h100", *arguments)
    asked = {"arrivals": "poisson", "rate": 30.0, "seed": 3, "prefill_chunk": 4, "prefix_cache": False}
    asked |= {"draft_us": 20.0, "accept_us": 3.0, "ingest_us": 0.5, "overlap": True, "speed": 1.0}
    assert result["config"]["serving"] == asked and result["config"]["concurrency"] == 2
    assert result["serving"]["charged_us"] == {"draft": 20.0, "accept": 3.0, "ingest": 0.5}
    assert "if_charged" not in result["serving"]
    printed = capsys.readouterr().out
    assert "30 a second on average (seed 3), at most 2 run at a time" in printed
    assert "20 µs a draft, 3 µs a learned token and 0.5 µs a prompt token are charged, learning and" in printed


def test_two_runs_differ_in_measured_times_alone(file, naive, tmp_path):
    arguments = ("--profile", "dense-8b-h100", "--arrivals", "trace", "--speed", "9")
    first, second = (result_of(file, tmp_path, *arguments)["serving"] for _ in range(2))
    assert first.pop("if_charged") != second.pop("if_charged")
    assert first == second


def test_measured_times_are_charged_when_asked_for(file, naive, tmp_path, capsys):
    arguments = ("--profile", "dense-8b-h100", "--arrivals", "closed", "--charge-measured")
    charged = result_of(file, tmp_path, *arguments)
    assert charged["config"]["charge_measured"] and min(charged["serving"]["charged_us"].values()) > 0
    assert "are charged, as measured in a replay before, all of it exposed" in capsys.readouterr().out
    plain = charged["serving"]["plain"]
    assert plain == result_of(file, tmp_path, *arguments[:-1])["serving"]["plain"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arrivals", "trace"], "--arrivals needs step times, by which its clock advances: give --cost or"),
        (["--arrivals", "bus", "--profile", "dense-8b-h100"], "arrivals: got 'bus', allowed closed, trace, poisson"),
        (["--arrivals", "poisson", "--profile", "dense-8b-h100"], "rate: missing, arrivals 'poisson' needs it"),
        (["--rate", "3"], "--rate has no effect without --arrivals: leave it out"),
        (["--prefill-chunk", "3"], "--prefill-chunk has no effect without --arrivals"),
        (["--no-prefix-cache"], "--no-prefix-cache has no effect without --arrivals"),
        (["--overlap"], "--overlap has no effect without --arrivals"),
        (["--draft-us", "3"], "--draft-us has no effect without --arrivals"),
        (["--charge-measured"], "--charge-measured has no effect without --arrivals"),
        (
            ["--arrivals", "closed", "--charge-measured", "--accept-us", "1", "--profile", "dense-8b-h100"],
            "--charge-measured: other times are given already",
        ),
        (
            ["--arrivals", "closed", "--exposed-us", "1", "--draft-us", "1", "--profile", "dense-8b-h100"],
            "cost charges exposed_us=1, so that drafting would count twice",
        ),
        (
            ["--arrivals", "closed", "--profile", "dense-8b-h100", "--report", "r.html", "--frontier"],
            "--frontier has no effect with --arrivals",
        ),
    ],
)
def test_wrong_input_is_one_line_and_status_2(file, arguments, message, capsys):
    assert main(["replay", file, "--drafter", "none", *arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("error: ") == 1 and message in printed.err


def test_prefill_beyond_what_was_measured_is_told(naive):
    known = CostModel.from_points([{"n_tokens": n, "batch": 1, "ms": 5.0 + n} for n in (1, 4)])
    result = run(made(), naive, Options(cost=known, max_draft=3, serving=Serving()))
    assert any(
        "steps of up to 7 tokens occur, step times custom are known up to 4" in line
        for line in served_caveats([result])
    )
    assert not any(
        "steps of up to" in line for line in served_caveats([run(made(), naive, Options(cost=COST, serving=Serving()))])
    )


def test_a_speedup_is_one_of_time_for_the_same_tokens(naive):
    closed = run(made(), naive, Options(cost=COST, serving=Serving()))
    numbers = closed["serving"]
    assert closed["modelled_speedup"] == pytest.approx(numbers["plain"]["seconds"] / numbers["speculating"]["seconds"])
    assert closed["modelled"]["tokens_per_second"] == numbers["speculating"]["tokens_per_busy_second"]
    # At a low rate the server idles, and requests take less time all the same.
    rare = run(made(), naive, Options(cost=COST, serving=Serving(arrivals="poisson", rate=0.5), concurrency=9))
    assert rare["serving"]["speculating"]["busy_share"] < 0.1
    assert rare["modelled_speedup"] == pytest.approx(closed["modelled_speedup"], rel=0.05)


def test_warm_up_takes_no_time(naive):
    trace = made(n=2)
    warm = make_trace([{"prompt": [9], "output": [*TEXT, 7]}])  # without a time stamp
    cold, warmed = (
        run(trace, naive, Options(cost=COST, serving=Serving(arrivals="trace")), warm_up=before)
        for before in ((), [warm])
    )
    assert warmed["serving"]["plain"] == cold["serving"]["plain"]
    assert warmed["accept_length"] > 1.0


def test_without_a_drafter_nothing_is_charged():
    result = run(made(), "none", Options(cost=COST, serving=Serving(draft_us=50.0)))
    assert result["serving"]["speculating"] == result["serving"]["plain"] and "if_charged" not in result["serving"]


def test_hidden_learning_comes_a_step_later():
    options = Options(cost=COST, serving=Serving(overlap=True))
    result = run(made(), "ngramspec", options)
    assert result["config"]["drafter_options"] == {"deferred": True}
    assert "drafter_options" not in run(made(), "rolling-hash", options)["config"]


def test_measuring_needs_a_clock(naive):
    with pytest.raises(ConfigError, match="charge_measured: has no effect without serving"):
        run(made(), naive, Options(cost=COST), charge_measured=True)
    with pytest.raises(ConfigError, match="charge_measured: other times are charged already"):
        run(made(), naive, Options(cost=COST, serving=Serving(draft_us=1.0)), charge_measured=True)


def test_a_report_says_how_long_requests_wait(naive, tmp_path):
    trace = made()
    options = Options(cost=COST, serving=Serving(arrivals="trace", draft_us=20.0), concurrency=4)
    runs = [run(trace, name, options) for name in (naive, "none")]
    write_report(runs, tmp_path / "r.html", traces=[])
    page = unescape((tmp_path / "r.html").read_text())
    assert "How long requests wait" in page and "naive is charged with 20 µs a draft" in page
    assert "Requests were sent at their recorded times, at most 4 running at a time, in modelled time" in page
    assert "Time of requests without speculation over that with it" in page


# A drafter's time that step times hold already


def recorded(cost, **spec):
    trace = made(n=1)
    spec = {"accept_lengths": [4, 3], "n_drafted": 4, "drafter": "EAGLE-3", **spec}
    fields = {name: getattr(trace, name) for name in trace.__dataclass_fields__}
    labels = type(trace.spec).of([json.dumps(spec)])
    return run(type(trace)(**(fields | {"spec": labels})), "recorded", Options(cost=cost))


def test_time_that_was_measured_with_the_steps_is_not_charged_again():
    with_eagle = parse(COST.describe() | {"includes_drafting": "EAGLE"})
    plain, held = recorded(COST, draft_us=800.0), recorded(with_eagle, draft_us=800.0)
    assert plain["config"]["recorded"]["charged_us"] == 800.0 == plain["config"]["cost"]["exposed_us"]
    assert held["config"]["recorded"]["charged_us"] == 0.0 == held["config"]["cost"]["exposed_us"]
    assert held["modelled_speedup"] > plain["modelled_speedup"]
    assert any("the 800 µs of drafting recorded are charged on top" in line for line in caveats([plain]))
    assert any(
        "the 800 µs of drafting recorded are not charged, step times line were" in line for line in caveats([held])
    )


def test_steps_that_hold_drafting_need_no_time_recorded():
    with_eagle = parse(COST.describe() | {"includes_drafting": "EAGLE"})
    assert recorded(COST)["not_recorded"] == ["time of drafting"]
    found = recorded(with_eagle)
    assert "not_recorded" not in found and "upper bound" not in found["modelled"]["label"]
    assert any("no time of drafting is charged" in line for line in caveats([found]))


def test_no_time_is_charged_on_top_of_steps_that_hold_drafting(naive):
    with_eagle = parse(COST.describe() | {"includes_drafting": "EAGLE"})
    with pytest.raises(
        ConfigError, match="exposed_us: got 30, but the verify points hold the time of drafting by EAGLE"
    ):
        with_eagle.with_exposed(30.0)
    with pytest.raises(ConfigError, match="cost holds the time of drafting by EAGLE, so that drafting would count"):
        Options(cost=with_eagle, serving=Serving(accept_us=3.0))
    assert "if_charged" not in run(made(), naive, Options(cost=with_eagle, serving=Serving()))["serving"]


def test_another_drafter_on_such_steps_is_warned_of(naive):
    with_eagle = parse(COST.describe() | {"includes_drafting": "EAGLE"})
    lines = caveats([run(made(), naive, Options(cost=with_eagle))])
    assert any("naive: step times line hold the time of drafting by EAGLE, in the place of" in line for line in lines)


def step(batch, width):
    return Step(
        batch=batch, n_tokens=batch * width, kv_tokens=9, ms=5.0 + batch * width, spread=0.0, prompt_tokens=9,
        output_tokens=99, tokens_per_second=1.0, busy=0.0,
    )  # fmt: skip


def test_a_calibration_says_what_drafted_while_it_measured():
    common = {"name": "m", "kind": "measured-gpu", "note": ""}
    plain = as_model([step(1, 1), step(2, 1)], **common)
    assert plain.includes_drafting == "" and "includes_drafting" not in plain.describe()
    eagle = as_model([step(1, 4)], drafter="EAGLE", add=plain, **common)
    assert eagle.includes_drafting == "EAGLE" and parse(eagle.describe()) == eagle
    again = as_model([step(1, 5)], drafter="EAGLE", add=eagle, **common)
    assert again.includes_drafting == "EAGLE"
    assert as_model([step(1, 6)], drafter="NGRAM", add=again, **common).includes_drafting == "EAGLE, NGRAM"
    with pytest.raises(ConfigError, match="includes_drafting: got 3, must be text"):
        parse(plain.describe() | {"includes_drafting": 3})
