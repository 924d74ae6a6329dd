"""Rival rules: how released drafters choose, to replay beside our own.

Each is written anew from the released package that its file names, and compared with it step by step by
`benchmarks/parity.py`. They keep the protocol of `caches/base.py`; their memory grows with use, up to a
stated bound.
"""

#: Rule's name on the command line: "module:class". Every class takes `vocab_size`, `eos_ids`,
#: `capacity_tokens`, `max_requests` and its own options, all by name.
BASELINES: dict[str, str] = {
    "prompt-lookup": "ngramspec.baselines.prompt_lookup:PromptLookup",
    "vllm-ngram": "ngramspec.baselines.vllm_ngram:VllmNgram",
    "suffix-decoding": "ngramspec.baselines.suffix_decoding:SuffixDecoding",
    "sglang-ngram": "ngramspec.baselines.sglang_ngram:SglangNgram",
    "ngram-mod": "ngramspec.baselines.ngram_mod:NgramMod",
    "rest": "ngramspec.baselines.rest:Rest",
    "vllm-suffix-adaptive": "ngramspec.baselines.vllm_suffix_adaptive:VllmSuffixAdaptive",
}
