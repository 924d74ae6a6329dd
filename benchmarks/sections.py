"""The sections of the page, each a function from a result to Markdown. The paragraph above a table names its kind."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.drafters import DRAFTERS
from benchmarks.frontier import NODES
from benchmarks.plots import PLOTS
from benchmarks.targets import OURS, targets


def number(value: float | None, digits: int = 1) -> str:
    """A cell; a dash for None."""
    return "–" if value is None else f"{value:,.{digits}f}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A Markdown table, its first `left` columns text."""
    rule = ["---"] * left + ["--:"] * (len(heads) - left)
    return "\n".join("| " + " | ".join(row) + " |" for row in (heads, rule, *rows)) + "\n\n"


def plot(name: str) -> str:
    return f"![{PLOTS[name]}](plots/{name}.svg)\n\n"


def taken(result: dict[str, Any]) -> str:
    """Date, machine and kind of a result, for the paragraph above its table."""
    machine = result["machine"]
    load = machine["load_average"][0]
    where = f"{machine['cpu']}, {machine['cores']} cores, load {load} at the start"
    return f"Kind: {result['kind']}, {machine['date']}, {where}."


def of_targets(results: dict[str, Any]) -> str:
    """What was to be reached, and whether it is."""
    found = targets(results)
    if not found:
        return ""
    rows = [
        [t.what, t.ours, t.rival, f"{t.ratio:.2f}", f"{t.needed:.2f}", "met" if t.met else "**not met**"] for t in found
    ]
    about = (
        "Kind: measured-cpu. A ratio is ours over the rival's, or the other way round for costs: higher is better. A "
        "whole step is everything that the drafter does for the requests served, by request and step: draft, learn "
        "what was emitted, take prompts in, finish.\n\n"
    )
    return "## Targets\n\n" + about + table(["target", "ours", "rival", "ratio", "needed", ""], rows)


def of_frontier(result: dict[str, Any]) -> str:
    """Accept lengths at equal numbers of drafted tokens."""
    traces = result["traces"]
    rows = []
    for name, entry in traces.items():
        row = [name, str(entry["requests"])]
        for nodes in NODES:
            at = entry["at"][str(nodes)]
            best = at["accept_length"][at["strongest_rival"]]
            row.append(f"**{at['accept_length'][OURS]:.2f}**, {best:.2f} {at['strongest_rival']}")
        rows.append(row)
    sample = traces["sample"]["at"]
    by_rival = [
        [one, *(number(sample[str(nodes)]["accept_length"][one], 3) for nodes in NODES)]
        for one in sample[str(NODES[0])]["accept_length"]
    ]
    heads = [f"{nodes} tokens" for nodes in NODES]
    return (
        "## Accept length at equal verified tokens\n\n"
        "Tokens emitted a verify step against drafted tokens a step. Every drafter is taken at its best of many "
        "settings, its defaults among them, mixed linearly; one that cannot draft so many keeps its best at fewer. "
        "Sequential replay, cold start, outputs shared. Rivals are re-implementations that draft what the released "
        "packages draft (below); `vllm-suffix-adaptive` is vLLM's main branch as read, of which there is no release. "
        "SGLang pads its drafts to a fixed width; only real tokens are counted here, which flatters it.\n\n"
        + plot("frontier")
        + f"{taken(result)} The bundled sample:\n\n"
        + table(["drafter", *heads], by_rival)
        + f"{taken(result)} Ours in bold, then the strongest rival, by trace:\n\n"
        + table(["trace", "requests", *heads], rows, left=1)
    )


