"""A small drafter in plain Python that keeps the protocol, and the replay loop written as its definition reads."""

from collections import Counter

import numpy as np
from hypothesis import strategies as st

from ngramspec.draft import Draft, Reason, Source, Topology
from ngramspec.replay import Labels, Ragged, Trace, verify


def make_trace(rows, name="made"):
    """A trace from dicts with `prompt`, `output` and optionally session, turn, finish, eos, category, arrival."""
    none = Labels.of([None] * len(rows))
    return Trace(
        name=name,
        ids=tuple(str(i) for i in range(len(rows))),
        prompt=Ragged.of([row["prompt"] for row in rows]),
        output=Ragged.of([row["output"] for row in rows]),
        session=Labels.of(row.get("session") for row in rows),
        turn=np.array([row.get("turn", -1) for row in rows], np.int32),
        arrival=np.array([row.get("arrival", np.nan) for row in rows], np.float64),
        finish_reason=Labels.of(row.get("finish") for row in rows),
        category=Labels.of(row.get("category") for row in rows),
        eos=Ragged.of([row.get("eos", []) for row in rows]),
        sampling=none,
        spec=none,
    )


tokens = st.integers(0, 3)
rows = st.fixed_dictionaries(
    {
        "prompt": st.lists(tokens, max_size=6),
        "output": st.lists(tokens, max_size=9),
        "session": st.sampled_from([None, "a", "b"]),
        "turn": st.integers(-1, 2),
        "finish": st.sampled_from([None, "stop", "length"]),
        "eos": st.sampled_from([[], [3], [2, 3]]),
        "category": st.sampled_from([None, "x", "y"]),
    }
)
traces = st.lists(rows, min_size=1, max_size=7).map(make_trace)


class NaiveLookup:
    """What followed the last token in the request's session and in other requests' outputs, newest first."""

    name, nbytes = "naive", 0

    def __init__(self):
        self.running = {}  # id -> its slot, text, number of prompt tokens, sharing
        self.sessions = {}
        self.outputs = []  # texts with the number of tokens at their start that others may not see
        self.calls = Counter()

    def begin(self, request_id, prompt, *, session=None, tenant=None, share="outputs", max_tokens=None):
        assert request_id not in self.running
        slot = min(set(range(len(self.running) + 1)) - {r["slot"] for r in self.running.values()})
        text, left = [], [int(token) for token in prompt]
        before = self.sessions.setdefault(session, []) if session is not None else []
        self.running[request_id] = {"slot": slot, "text": text, "left": left, "before": list(before)}
        before.append(text)
        if share != "none":
            self.outputs.append((text, len(left) if share == "outputs" else 0))
        self.calls["begin"] += 1
        self.ingest(request_id, max_tokens)
        return slot

    def ingest(self, request_id, max_tokens=None):
        request = self.running[request_id]
        n = len(request["left"]) if max_tokens is None else max_tokens
        request["text"] += request["left"][:n]
        request["left"] = request["left"][n:]
        return len(request["left"])

    def draft(self, request_id, *, max_draft, topology="tree", min_prob=0.0, remaining=None):
        request = self.running[request_id]
        if max_draft == 0:
            return empty(Reason.BUDGET)
        if not request["text"]:
            return empty(Reason.TOO_SHORT)
        if remaining is not None and remaining <= 1:
            return empty(Reason.LENGTH_LIMIT)
        deepest = max_draft if remaining is None else remaining - 1
        own = [(text, 0) for text in [*request["before"], request["text"]]]
        others = [(text, start) for text, start in self.outputs if text is not request["text"]]
        fan_out = 1 if Topology.parse(topology) == Topology.CHAIN else 2
        nodes = []  # token, parent, path probability, source, depth
        at, last, depth, path = -1, request["text"][-1], 0, 1.0
        while True:
            if depth < deepest:
                found = [(token, Source.OWN) for token in followers(own, last)]
                found += [(token, Source.SHARED) for token in followers(others, last)]
                children = [(token, source) for i, (token, source) in enumerate(found) if token not in dict(found[:i])][
                    :fan_out
                ]
                for k, (token, source) in enumerate(children):
                    nodes.append((token, at, path * (0.625 if k == 0 else 0.25), source, depth + 1))
            at += 1
            if at >= len(nodes) or len(nodes) >= max_draft:
                break
            last, _, path, _, depth = nodes[at]
        nodes = nodes[:max_draft]
        kept = [node for node in nodes if node[2] >= min_prob]
        if not kept:
            return empty(Reason.BELOW_MIN if nodes else Reason.NO_MATCH)
        place = {nodes.index(node): i for i, node in enumerate(kept)}
        return Draft(
            np.array([node[0] for node in kept], np.int32),
            np.array([place.get(node[1], -1) for node in kept], np.int32),
            np.array([node[2] for node in kept], np.float32),
            np.array([node[3] for node in kept], np.int8),
            1,
            Reason.DRAFTED,
        )

    def accept(self, request_id, tokens):
        assert self.running[request_id]["left"] == []
        self.running[request_id]["text"] += [int(token) for token in tokens]
        self.calls["accept"] += 1

    def finish(self, request_id):
        del self.running[request_id]

    def _by_slot(self, slot):
        return next(name for name, request in self.running.items() if request["slot"] == slot)

    def draft_batch(self, slots, out, *, max_draft, topology="tree", min_prob=0.0, remaining=None):
        assert len(slots) == len(remaining)
        for i, slot in enumerate(slots):
            left = None if remaining[i] < 0 else int(remaining[i])
            draft = self.draft(
                self._by_slot(slot), max_draft=max_draft, topology=topology, min_prob=min_prob, remaining=left
            )
            n = len(draft)
            out.n_draft[i], out.reason[i], out.match_length[i] = n, draft.reason, draft.match_length
            out.tokens[i, :n], out.parents[i, :n] = draft.tokens, draft.parents
            out.path_q30[i, :n], out.sources[i, :n] = (
                (draft.probs.astype(float) * 2**30).astype(np.int32),
                draft.sources,
            )
            out.tokens[i, n:], out.parents[i, n:] = -7, -7  # undefined beyond n: must not be read

    def accept_batch(self, slots, tokens, offsets):
        assert len(offsets) == len(slots) + 1 and offsets[-1] == len(tokens)
        for i, slot in enumerate(slots):
            self.accept(self._by_slot(slot), tokens[offsets[i] : offsets[i + 1]])
        self.calls["accept_batch"] += 1

    def stats(self):
        return {"cached_tokens": sum(len(text) for text, _ in self.outputs)}


