"""Serve one set of workloads with the real engine and write what it said: run as a process of its own, once a variant.

SGLang loads plugins once a process, so that every variant (no speculation, built-in, ours, ours with a fault) is one
run of this file. Options of the engine come as JSON; the environment says what our plugin does.

    python -m tests.sglang.drive MODEL OUT.json '{"speculative_algorithm": "NGRAM"}' [short]
"""

import asyncio
import json
import sys
import time
from pathlib import Path

from tests.sglang.tiny_llama import VOCAB, stretch

ENGINE = {
    "device": "cpu",
    "dtype": "float32",  # so that close calls do not depend on the shape of a batch
    "disable_cuda_graph": True,
    "skip_server_warmup": True,
    "skip_tokenizer_init": True,
    "mem_fraction_static": 0.3,
    "max_total_tokens": 4096,
    "max_running_requests": 4,
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


def flush(engine):
    """Empty the engine's caches, once its scheduler has put the last request away."""
    for _ in range(100):
        if engine.flush_cache().success:
            return
        time.sleep(0.1)
    raise TimeoutError("the engine is not idle")


def workloads(engine, short):
    """Every workload in one fixed order; later ones meet the state that earlier ones left."""
    copied = [copying(start) for start in (5, 111, 222, 333)]
    said = {"copy": batch(engine, copied, asking(96))}
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
    flush(engine)
    said["flushed"] = batch(engine, copied, asking(48))
    said["long"] = batch(engine, copying(70, 900), asking(64))
    return said


def main():
    model, out, options = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
    import sglang

    engine = sglang.Engine(model_path=model, **(ENGINE | options))
    try:
        said = workloads(engine, "short" in sys.argv[4:])
    finally:
        engine.shutdown()
    out.write_text(json.dumps(said))


if __name__ == "__main__":
    main()
