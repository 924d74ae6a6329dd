"""Serve one set of workloads with the real engine and write what it said: run as a process of its own, once a variant.

SGLang loads plugins once a process, so that every variant (no speculation, built-in, ours, ours with a fault) is one
run of this file. Options of the engine come as JSON; the environment says what our plugin does.

    python -m tests.sglang.drive MODEL OUT.json '{"speculative_algorithm": "NGRAM"}' [short] [corpora] [gemma]
"""

import asyncio
import json
import sys
import time
from pathlib import Path

from tests.sglang import gemma
from tests.sglang.tiny_llama import EOS, VOCAB, stretch

ENGINE = {
    "device": "cpu",
    "dtype": "float32",  # so that close calls do not depend on the shape of a batch
    "disable_cuda_graph": True,
    "constrained_json_disable_any_whitespace": True,
    "skip_server_warmup": True,
    "mem_fraction_static": 0.3,
    "max_total_tokens": 4096,
    "max_running_requests": 4,
    "schedule_conservativeness": 0.1,  # let more in than there is room for in the end
    "chunked_prefill_size": 128,
    "log_level": "info",
}
#: The built-in corpus allocates its capacity at once; its default is 1.8 GB.
BUILT_IN = {"speculative_algorithm": "NGRAM", "speculative_ngram_capacity": 200_000}


def copying(start, n_before=VOCAB):
    """A prompt that ends where a stretch it holds began: the model goes on along that stretch, mostly.

    By default the stretch is the whole cycle, so that wherever a distraction leads, the way on is in the prompt.
    """
    return [*stretch(start, n_before), 7, 9, 300, *stretch(start, 4)]


def asking(max_new_tokens, **more):
    """Greedy sampling parameters."""
    return {"temperature": 0, "max_new_tokens": max_new_tokens, "ignore_eos": True} | more


def told(results):
    """Of each result, what variants are compared by."""
    results = results if isinstance(results, list) else [results]
    return [
        {
            "ids": result["output_ids"],
            "finish": result["meta_info"]["finish_reason"],
            "accept_length": result["meta_info"].get("spec_accept_length"),
            "verify_steps": result["meta_info"].get("spec_verify_ct"),
        }
        for result in results
    ]


def batch(engine, prompts, parameters, **more):
    """Serve prompts together."""
    return told(engine.generate(input_ids=prompts, sampling_params=parameters, **more))


def aborted(engine):
    """Two requests side by side; the first is aborted early, the second must not notice."""

    async def run():
        async def first():
            stream = await engine.async_generate(
                input_ids=copying(40, 150), sampling_params=asking(400), rid="doomed", stream=True
            )
            n = 0
            async for _ in stream:
                n += 1
                if n == 3:
                    engine.tokenizer_manager.abort_request(rid="doomed")
            return n

        async def second():
            return await engine.async_generate(input_ids=copying(450), sampling_params=asking(64), rid="lives")

        return await asyncio.gather(first(), second())

    return told(engine.loop.run_until_complete(run())[1])


def structured(engine):
    """Requests that a grammar holds to JSON, beside one that none does."""
    sizes = {"type": "array", "items": {"enum": [1, 22, 333]}}
    schema = {
        "type": "object",
        "properties": {"name": {"enum": ["left", "right"]}, "sizes": sizes},
        "required": ["name", "sizes"],
    }
    held = asking(60, json_schema=json.dumps(schema), ignore_eos=False)
    return batch(engine, [copying(start, 40) for start in (30, 330, 60)], [held, asking(60), held])


def flush(engine):
    """Empty the engine's caches, once its scheduler has put the last request away."""
    for _ in range(100):
        if engine.flush_cache().success:
            return
        time.sleep(0.1)
    raise TimeoutError("the engine is not idle")


class Numbers:
    """A tokenizer for documents that are numbers."""

    def encode(self, text, add_special_tokens=False):
        return [int(word) for word in text.split()]


def corpora(engine, call, **arguments):
    """Ask the engine about external corpora, as its HTTP endpoints do."""
    from sglang.srt.managers.io_struct import AddExternalCorpusReqInput

    manager = engine.tokenizer_manager
    manager.tokenizer, own = Numbers(), manager.tokenizer
    given = [AddExternalCorpusReqInput(**arguments)] if call == "add_external_corpus" else list(arguments.values())
    result = engine.loop.run_until_complete(getattr(manager, call)(*given))
    manager.tokenizer = own
    return {name: getattr(result, name) for name in ("success", "message")} | {
        "tokens": getattr(result, "corpus_token_counts", None) or getattr(result, "loaded_token_count", None)
    }


