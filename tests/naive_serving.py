"""The serving simulation written as its definition reads: every request looked at anew in every step."""

from collections import Counter

import numpy as np

from ngramspec.replay import verify
from tests.naive_replay import ask, judge


def earlier_turns(trace, row):
    """Rows of the same session that come before, in their order."""
    session = trace.session[row]
    mates = [other for other in range(len(trace)) if session is not None and trace.session[other] == session]
    by_turn = all(trace.turn[other] >= 0 for other in mates)
    key = (lambda other: (trace.turn[other], other)) if by_turn else (lambda other: other)
    return sorted((other for other in mates if key(other) < key(row)), key=key)


def arrivals(trace, serving):
    """Seconds at which each request would be sent if it waited for none."""
    if serving.arrivals == "trace":
        return [(at - min(trace.arrival)) / serving.speed for at in trace.arrival]
    if serving.arrivals == "poisson":
        uniform, at, found = np.random.Generator(np.random.PCG64(serving.seed)), 0.0, []
        for _ in range(len(trace)):
            at += -np.log1p(-uniform.random())
            found.append(at / serving.rate)
        return found
    return [0.0] * len(trace)


def in_kv_cache(trace, row, output_of, serving):
    """Tokens at the start of a prompt that the session's last turn left behind."""
    before = earlier_turns(trace, row)
    if not before or not serving.prefix_cache:
        return 0
    text = trace.prompt[before[-1]].tolist() + output_of(before[-1])
    prompt = trace.prompt[row].tolist()
    n = 0
    while n < min(len(text), len(prompt) - 1) and text[n] == prompt[n]:
        n += 1
    return n


def naive_serve(trace, cache, options):
    """When what happened, and what was counted; a cache of None decodes without speculation."""
    serving, cost = options.serving, options.step_cost
    us = (serving.draft_us or cost.exposed_us, serving.accept_us, serving.ingest_us) if cache else (0, 0, 0)
    rows = range(len(trace))
    eos = [trace.eos[row].tolist() if options.eos_ids is None else options.eos_ids for row in rows]

    def output_of(row):
        output = trace.output[row].tolist()[: options.max_tokens]
        ends = [i + 1 for i, token in enumerate(output) if token in eos[row]]
        return output[: ends[0]] if ends else output

    arrival = [round(at * 1e9) for at in arrivals(trace, serving)]
    requests = [
        {"state": "waiting", "left": output_of(row), "uncached": in_kv_cache(trace, row, output_of, serving)}
        for row in rows
    ]
    counts = {"rows": [Counter() for _ in rows], "depth": Counter(), "source": Counter()}
    counts |= {"reason": Counter(), "nodes": [], "steps": [], "idle": 0, "row_ms": [0.0 for _ in rows]}
    counts |= {"sent": [-1 for _ in rows], "first": [-1 for _ in rows], "ended": [-1 for _ in rows]}
    clock, learning, came = 0, 0, []

    def sent_at(row):
        """When a request is sent, if that is known already."""
        before = earlier_turns(trace, row)
        if any(requests[other]["state"] != "ended" for other in before):
            return None
        if serving.arrivals == "closed":
            return 0
        return max([arrival[row], *(counts["ended"][other] for other in before)])

    def end(row):
        requests[row]["state"] = "ended"
        counts["ended"][row] = clock
        came.remove(row)

    while any(request["state"] != "ended" for request in requests):
        waiting = [row for row in rows if requests[row]["state"] == "waiting" and sent_at(row) is not None]
        here = sorted((sent_at(row), row) for row in waiting if sent_at(row) <= clock)
        if here and len(came) < options.concurrency:
            sent, row = here[0]
            counts["sent"][row] = clock if serving.arrivals == "closed" else sent
            n_cached = requests[row].pop("uncached")
            requests[row] |= {"state": "prefill", "kv": n_cached, "cached": n_cached, "begun": False}
            came.append(row)
            continue
        if not came:
            at = min(sent_at(row) for row in waiting)
            counts["idle"] += at - clock
            clock, learning = at, max(0, learning - (at - clock))
            continue
        # What this step is made of.
        chunks, budget = [], serving.prefill_chunk
        for row in came:
            if requests[row]["state"] == "prefill":
                left = len(trace.prompt[row]) - requests[row]["kv"]
                piece = min(left, budget)
                if left and not piece:
                    break
                chunks.append((row, piece))
                budget -= piece
        decoding = [row for row in sorted(came, key=lambda row: requests[row].get("place", 0))
                    if requests[row]["state"] == "decode"]  # fmt: skip
        if options.shape == "sglang" and chunks:
            decoding = []
        kv_tokens = sum(requests[row]["kv"] for row in came)
        # Draft.
        drafts = {}
        for row in decoding if cache else []:
            drafts[row] = ask(cache, trace, row, requests[row]["n"], options)
        wide = options.max_draft if options.shape == "sglang" and cache else None
        computed = sum(1 + (wide if wide is not None else len(drafts.get(row, []))) for row in decoding)
        computed += sum(piece for _, piece in chunks)
        n_together = len(decoding) + len(chunks)
        forward = round(1e6 * cost.step_ms(computed, n_together, kv_tokens))
        # Run the model; prompts are ingested meanwhile.
        ingested = 0
        for row, piece in chunks:
            request = requests[row]
            request["kv"] += piece
            ingested += piece + (0 if request["begun"] else request["cached"])
            limit = piece if request["kv"] < len(trace.prompt[row]) else None
            if cache and request["begun"]:
                cache.ingest(str(row), limit)
            elif cache:
                cache.begin(
                    str(row), trace.prompt[row], session=trace.session[row], share=options.share, max_tokens=limit
                )
            request["begun"] = True
        # Learn what came out.
        learned, ending = 0, []
        for row in decoding:
            request, left = requests[row], requests[row]["left"]
            emitted = left[:1]
            if cache:
                step = verify(drafts[row].tokens, drafts[row].parents, left)
                judge(counts, row, drafts[row], step, {"left": left, "eos": []})
                emitted = step.emitted
                cache.accept(str(row), emitted)
            request["left"] = left[len(emitted) :]
            request["kv"] += len(emitted)
            request["n"] = request.get("n", 0) + len(emitted)
            learned += len(emitted)
            if not request["left"]:
                ending.append(row)
        if cache:
            for row in ending:
                cache.finish(str(row))
        firsts = []
        for row, _ in chunks:
            request = requests[row]
            if request["kv"] == len(trace.prompt[row]):
                first, request["left"] = request["left"][:1], request["left"][1:]
                request |= {"state": "decode", "n": len(first), "place": len(counts["steps"]) + 1}
                request["kv"] += len(first)
                learned += len(first)
                if cache and first:
                    cache.accept(str(row), first)
                if first:
                    firsts.append(row)
                if not request["left"]:
                    ending.append(row)
                    if cache:
                        cache.finish(str(row))
        # Time passes.
        draft, accept, ingest = (
            round(1000 * t * n) for t, n in zip(us, (len(decoding), learned, ingested), strict=True)
        )
        if serving.overlap:
            duration, learning = draft + max(forward, learning + ingest), accept
        else:
            duration = draft + forward + accept + ingest
        counts["steps"].append([clock, duration, forward, len(decoding), len(chunks), computed, learned, ingested])
        clock += duration
        for row in {*decoding, *(row for row, _ in chunks)}:
            counts["row_ms"][row] += duration / n_together / 1e6
        for row in firsts:
            counts["first"][row] = clock
        for row in ending:
            end(row)
    return counts | {"end": clock}
