"""Everything of SGLang that our worker relies on, checked before anything is replaced.

Three kinds of promise: `override`, a method that ours replaces, must have exactly these parameters; `call`, a function
that ours calls, must take these parameters, others having defaults; `fields`, names that the source of a class or a
function must mention as `self.NAME = `, as annotated fields, or as methods. Sources are read, nothing is run.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

#: Releases that the tests were run with.
TESTED = ("0.5.23",)

_SPEC = "sglang.srt.speculative"
_WORKER = f"{_SPEC}.ngram_worker:NGRAMWorker"


@dataclass(frozen=True)
class Promise:
    """One line of the contract."""

    kind: str  #: "override", "call" or "fields"
    where: str  #: "module:name.name"
    names: tuple[str, ...]  #: parameters in order, or fields

    def __str__(self) -> str:
        return f"{self.kind} {self.where}({', '.join(self.names)})"


def _override(where: str, *names: str) -> Promise:
    return Promise("override", where, names)


def _call(where: str, *names: str) -> Promise:
    return Promise("call", where, names)


def _fields(where: str, *names: str) -> Promise:
    return Promise("fields", where, names)


CONTRACT = (
    _call("sglang.srt.plugins.hook_registry:HookRegistry.register", "target", "hook", "hook_type"),
    _fields("sglang.srt.plugins.hook_registry:HookType", "REPLACE"),
    _override(f"{_WORKER}.__init__", "self", "server_args", "gpu_id", "nccl_port", "target_worker"),
    _override(f"{_SPEC}.base_spec_worker:BaseSpecWorker.init_attention_backends", "self"),
    _override(f"{_SPEC}.base_spec_worker:BaseSpecWorker.note_request_finished", "self", "rid", "natural_stop"),
    _override(f"{_WORKER}.clear_cache_pool", "self"),
    _override(f"{_WORKER}._prepare_draft_tokens", "self", "batch"),
    _override(f"{_WORKER}._prepare_for_speculative_decoding", "self", "batch"),
    _override(f"{_WORKER}._update_ngram_corpus", "self", "batch"),
    _override(f"{_WORKER}.forward_batch_generation", "self", "batch", "on_publish", "pp_proxy_tensors"),
    _fields(
        _WORKER,
        "server_args", "enable_overlap", "model_runner", "page_size", "draft_token_num", "topk", "device",
        "max_batch_size", "ngram_corpus", "grammar_tree_host", "req_to_token_pool", "draft_tokens", "tree_mask",
        "positions", "retrieve_indexes", "retrieve_next_token", "retrieve_next_sibling", "add_external_corpus",
        "commit_corpus_load", "remove_external_corpus", "list_external_corpora",
    ),
    _call(
        f"{_SPEC}.cpp_ngram.ngram_corpus:NgramCorpus.__init__",
        "self", "max_trie_depth", "min_bfs_breadth", "max_bfs_breadth", "draft_token_num", "match_type", "capacity",
        "external_sam_budget", "external_corpus_max_tokens",
    ),
    _call(
        "sglang.kernels.ops.speculative.reconstruct_tree:reconstruct_indices_from_tree_mask_func",
        "tree_mask", "verified_seq_len", "positions", "retrieve_index", "retrieve_next_token",
        "retrieve_next_sibling", "batch_size", "draft_token_num",
    ),
    _call(
        "sglang.kernels.ops.speculative.cache_locs:assign_extend_cache_locs_func",
        "req_pool_indices", "req_to_token", "start_offset", "end_offset", "batch_size", "draft_token_num", "device",
    ),
    _call(f"{_SPEC}.spec_utils:prepare_mamba_track_for_verify", "batch"),
    _call(
        f"{_SPEC}.ngram_info:NgramVerifyInput.__init__",
        "self", "draft_token", "custom_mask", "positions", "retrieve_index", "retrieve_next_token",
        "retrieve_next_sibling", "draft_token_num",
    ),
    _fields(
        f"{_SPEC}.ngram_info:NgramVerifyInput",
        "accept_tokens", "accept_lens", "draft_token_num", "num_tokens_per_req", "num_tokens_for_logprob_per_req",
    ),
    _fields("sglang.srt.model_executor.forward_batch_info:ForwardMode", "TARGET_VERIFY", "is_decode", "is_extend"),
    _fields(
        "sglang.srt.managers.schedule_batch:ScheduleBatch",
        "reqs", "spec_info", "seq_lens", "seq_lens_cpu", "req_pool_indices", "req_to_token_pool", "has_grammar",
        "forward_mode", "input_ids", "out_cache_loc", "grammar_needs_sync",
    ),
    _fields(
        "sglang.srt.managers.schedule_batch:Req",
        "rid", "origin_input_ids_unpadded", "output_ids", "output_ids_through_stop", "sampling_params", "extra_key",
        "cache_salt", "lora_id", "session_id", "finished", "finished_reason", "spec_correct_drafts_histogram",
    ),
    _fields("sglang.srt.sampling.sampling_params:SamplingParams", "max_new_tokens", "custom_params"),
    _fields(
        "sglang.srt.model_executor.model_runner:ModelRunner",
        "model_config", "use_mla_backend", "prefill_attention_backend_str", "decode_attention_backend_str",
    ),
    _fields("sglang.srt.configs.model_config:ModelConfig", "vocab_size", "hf_eos_token_id", "context_len"),
    _fields(
        "sglang.srt.server_args:ServerArgs",
        "tp_size", "pp_size", "disaggregation_mode", "enable_dp_attention", "enable_metrics", "served_model_name",
        "model_path", "tokenizer_path",
    ),
    _call("sglang.srt.model_executor.cuda_graph_config:cuda_graph_fully_disabled"),
    _call("sglang.srt.runtime_context:get_parallel"),
    _fields("sglang.srt.runtime_context:ParallelContext", "tp_group", "dp_rank"),
    _fields("sglang.srt.distributed.parallel_state:GroupCoordinator", "ranks", "rank_in_group", "cpu_group"),
    _call("torch.distributed.distributed_c10d:_get_default_store"),
    _fields("sglang.srt.managers.scheduler:GenerationBatchResult", "next_draft_input", "next_token_ids"),
)  # fmt: skip


#: Beyond that, for graphs of narrower steps; checked where they are asked for.
CAPTURE = (
    _call("sglang.srt.model_executor.model_runner:ModelRunner._get_attention_backend", "self", "init_new_workspace"),
    _call("sglang.srt.model_executor.model_runner:ModelRunner._decode_cuda_graph_runner_cls", "self"),
    _fields(
        "sglang.srt.model_executor.model_runner:ModelRunner",
        "init_new_workspace", "attn_backend", "decode_cuda_graph_runner",
    ),
    _call(
        "sglang.srt.model_executor.runner.decode_cuda_graph_runner:DecodeCudaGraphRunner.__init__",
        "self", "model_runner", "attn_backend", "speculative_num_draft_tokens",
    ),
    _call("sglang.srt.runtime_context:get_context"),
    _call("sglang.srt.runtime_context:get_spec"),
    _override(f"{_SPEC}.base_spec_worker:BaseSpecWorker.init_cuda_graphs", "self"),
)  # fmt: skip


def installed() -> str | None:
    """Version of the installed SGLang; None where there is none."""
    try:
        return version("sglang")
    except PackageNotFoundError:
        return None


def mismatches(contract: Iterable[Promise] = CONTRACT) -> list[str]:
    """What the installed SGLang does not keep, one sentence each; imports SGLang, changes nothing."""
    found = []
    for promise in contract:
        try:
            wrong = _CHECKS[promise.kind](_resolve(promise.where), promise.names)
        except (ImportError, AttributeError, OSError, TypeError) as error:
            wrong = f"cannot be found: {error}"
        if wrong:
            found.append(f"{promise.where}: {wrong}")
    return found


def _resolve(where: str) -> Any:
    module, _, path = where.partition(":")
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return found


def _override_differs(function: Any, names: tuple[str, ...]) -> str:
    got = tuple(inspect.signature(function).parameters)
    return "" if got == names else f"takes ({', '.join(got)}), ours ({', '.join(names)})"


def _call_differs(function: Any, names: tuple[str, ...]) -> str:
    parameters = inspect.signature(getattr(function, "__func__", function)).parameters
    missing = [name for name in names if name not in parameters]
    more = [
        name
        for name, parameter in parameters.items()
        if name not in (*names, "cls")
        and parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    return "; ".join(
        [f"does not take {name}" for name in missing] + [f"needs {name}, which ours does not give" for name in more]
    )


def _fields_differ(cls: Any, names: tuple[str, ...]) -> str:
    known: set[str] = set()
    for base in cls.__mro__:
        if base.__module__.partition(".")[0] == cls.__module__.partition(".")[0]:
            known |= defined(inspect.getsource(base))
        known |= set(vars(base))
        known |= set(getattr(base, "__annotations__", {}))
    missing = [name for name in names if name not in known]
    return f"has no {', '.join(missing)}" if missing else ""


def defined(source: str) -> set[str]:
    """Names that a class defines: methods, class fields, and attributes of `self` that its methods assign.

    Parameters
    ----------
    source : str
        Of the class.
    """
    found = set()
    for node in ast.walk(ast.parse(textwrap.dedent(source))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id == "self":
                found.add(node.attr)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return found


_CHECKS: dict[str, Callable[[Any, tuple[str, ...]], str]] = {
    "override": _override_differs,
    "call": _call_differs,
    "fields": _fields_differ,
}
