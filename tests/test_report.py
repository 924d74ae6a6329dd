"""The report: what a reader sees in a browser, on a phone and on paper, and that its words follow from its numbers."""

import json
import os
import re

import numpy as np
import pytest

from ngramspec.cli import demo as demo_command
from ngramspec.cli import main
from ngramspec.draft import Draft
from ngramspec.drafting.cost import KINDS, CostModel
from ngramspec.errors import ConfigError, TraceError
from ngramspec.replay import Options, drafters, read, run, write
from ngramspec.replay.report import further, write_report
from ngramspec.replay.report.caveats import caveats
from ngramspec.replay.report.examples import drawn, watch
from ngramspec.replay.report.figure import Exhibit, kind_of
from ngramspec.replay.report.frontier import at_price, best_at, frontier
from ngramspec.replay.report.group import groups, settings
from ngramspec.replay.report.provenance import config_digest, trace_digest
from ngramspec.replay.report.recommendation import choices, headline, recommend
from tests.browser import Browser, find
from tests.naive_replay import NaiveLookup, make_trace

#: Names that break a page which does not escape them.
EVIL = "</script><script>document.title = 'broken'</script><b>bold"

COST = CostModel.from_linear(10.0, 0.2, name="made", note="a line")

#: Of the figures that Plotly draws, those that a page with everything has.
DRAWN = [
    *("speed-up", "accept-length", "speed-up-by-batch", "speed-up-by-category", "by-category", "frontier"),
    *("reliability", "positions", "sources", "reasons", "time", "requests"),
]

#: Marks of each drawn figure, and how many of them have a size.
MARKS = """[...document.querySelectorAll("figure")].filter(f => f.querySelector(".plotly-graph-div")).map(f => {
  const marks = [...f.querySelectorAll(".trace path, .trace .point path, .points path")];
  const seen = marks.filter(m => { const b = m.getBoundingClientRect(); return b.width + b.height > 0; });
  const box = f.querySelector(".main-svg").getBoundingClientRect();
  return [f.dataset.key, seen.length, box.width > 250 && box.height > 100];
})"""