def with_corpora(engine):
    """What the endpoints answer, and what is served while a corpus of the whole cycle is loaded and afterwards."""
    words = " ".join(map(str, stretch(0, VOCAB)))
    answers = [
        corpora(engine, "add_external_corpus", corpus_id="cycle", documents=[words, "7 9 7 9"]),
        corpora(engine, "add_external_corpus", corpus_id="cycle", documents=["1 2 3"]),
        corpora(engine, "add_external_corpus", corpus_id="other", documents=["5 6 5 6"]),
        corpora(engine, "list_external_corpora"),
        corpora(engine, "remove_external_corpus", corpus_id="other"),
        corpora(engine, "remove_external_corpus", corpus_id="nothing"),
        corpora(engine, "list_external_corpora"),
    ]
    flush(engine)  # frozen text outlives it, and nothing else does
    time.sleep(1)  # what is left is put together anew
    return answers


def metrics():
    """Our metrics as a scrape of the server would show them: name and labels, and value."""
    from prometheus_client import CollectorRegistry, multiprocess

    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)
    return [
        [sample.name, sample.labels, sample.value]
        for family in registry.collect()
        for sample in family.samples
        if sample.name.startswith("ngramspec:")
    ]


def workloads(engine, short, loads):
    """Every workload in one fixed order; later ones meet the state that earlier ones left."""
    copied = [copying(start) for start in (5, 111, 222, 333)]
    said = {}
    if not short:
        # One at a time, so that a replay can keep the same schedule.
        said["alone"] = [batch(engine, copying(20 * i, 30 + 40 * i), asking(80))[0] for i in range(6)]
    said["copy"] = batch(engine, copied, asking(96))
    if short:
        return said
    said["plain"] = batch(engine, [stretch(start, 6) for start in (100, 140, 180, 220)], asking(64))
    said["again"] = batch(engine, copied, asking(96))
    lengths = [3, 17, 40, 120, 300, 9, 64, 5, 200, 1]
    said["mixed"] = batch(
        engine, [copying(10 * i, n) for i, n in enumerate(lengths)], [asking(8 + 11 * i) for i in range(len(lengths))]
    )
    said["aborted"] = aborted(engine)
    said["same_id"] = [
        *batch(engine, copying(280, 90), asking(32), rid="one"),
        *batch(engine, copying(390, 90), asking(32), rid="one"),
    ]
    said["stopped"] = batch(engine, copied[:2], asking(96, stop_token_ids=stretch(5, 30)[-1:]))
    said["structured"] = structured(engine)
    flush(engine)
    said["flushed"] = batch(engine, copied, asking(48))
    said["long"] = batch(engine, copying(70, 900), asking(64))
    # Together more than the pool holds, which the engine does not foresee: some are put back and resumed.
    far_from_end = stretch(EOS, 50)[5:45:10]
    said["retracted"] = batch(engine, [copying(start, 610) for start in far_from_end], asking(600, ignore_eos=False))
    flush(engine)
    if loads:
        said["corpora"] = with_corpora(engine)
    said["from_corpus"] = batch(engine, [stretch(start, 6) for start in (101, 141, 181, 221)], asking(64))
    flush(engine)
    return said


def real_text(engine, model):
    """Text of a real model: some requests one after the other, then all together, of which these come again."""
    texts = gemma.prompts(Path(model))
    said = {"alone": [batch(engine, texts[name], asking(48))[0] for name in ("copy", "prose")]}
    said["together"] = batch(engine, list(texts.values()), asking(48))
    flush(engine)  # with which the record is written
    return said


def main():
    model, out, options = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    import sglang

    engine = sglang.Engine(model_path=model, **(ENGINE | options))
    try:
        flags = sys.argv[4:]
        said = real_text(engine, model) if "gemma" in flags else workloads(engine, "short" in flags, "corpora" in flags)
        time.sleep(2)  # what is written beside serving is written
        if options.get("enable_metrics"):
            said["metrics"] = metrics()
    finally:
        engine.shutdown()
    out.write_text(json.dumps(said))


if __name__ == "__main__":
    main()