def of_cost(result: dict[str, Any]) -> str:
    """Steps by batch size and trace."""
    batches = result["batches"]
    sample = [name for name in batches if name.startswith("sample")]
    others = [name for name in batches if not name.startswith("sample")]
    parts = ("draft_us", "learn_us", "step_us", "step_p99_us", "whole_us")
    detail = "sample, batch 32" if "sample, batch 32" in batches else sample[-1]
    heads = ["drafter", "version", "draft", "learn"]
    rows = [
        [
            one,
            result["versions"][one],
            *(number(entry[part]) for part in parts),
            *(number(entry[part] / entry["request_steps"]) for part in ("drafted_tokens", "accepted_tokens")),
        ]
        for one, entry in batches[detail].items()
    ]
    ours = batches[detail][OURS]
    shares = [100 * ours[part] / ours["whole_us"] for part in ("draft_us", "learn_us")]
    text = (
        "## What a step costs\n\n"
        "Work that a drafter leaves to a thread counts, memory is warm, garbage collection is off. *Drafted* and "
        "*accepted* are tokens a request-step; *accepted* is how many drafted tokens the record goes on with, and "
        "a run in which their sum is not what `expected.json` says fails.\n\n"
        + plot("steps")
        + f"{served(result)} Of our whole step drafting takes {shares[0]:.0f} %, learning {shares[1]:.0f} %, prompts "
        f"and ends the rest. {detail[0].upper()}{detail[1:]}:\n\n"
        + table([*heads, "draft + learn", "99 %", "whole", "drafted", "accepted"], rows, left=2)
    )
    heads = [name.rpartition(" ")[2] for name in sample]
    rows = [[one, *(number(batches[name].get(one, {}).get("whole_us")) for name in sample)] for one in DRAFTERS]
    text += f"{served(result)} Whole step by batch size, the sample:\n\n" + table(["drafter", *heads], rows)
    if others:
        heads = [name.partition(",")[0] for name in others]
        rows = [[one, *(number(batches[name].get(one, {}).get("whole_us")) for name in others)] for one in DRAFTERS]
        text += f"{served(result)} Whole step at batch 32, the beginning of other traces:\n\n"
        text += table(["drafter", *heads], rows)
    return text


def served(result: dict[str, Any]) -> str:
    """How costs were taken."""
    return (
        f"{taken(result)} µs of CPU a request-step, least of {result['repeats']} interleaved repeats; all drafters "
        f"serve the same requests, {result['tokens_a_step']} tokens emitted a step whatever was drafted."
    )


def of_contexts(result: dict[str, Any]) -> str:
    """Steps by length of the context."""
    contexts = result["contexts"]
    heads = [f"{int(name.split()[1]):,}" for name in contexts]
    last = list(contexts.values())[-1]
    rows = [
        [
            one,
            *(number(entry.get(one, {}).get("step_us")) for entry in contexts.values()),
            number(last.get(one, {}).get("ingest_us_per_prompt_token"), 3),
        ]
        for one in DRAFTERS
    ]
    return (
        "## By length of the context\n\n"
        + plot("contexts")
        + f"{served(result)} Draft and learn at batch 1 by tokens of the request's own context, and µs a prompt token "
        "to take the longest in:\n\n" + table(["drafter", *heads, "a prompt token"], rows)
    )


def of_cached(result: dict[str, Any]) -> str:
    """Steps and memory by tokens in the cache."""
    sizes = result["cached"]
    heads = [f"{int(n):,} cached" for n in sizes]
    names = [one for one in DRAFTERS if any(one in entry for entry in sizes.values())]

    def rows(part: str, digits: int = 1) -> list[list[str]]:
        return [[one, *(number(sizes[n].get(one, {}).get(part), digits) for n in sizes)] for one in names]

    limits = {
        one: entry["not_measured"] for size in sizes.values() for one, entry in size.items() if "not_measured" in entry
    }
    told = "".join(f"- {one} is not measured beyond: {reason}.\n" for one, reason in limits.items())
    last = list(sizes)[-1]
    buffers = [
        [one, *(number(sizes[n].get(one, {}).get("buffer_bytes_per_token")) for n in sizes)]
        for one in names
        if "buffer_bytes_per_token" in sizes[last].get(one, {})
    ]
    head = taken(result)
    return (
        "## Beside a full cache\n\n"
        "Finished outputs of other requests are in the cache before the sample is served at batch 32; ours evict while "
        "they serve, since their buffer is full. Each run has a process of its own.\n\n"
        + plot("cached")
        + f"{head} Whole step, µs of CPU a request-step:\n\n"
        + table(["drafter", *heads], rows("whole_us"))
        + f"{head} Draft and learn, µs of CPU a request-step:\n\n"
        + table(["drafter", *heads], rows("step_us"))
        + f"{head} µs a token to take in finished outputs of 400 tokens in one call each:\n\n"
        + table(["drafter", *heads], rows("fill_us_per_token", 2))
        + f"{head} Resident bytes a cached token:\n\n"
        + table(["drafter", *heads], rows("resident_bytes_per_token", 0))
        + f"{head} Size of our buffers in bytes a token, known before they are allocated:\n\n"
        + table(["drafter", *heads], buffers)
        + (told + "\n" if told else "")
    )