def rows():
    """Copies of the prompt, noise, and sessions whose later turns repeat the earlier ones."""
    random = np.random.default_rng(3)
    made = []
    for i in range(24):
        copy = [*random.integers(1, 90, 20).tolist(), i]
        noise = random.integers(1, 90, 12).tolist()
        output = copy[4:18] * 2 if i % 2 else noise
        category = ("copy", "noise")[not i % 2] if i else EVIL
        made.append({"prompt": copy, "output": [*output, 99], "category": category, "session": str(i // 2),
                     "turn": i % 2, "eos": [99]})  # fmt: skip
    return made


@pytest.fixture(scope="module")
def trace():
    return make_trace(rows(), name=f"made {EVIL}")


@pytest.fixture(scope="module")
def runs(trace):
    """Two drafters and none, priced, with all that `--frontier` adds."""
    options = Options(max_draft=4, calibration=True, cost=COST)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ngramspec", "naive"):
            patch.setitem(drafters.DRAFTERS, name, lambda facts: NaiveLookup())
        names = ["ngramspec", "naive", "none"]
        made = [run(trace, name, options) for name in names]
        made += [run(trace, name, other) for name, other in further([trace], names, options)]
    return json.loads(json.dumps(made))  # as they are read back from a file


@pytest.fixture
def naive(monkeypatch):
    for name in ("ngramspec", "naive"):
        monkeypatch.setitem(drafters.DRAFTERS, name, lambda facts: NaiveLookup())


@pytest.fixture(scope="module")
def page(trace, runs, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(drafters.DRAFTERS, "ngramspec", lambda facts: NaiveLookup())
        write_report(runs, path, traces=[trace], command=f"ngramspec replay {EVIL}")
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if find() is None:
        message = "no Chromium found: install the package chromium, or let CHROMIUM name one"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    with Browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.mark.parametrize(("width", "phone"), [(1200, False), (360, True)], ids=["desktop", "phone"])
def test_every_figure_is_drawn_without_complaint_or_request(browser, page, width, phone):
    browser.open(page.as_uri(), width, phone=phone)
    assert browser.complaints() == []
    assert browser.requests() == [page.as_uri()]
    marks = browser.run(MARKS)
    assert [key for key, _, _ in marks] == DRAWN
    assert [key for key, n, large in marks if n == 0 or not large] == []


@pytest.mark.parametrize(("width", "phone"), [(1200, False), (360, True)], ids=["desktop", "phone"])
def test_nothing_is_wider_than_the_window(browser, page, width, phone):
    browser.open(page.as_uri(), width, phone=phone)
    assert browser.run("document.documentElement.scrollWidth") <= width
    assert browser.run("[...document.querySelectorAll('table')].filter(t => t.scrollWidth > t.clientWidth).length") == 0


def test_names_cannot_become_markup(browser, page):
    browser.open(page.as_uri(), 1200)
    assert browser.run("document.title") != "broken"
    assert browser.run("[...document.querySelectorAll('b')].length") == 0
    assert "</script><script>document.title" in browser.run("document.querySelector('dd code').textContent")


def test_advice_comes_first_and_caveats_are_there(browser, page):
    browser.open(page.as_uri(), 1200)
    text = browser.run("document.querySelector('main').innerText")
    order = [
        "tokens a verify step",
        "Settings: ngramspec",
        "Accept length by drafter",
        "What to know",
        "How it was made",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_paper_gets_figures_of_its_own_width(browser, page):
    browser.open(page.as_uri(), 1200)
    sizes = """[...document.querySelectorAll('.plotly-graph-div')].map(
        d => [d.querySelector('.main-svg').getBoundingClientRect().width, d.parentElement.offsetHeight])"""
    before = browser.run(sizes)
    assert browser.paper().startswith(b"%PDF")
    browser.run("dispatchEvent(new Event('beforeprint'))")
    printed = browser.run(sizes)
    assert {width for width, _ in printed} == {660}
    assert sum(height for _, height in printed) < 0.9 * sum(height for _, height in before)
    browser.run("dispatchEvent(new Event('afterprint'))")
    assert browser.run(sizes) == before


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("fetch('http://127.0.0.1:9/x')", "Content Security Policy"),
        ("new Image().src = 'http://127.0.0.1:9/x.png'", "Content Security Policy"),
        ("console.error('wrong')", "wrong"),
        ("nothing.at.all", "nothing is not defined"),
    ],
)
def test_the_check_sees_errors_and_the_page_refuses_to_fetch(browser, page, tmp_path, script, message):
    bad = tmp_path / "bad.html"
    bad.write_text(page.read_text().replace("</body>", f"<script>{script}</script></body>"))
    browser.open(bad.as_uri(), 1200)
    assert any(message in complaint for complaint in browser.complaints())


def test_the_check_sees_requests(browser, page, tmp_path):
    bad = tmp_path / "bad.html"
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
    bad.write_text(text.replace("</main>", "<img src='http://127.0.0.1:9/x.png'></main>"))
    browser.open(bad.as_uri(), 1200)
    assert "http://127.0.0.1:9/x.png" in browser.requests()


def test_every_figure_names_its_kind(page):
    figures = re.findall(r'<figure data-key="([^"]*)" data-kind="([^"]*)">', page.read_text())
    assert len(figures) == len(DRAWN) + 2 and all(kind in KINDS for _, kind in figures)
    assert {key for key, kind in figures if kind == "modelled"} == {
        "speed-up", "speed-up-by-batch", "speed-up-by-category"
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["", "guessed", "measured"])
def test_a_figure_without_a_known_kind_is_refused(kind, runs, trace, tmp_path):
    with pytest.raises(ConfigError, match="allowed measured-gpu, measured-cpu, modelled, read"):
        Exhibit("x", "X", kind, "")
    with pytest.raises(ConfigError, match="allowed measured-gpu"):
        write_report([runs[0] | {"kind": kind}], tmp_path / "r.html")
    assert not (tmp_path / "r.html").exists()


def test_runs_of_two_kinds_share_no_figure(runs):
    with pytest.raises(ConfigError, match="measured-cpu, read"):
        kind_of([runs[0], runs[1] | {"kind": "read"}])


def test_plotly_is_there_once_and_the_same_input_gives_the_same_bytes(page, trace, runs, tmp_path, naive):
    assert page.read_text().count("plotly.js v") == 1
    write_report(runs, tmp_path / "again.html", traces=[trace], command=f"ngramspec replay {EVIL}")
    assert (tmp_path / "again.html").read_bytes() == page.read_bytes()


def test_a_report_of_several_traces_has_a_chapter_each(browser, trace, runs, tmp_path, naive):
    second = [one | {"trace": "second"} for one in runs]
    write_report([*runs, *second], tmp_path / "two.html", traces=[trace])
    browser.open((tmp_path / "two.html").as_uri(), 1200)
    assert browser.complaints() == []
    marks = browser.run(MARKS)
    assert [key for key, _, _ in marks] == [*DRAWN, *(key for key in DRAWN if key != "requests")]
    assert all(n and large for _, n, large in marks)
    assert browser.run("document.querySelectorAll('h1').length") == 3


def test_a_report_without_a_step_says_so(tmp_path):
    made = run(make_trace([{"prompt": [1], "output": [2]}], name="short"), "none", Options())
    write_report([made], tmp_path / "r.html")
    assert "This trace says nothing about speculation" in (tmp_path / "r.html").read_text()


def test_nothing_to_report_or_nowhere_to_write(runs, tmp_path):
    with pytest.raises(TraceError, match="got no runs"):
        write_report([], tmp_path / "r.html")
    with pytest.raises(TraceError, match="cannot be written"):
        write_report([runs[2]], tmp_path / "no" / "r.html")


def made(drafter="d", length=2.0, verified=40, interval=None, **config):
    base = {"topology": "tree", "max_draft": 3, "min_prob": 0.0, "shape": "ideal", "concurrency": 1}
    return {
        "drafter": drafter, "trace": "t", "accept_length": length, "accept_length_interval_95": interval,
        "steps": 10, "verified_tokens": verified, "drafted_tokens": verified - 10, "draft_us_per_step": 3.0,
        "by_category": {}, "config": base | config,
    }  # fmt: skip


def test_the_best_budget_depends_on_what_verification_costs():
    group = groups([made(), made(length=3.0, verified=100, max_draft=9), made(length=1.0, drafter="none")], [])[0]
    assert [one["config"]["max_draft"] for one in group.runs] == [3, 3]  # the first of each drafter is compared
    small, large = group.all_runs[0], group.all_runs[1]
    assert at_price(large, 0.1) == pytest.approx(3.0 / (1 + 0.1 * 9))
    assert best_at(group, 0.01) is large and best_at(group, 0.2) is small and best_at(group, 0.5) is None
    said = " ".join(choices(group))
    assert "0.5 % of a plain step, take d, tree, max_draft 9: modelled 2.87 times" in said
    assert "From 50 % on, nothing replayed here pays." in said


@pytest.mark.parametrize(
    ("runs", "title", "sentence"),
    [
        ([made(length=1.0)], "Do not enable", "do not enable"),
        ([made(length=1.3, interval=[0.99, 1.5])], "Do not enable", "do not enable"),
        ([made(length=None)], "says nothing", "says nothing"),
        ([made(length=2.5)], "Enable d if a verify step takes less than 2.50 plain steps", "60 % fewer steps"),
        ([made() | {"modelled_speedup": 1.5}], "Enable d: modelled 1.50 times as fast", "modelled 1.50 times as fast"),
        ([made() | {"modelled_speedup": 0.9}], "Do not enable", "at this cost: the best drafter, d, emits 2.00"),
        (
            [made() | {"modelled_speedup": 1.2, "modelled_speedup_interval_95": [0.9, 1.4]}],
            "Do not enable",
            "modelled 1.20 times (95 % interval 0.90 to 1.40) as fast as decoding without",
        ),
    ],
)
def test_headline_and_advice_follow_from_the_numbers(runs, title, sentence):
    assert title in headline(runs) and sentence in " ".join(recommend(runs))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "tree, max_draft 3"),
        ({"min_prob": 0.1, "topology": "chain"}, "chain, max_draft 3, min_prob 0.1"),
        ({"budget": {"mode": "cost"}}, "tree, max_draft 3, sized by cost"),
        ({"budget": {"mode": "threshold", "min_prob": 0.2}, "shape": "sglang"}, "sized by probability 0.2, as sglang"),
    ],
)
def test_settings_are_named(config, words):
    assert words in settings(made(**config))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({}, "started cold"),
        ({}, "3 of 24 requests are marked as re-tokenised"),
        ({}, "numerics change with the shape of a batch"),
        ({}, "Uncalibrated"),
        ({"cost": CostModel.from_two(82, 30).describe()}, "until measured and added."),
        ({"share": "none"}, "the order of requests does not matter"),
        ({"concurrency": 8}, "8 requests at a time"),
        ({"warm_up": ["other.jsonl"]}, "had first seen other.jsonl"),
    ],
)
def test_caveats_apply_to_the_trace_and_the_runs(runs, change, sentence):
    first = runs[0] | {"config": runs[0]["config"] | change, "retokenised_rows": 3}
    assert any(sentence in text for text in caveats(groups([first], [])[0]))