def empty(reason):
    nothing = np.zeros(0, np.int32)
    return Draft(nothing, nothing, np.zeros(0, np.float32), np.zeros(0, np.int8), 0, reason)


def followers(texts, last):
    for text, start in reversed(texts):
        for i in range(len(text) - 1, max(start, 1) - 1, -1):
            if text[i - 1] == last and i - 1 >= start:
                yield text[i]


def must_wait(trace, row, ended):
    """Whether an earlier turn of the row's session has not ended."""
    session = trace.session[row]
    mates = [other for other in range(len(trace)) if session is not None and trace.session[other] == session]
    by_turn = all(trace.turn[other] >= 0 for other in mates)
    key = (lambda other: (trace.turn[other], other)) if by_turn else (lambda other: other)
    return any(key(other) < key(row) and other not in ended for other in mates)


def naive_replay(trace, cache, options):
    """Counts of a replay, one request and one token at a time."""
    counts = {"rows": [Counter() for _ in range(len(trace))], "depth": Counter(), "source": Counter()}
    counts |= {"reason": Counter(), "nodes": [], "order": []}
    waiting, ended, running = list(range(len(trace))), set(), {}

    def end(row):
        cache.finish(str(row))
        ended.add(row)
        running.pop(row, None)

    while waiting or running:
        while len(running) < options.concurrency:
            row = next((row for row in waiting if not must_wait(trace, row, ended)), None)
            if row is None:
                break
            waiting.remove(row)
            counts["order"].append(row)
            cache.begin(str(row), trace.prompt[row], session=trace.session[row], share=options.share)
            eos = trace.eos[row].tolist() if options.eos_ids is None else options.eos_ids
            output = trace.output[row].tolist()[: options.max_tokens]
            first = verify([], [], output, eos_ids=eos)
            if output:
                cache.accept(str(row), first.emitted)
            running[row] = {"left": output[1:], "eos": eos, "n": 1}
            if first.ended:
                end(row)
        drafts = {}
        for row, request in running.items():
            drafts[row] = ask(cache, trace, row, request["n"], options)
        for row, draft in drafts.items():
            request = running[row]
            step = verify(draft.tokens, draft.parents, request["left"], eos_ids=request["eos"])
            judge(counts, row, draft, step, request)
            cache.accept(str(row), step.emitted)
            request["left"] = request["left"][len(step.emitted) :]
            request["n"] += len(step.emitted)
            if step.ended:
                end(row)
    return counts


def ask(cache, trace, row, n_emitted, options):
    """A draft for a request that has emitted so much, by a drafter that knows the limits an engine would know."""
    known = [options.max_tokens] if options.max_tokens else []
    known += [len(trace.output[row])] if trace.finish_reason[row] == "length" else []
    return cache.draft(
        str(row),
        max_draft=options.max_draft,
        topology=options.topology,
        min_prob=options.min_prob,
        remaining=min(known) - n_emitted if known else None,
    )


def judge(counts, row, draft, step, request):
    """Count one step."""
    left = next((i + 1 for i, t in enumerate(request["left"]) if t in request["eos"]), len(request["left"]))
    depths = draft.depths().tolist()
    judged = [i for i, depth in enumerate(depths) if depth <= left]
    counts["rows"][row] += Counter(
        steps=1, emitted=len(step.emitted), accepted=len(step.accepted), drafted=len(draft),
        with_draft=int(len(draft) > 0), unjudged=len(draft) - len(judged), verified=1 + len(draft),
    )  # fmt: skip
    counts["reason"][int(draft.reason)] += 1
    counts["depth"].update((depth, "steps") for depth in {depths[i] for i in judged})
    counts["depth"].update((depths[i], "accepted") for i in step.accepted)
    counts["source"].update((int(draft.sources[i]), "drafted") for i in judged)
    counts["source"].update((int(draft.sources[i]), "accepted") for i in step.accepted)
    for i in judged:
        parent = int(draft.parents[i])
        if parent == -1 or parent in step.accepted:
            given = 1.0 if parent == -1 else float(draft.probs[parent])
            counts["nodes"].append((float(draft.probs[i]) / given, i in step.accepted))
