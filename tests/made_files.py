"""Files as other programs write them, for the importers: a tokenizer with a chat template, logs, dumps, responses."""

import json
import pickle
import sys
import types
from contextlib import contextmanager

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

#: ChatML, with what real templates use: a loop, a date, tools as JSON, reasoning, and a refusal.
TEMPLATE = """\
{%- if tools %}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif %}
{%- for message in messages %}
{%- if message.role == 'critic' %}{{ raise_exception('no critics') }}{% endif %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.reasoning_content and loop.last %}{{ '<think>' + message.reasoning_content + '</think>' }}{% endif %}
{{- message.content }}
{%- for call in message.tool_calls or [] %}{{ '<call>' + call.function.arguments | tojson }}{% endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

#: What the tokenizer learns from, and what conversations are made of.
TEXT = "the cat sat on the mat and the dog sat on the log while a bird sang in the tall old tree all day"


def make_tokenizer(folder, template=TEMPLATE, **config):
    """A byte-level BPE tokenizer with a BOS token that it adds to prompts by itself; returns it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([TEXT], trainer)
    special = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    tokenizer.add_special_tokens([AddedToken(text, special=True) for text in special])
    tokenizer.post_processor = processors.TemplateProcessing(
        "<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    # As some published files do: an importer that obeyed this would cut prompts.
    tokenizer.enable_truncation(max_length=8)
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "chat_template": template, **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer.no_truncation()
    return tokenizer


def lines(path, *records, prefix=""):
    """Write one record a line: JSON, or a str as it stands."""
    path.write_text("".join(prefix + (r if isinstance(r, str) else json.dumps(r)) + "\n" for r in records))
    return path


def sglang_pair(rid="r1", prompt=(1, 2, 3), output=(4, 5, 6), **changes):
    """Request and output as SGLang 0.5.23 writes them, most of what does not matter left out."""
    obj = {"rid": rid, "session_id": None, "text": None, "input_ids": list(prompt), "stream": False}
    obj |= {"sampling_params": {"temperature": 0.5, "max_new_tokens": 9, "stop": ["\n"]}}
    meta = {"id": rid, "finish_reason": {"type": "stop", "matched": output[-1] if output else None}}
    meta |= {"prompt_tokens": len(prompt), "completion_tokens": len(output), "e2e_latency": 0.5}
    meta |= {"spec_accept_length": 1.5, "spec_verify_ct": 2, "spec_correct_drafts_histogram": [1, 1]}
    out = {"text": "abc", "output_ids": list(output), "meta_info": meta | changes.pop("meta", {})}
    return obj | changes.pop("obj", {}), out | changes


def sglang_lines(*pairs):
    """Two lines of the log for each pair: received, finished."""
    for obj, out in pairs:
        yield {"timestamp": "2026-01-02T03:04:05.250000", "event": "request.received", "rid": obj["rid"], "obj": obj}
        ended = {"timestamp": "2026-01-02T03:04:06.500000", "event": "request.finished", "rid": obj["rid"]}
        yield ended | {"obj": obj, "out": out}


@contextmanager
def sglang_classes():
    """Modules and classes by the names that SGLang's dumps use, for as long as a pickle is written."""
    names = {
        "sglang.srt.managers.io_struct": ["GenerateReqInput", "EmbeddingReqInput"],
        "sglang.srt.server_args": ["ServerArgs"],
        "transformers.models.llama.configuration_llama": ["LlamaConfig"],
        "sglang.srt.unheard_of": ["Thing"],
    }
    folders = {".".join(module.split(".")[: n + 1]) for module in names for n in range(module.count(".") + 1)}
    made, before = {}, {module: sys.modules.get(module) for module in folders}
    sys.modules.update((module, types.ModuleType(module)) for module in folders)
    for module, classes in names.items():
        for name in classes:
            made[name] = type(name, (), {"__module__": module})
            setattr(sys.modules[module], name, made[name])
    try:
        yield made
    finally:
        for module, old in before.items():
            if old is None:
                del sys.modules[module]
            else:
                sys.modules[module] = old


def with_fields(made, fields):
    """An instance of a class with the given attributes."""
    instance = made()
    instance.__dict__.update(fields)
    return instance


def write_dump(path, pairs, *, kind="GenerateReqInput", protocol=4, alone=False, extra=None):
    """A dump of `pairs`, with server arguments that hold a model's configuration."""
    with sglang_classes() as made:
        requests = [(with_fields(made[kind], obj), out, 100.0 + i, 101.0 + i) for i, (obj, out) in enumerate(pairs)]
        model = with_fields(made["LlamaConfig"], {"hidden_size": 8})
        arguments = with_fields(made["ServerArgs"], {"model_config": model, "port": 1})
        content = {"server_args": arguments, "requests": requests, "launch_command": "python"}
        content |= {name: with_fields(made[name], {}) for name in extra or ()}
        path.write_bytes(pickle.dumps(requests if alone else content, protocol=protocol))
    return path


def chat_response(**changes):
    """A chat response of vLLM with `return_token_ids`."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "the log"}, "finish_reason": "stop"}
    choice |= {"stop_reason": None, "token_ids": [7, 8, 9]} | changes.pop("choice", {})
    usage = {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}
    response = {"id": "c1", "object": "chat.completion", "created": 1000, "model": "m", "choices": [choice]}
    return response | {"usage": usage, "prompt_token_ids": [1, 2]} | changes


def say(*texts):
    """A dialogue of user and assistant in turn."""
    return [{"role": ("user", "assistant")[i % 2], "content": text} for i, text in enumerate(texts)]