def test_what_the_caller_knows_takes_the_place_of_what_is_unknown(runs, trace):
    group = groups(runs, [trace])[0]
    said = " ".join(caveats(group, "Recorded by hand."))
    assert "Recorded by hand." in said and "re-tokenised" not in said
    assert "24 requests are few" in said


def test_examples_are_the_best_and_worst_requests_and_a_step_of_each(trace, runs, naive):
    found = watch(trace, runs[0])
    assert found.per_row[:, 1].sum() == runs[0]["emitted_tokens"]
    lengths = found.per_row[:, 1] / found.per_row[:, 0]
    long_enough = lengths[found.per_row[:, 0] >= 8]
    assert found.best[0].accept_length == long_enough.max() and found.worst[0].accept_length == long_enough.min()
    best, worst = found.best[0], found.worst[0]
    assert best.lines and sum(line.accepted for line in best.lines) == int(best.what.split()[-2]) - 1
    assert not any(line.accepted for line in worst.lines)


def test_the_accepted_path_is_marked_in_the_drawing():
    draft = Draft(np.array([5, 6, 7, 8], np.int32), np.array([-1, -1, 1, 0], np.int32), np.ones(4, np.float32))
    lines = drawn(draft, np.array([6, 7, 1], np.int32), decode=lambda ids: f"<{ids[0]}>")
    shown = [(re.search("[0-9]", line.text)[0], line.accepted) for line in lines]
    assert shown == [("5", False), ("8", False), ("6", True), ("7", True)]
    assert "'<6>'" in lines[2].text