def of_behind(result: dict[str, Any]) -> str:
    """Steps behind SGLang."""
    text = (
        "## Behind SGLang\n\n"
        "Everything that the plugin does in a scheduler's step (catching up with the engine's records, drafts, rows "
        f"and masks, learning), {result['tokens_a_step']} tokens a request and step, beside the calls of SGLang's "
        f"corpus ({result['version']}) alone, without the lists that its worker makes for them. *Waits*: what of ours "
        "the model waits for, the median, and how much of it are no look-ups; the rest runs while the model does. "
        "Prompts and ends of requests are left out. A million cached tokens fill the ten million nodes that SGLang's "
        "corpus has by default, so that it evicts from then on.\n\n"
    )
    heads = ["batch", "ours", "ours, C core", "SGLang", "SGLang over ours", "waits", "of that no look-ups"]
    for n_cached, steps in result["steps"].items():
        rows = [
            [
                batch,
                *(number(at[name]["step_us"], 0) for name in heads[1:4]),
                number(at["SGLang"]["step_us"] / at["ours"]["step_us"]),
                *(number(at["ours"][part], 0) for part in ("exposed_us", "exposed_beside_look_ups_us")),
            ]
            for batch, at in steps.items()
        ]
        state = f"beside {int(n_cached):,} cached tokens" if int(n_cached) else "with an empty cache"
        text += f"{taken(result)} µs of CPU a step of the batch, {state}:\n\n" + table(heads, rows)
    arrival = result["arrival"]["numba"]
    return text + (
        f"Kind: {result['kind']}. A prompt of {result['arrival']['prompt_tokens']:,} tokens that arrives beside eight "
        f"running requests: in the steps after it the model waits {arrival['arrival_ms']:.2f} ms for our part, "
        f"{arrival['usual_ms']:.2f} ms in others (medians); {arrival['beside_ms']:.1f} ms more pass while the model "
        "reads the prompt.\n\n"
    )


def of_startup(result: dict[str, Any]) -> str:
    """Before the first draft."""
    rows = [
        [one, number(entry.get("again_cpu_s"), 2), number(entry.get("first_cpu_s"), 2)]
        for one, entry in result["starts"].items()
    ]
    return (
        "## Start-up\n\n"
        f"{taken(result)} CPU seconds of a new process up to its first draft, Python and numpy "
        f"({result['python_and_numpy_cpu_s']:.2f} s) and compilers included. *First*: nothing compiled yet. Ours "
        "compile their kernels once a machine and version; SGLang's corpus is compiled by its wheel at first use; "
        "vLLM's proposer is compiled at every start; llama.cpp's are compiled with a server, here at every start.\n\n"
        + table(["drafter", "again", "first"], rows)
    )


def of_parity(result: dict[str, Any]) -> str:
    """How the re-implemented rules compare with the packages."""
    rows: dict[tuple[str, str, str], list[int]] = {}
    for one in result["results"]:
        counts = rows.setdefault((one["rule"], one["package"], one["version"]), [0, 0])
        counts[0] += one["steps"]
        counts[1] += one["different"]
    return (
        "## Re-implemented rules against the released packages\n\n"
        f"Kind: {result['kind']}, {result['date']}. Drafts compared one by one over several settings, traces and "
        "numbers of concurrent requests (`python -m benchmarks.parity`):\n\n"
        + table(
            ["rule", "package", "version", "drafts", "different"],
            [[*key, f"{steps:,}", f"{different:,}"] for key, (steps, different) in rows.items()],
            left=3,
        )
    )


def of_replay(result: dict[str, Any]) -> str:
    """How fast replays are."""
    rows = []
    for trace, entry in result["traces"].items():
        for one, speeds in entry.items():
            at = [speeds[key]["emitted_tokens_per_s"] for key in ("concurrency_1", "concurrency_32")]
            rows.append([trace, one, *(f"{value:,}" for value in at)])
    return (
        "## Replay speed\n\n"
        f"{taken(result)} Emitted tokens a second of one core, the whole replay loop counted:\n\n"
        + table(["trace", "drafter", "one request at a time", "32 at a time"], rows, left=2)
    )


def of_notes(results: dict[str, Any]) -> str:
    """What is fair and unfair about the numbers of each drafter, and who is missing."""
    lines = [f"- **{name}** ({m.package}): {m.note}\n" for name, m in DRAFTERS.items()]
    missing = {
        one: why
        for key in ("cost", "cached", "startup")
        for one, why in results.get(key, {}).get("missing", {}).items()
    }
    absent = [f"- **{one}** is missing: {why}\n" for one, why in missing.items()]
    return "## Notes on fairness\n\n" + "".join([*lines, *absent]) + "\n"