def test_digests_are_of_the_content(trace, tmp_path):
    write(trace, tmp_path / "a.jsonl")
    write(trace, tmp_path / "a.npz")
    one, other = read(tmp_path / "a.jsonl"), read(tmp_path / "a.npz")
    assert trace_digest(one) == trace_digest(other) == trace_digest(trace)
    assert trace_digest(trace.select(range(5))) != trace_digest(trace)
    assert config_digest(made()) != config_digest(made(max_draft=4)) != config_digest(made("e"))


def test_batch_sizes_stay_within_what_a_trace_can_fill(trace):
    options = Options(max_draft=4, cost=COST)
    plain = further([trace], ["a", "none"], Options(max_draft=4))
    assert {name for name, _ in plain} == {"a"} and {other.concurrency for _, other in plain} == {1}
    assert [other.concurrency for _, other in further([trace], ["a"], options)][-2:] == [2, 4]  # 12 sessions


def test_replay_writes_a_report_with_the_command_that_made_it(trace, tmp_path, capsys, naive):
    write(trace, tmp_path / "t.jsonl")
    out = tmp_path / "r.html"
    assert (
        main(["replay", str(tmp_path / "t.jsonl"), "--drafter", "naive,none", "--report", str(out), "--frontier"]) == 0
    )
    assert f"report: {out}" in capsys.readouterr().out
    text = out.read_text()
    assert "ngramspec replay" in text and "--drafter naive,none --report" in text
    assert 'data-key="reliability"' in text and 'data-key="prices"' in text
    assert trace_digest(read(tmp_path / "t.jsonl")) in text


def test_a_frontier_of_one_point_each_says_how_to_get_more(runs):
    (whole,) = groups(runs, [])
    (alone,) = groups(runs[:2], [])
    assert [frontier(group).caption.endswith("--frontier adds others.") for group in (whole, alone)] == [False, True]


def test_frontier_needs_a_report(trace, tmp_path, capsys):
    write(trace, tmp_path / "t.jsonl")
    assert main(["replay", str(tmp_path / "t.jsonl"), "--frontier"]) == 2
    assert "--frontier has no effect without --report" in capsys.readouterr().err


def test_demo_writes_a_report_on_the_sample(trace, tmp_path, monkeypatch, naive, capsys):
    monkeypatch.setattr(demo_command, "sample", lambda: trace)
    monkeypatch.setattr(demo_command, "DRAFTERS", ["naive", "none"])
    assert main(["demo", "--report", str(tmp_path / "r.html")]) == 0
    text = (tmp_path / "r.html").read_text()
    assert 'data-key="speed-up-by-batch"' in text and "Gemma 3 270M" in text and "dense-8b-h100" in text
