"""The worker behind `--speculative-algorithm NGRAM`: SGLang's own, with our drafts in its rows."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

import torch
from sglang.kernels.ops.speculative.cache_locs import assign_extend_cache_locs_func
from sglang.kernels.ops.speculative.reconstruct_tree import reconstruct_indices_from_tree_mask_func
from sglang.srt.model_executor.cuda_graph_config import cuda_graph_fully_disabled
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.runtime_context import get_context, get_parallel, get_spec
from sglang.srt.speculative.ngram_info import NgramVerifyInput
from sglang.srt.speculative.ngram_worker import NGRAMWorker
from sglang.srt.speculative.spec_utils import prepare_mamba_track_for_verify

from ...config import DrafterConfig
from ...errors import EngineContractError
from .config import EngineConfig
from .contract import CAPTURE, mismatches
from .corpus import Use
from .digest import Agreement, Checks
from .drafts import Drafts
from .local import Local, Offered, everywhere, shaping
from .mask import full_mask
from .metrics import Kinds, Metrics
from .ranks import Following, Leading, Source, Wire, together
from .server import Server, start_line
from .states import State, States
from .warm import warm_up

_log = logging.getLogger("ngramspec")


class Worker(NGRAMWorker):  # type: ignore[misc]
    """SGLang's n-gram worker with our drafts; where we cannot serve, it is SGLang's own worker, unchanged."""

    #: Settings, put here by the plugin before the engine makes a worker.
    config: EngineConfig = EngineConfig()

    ngram_corpus: Any
    draft_token_num: int
    _source: Source | None = None
    _states: States | None = None

    def init_attention_backends(self) -> None:
        """Build the drafter, once pools and attention backends are known; fall back to SGLang's own if that fails."""
        super().init_attention_backends()
        try:
            server = self._server()
            server.check()
            self._source = self._build(server)
        except Exception as error:
            expected = isinstance(error, (EngineContractError, ValueError))
            _log.error(
                "ngramspec: stands aside, the server runs SGLang's own n-gram drafts: %s",
                error,
                exc_info=None if expected else error,
            )
            self._source = None
            self.ngram_corpus = self.ngram_corpus.build_stock()

    def _server(self) -> Server:
        runner, args = self.model_runner, self.server_args
        model = runner.model_config
        backends = (runner.prefill_attention_backend_str, runner.decode_attention_backend_str)
        return Server(
            tp_size=args.tp_size,
            pp_size=args.pp_size,
            disaggregation=args.disaggregation_mode,
            dp_attention=bool(args.enable_dp_attention),
            backends=backends,
            mla=runner.use_mla_backend,
            breadth=self.topk,
            page_size=self.page_size,
            vocab_size=model.vocab_size,
            eos_ids=tuple(model.hf_eos_token_id or ()),
            context_tokens=model.context_len,
            max_running=self.max_batch_size,
            n_rows=self.draft_token_num,
            graphs=self.device != "cpu" and not cuda_graph_fully_disabled(),
            hybrid=getattr(self.req_to_token_pool, "mamba_pool", None) is not None,
            model=str(args.tokenizer_path or args.model_path),
        )

    def _build(self, server: Server) -> Source:
        sizes, group = server.drafter(self.config), get_parallel().tp_group
        if server.tp_size == 1:
            return self._drafts(server, sizes)
        # Whatever may raise on this rank alone has been done: from here on all ranks go the same way.
        first, rank = group.ranks[0], group.rank_in_group
        store, agreement = torch.distributed.distributed_c10d._get_default_store(), Agreement(group.cpu_group)
        if self.config.ranks == "local":
            offered = Offered()
            drafts = everywhere(
                store, first, rank, server.tp_size,
                shaping(self.config, server), lambda: self._drafts(server, sizes, rank, offered.offer),
            )  # fmt: skip
            return Local(drafts, agreement, offered, debug=self.config.debug)
        leader = together(store, first, rank, server.tp_size, lambda: self._drafts(server, sizes))
        wire, checks = Wire(group.cpu_group, first, server.n_rows), Checks(agreement) if self.config.debug else None
        if leader is not None:
            return Leading(leader, wire, checks)
        self.ngram_corpus.bind(sizes, self.config.max_corpus_bytes, None)
        return Following(wire, checks, n_rows=server.n_rows, chain=server.chain(self.config))

    def _drafts(self, server: Server, sizes: DrafterConfig, rank: int = 0, use: Use | None = None) -> Drafts:
        """Drafts of this rank; those of the first alone record, save and publish."""
        warm_up(server.n_rows)
        drafts = Drafts(
            self.config if rank == 0 else replace(self.config, record=None),
            sizes,
            max_batch=server.max_running,
            n_rows=server.n_rows,
            chain=server.chain(self.config),
            widths=server.widths(self.config),
            tokenizer=server.model,
        )
        self.ngram_corpus.bind(sizes, self.config.max_corpus_bytes, use or drafts.use_corpus)
        if rank:
            drafts.snapshots = None
            return drafts
        if self.server_args.enable_metrics:
            drafts.metrics = self._metrics()
        atexit.register(drafts.close)
        _log.warning("%s", start_line(self.config, sizes, server))
        return drafts

    def _metrics(self) -> Metrics:
        # Imported here: SGLang has by now said where processes share their numbers, which the import reads.
        from prometheus_client import Counter, Gauge, Histogram

        parallel = get_parallel()
        labels = {"model_name": self.server_args.served_model_name, "tp_rank": parallel.tp_group.rank_in_group}
        if parallel.dp_rank is not None:
            labels["dp_rank"] = parallel.dp_rank
        return Metrics(Kinds(Counter, Gauge, Histogram), labels)

    def init_cuda_graphs(self) -> None:
        """Capture graphs of narrower steps too, where that is asked for; every rank has them or none."""
        super().init_cuda_graphs()
        if self._source is None or not self.config.capture:
            return
        states, narrow = States(self.model_runner, self.draft_token_num), 1
        wrong = mismatches(CAPTURE)
        if wrong:
            _log.error("ngramspec: no graphs for narrower steps, SGLang differs: %s", "; ".join(wrong))
        built = not wrong and states.build(narrow, settings_of, self._make_state)
        group = get_parallel().tp_group
        if self.server_args.tp_size > 1:
            everywhere = torch.tensor(int(built))
            torch.distributed.all_reduce(everywhere, torch.distributed.ReduceOp.MIN, group=group.cpu_group)
            built = bool(everywhere)
        if built:
            self._states = states
        else:
            self._source.fix_width()

    def _make_state(self, width: int) -> State:
        runner = self.model_runner
        before = runner.init_new_workspace
        try:
            attention = runner._get_attention_backend(init_new_workspace=True)
        finally:
            runner.init_new_workspace = before
        if runner.decode_cuda_graph_runner is None:
            return State(attention, None)
        kind = runner._decode_cuda_graph_runner_cls()
        return State(attention, kind(runner, attn_backend=attention, speculative_num_draft_tokens=width))

    def clear_cache_pool(self) -> None:
        """Forget everything, as the server's cache flush asks."""
        super().clear_cache_pool()
        if self._source is not None:
            self._source.flush()

    def note_request_finished(self, *, rid: str, natural_stop: bool) -> None:
        """End a request, with its last tokens.

        Parameters
        ----------
        rid, natural_stop
            The engine's.
        """
        super().note_request_finished(rid=rid, natural_stop=natural_stop)
        if self._source is not None:
            self._source.finished(rid)

    def _prepare_draft_tokens(self, batch: Any) -> Any:
        if self._source is None:
            return super()._prepare_draft_tokens(batch)
        self.ngram_corpus.between_steps()
        latest = None
        if self.enable_overlap and not batch.grammar_needs_sync():
            # The record of a request is one step behind: what the latest step accepted comes beside it.
            lengths = batch.spec_info.accept_lens.tolist()
            tokens = batch.spec_info.accept_tokens.view(len(lengths), -1).tolist()
            latest = [row[:length] for row, length in zip(tokens, lengths, strict=True)]
        return self._source.rows(batch.reqs, latest)

    def _prepare_for_speculative_decoding(self, batch: Any) -> None:
        if self._source is None or not batch.forward_mode.is_decode():
            super()._prepare_for_speculative_decoding(batch)
            return
        n = len(batch.reqs)
        ids, seen, width = self._prepare_draft_tokens(batch)
        # For the rest of this step, see `forward_batch_generation`.
        self.draft_token_num = width
        if self._states is not None:
            self._step.enter_context(self._states.using(width))
        # Buffers are the engine's, as long as a step of all its rows needs; a narrower one takes the beginning.
        tokens, tree = self.draft_tokens[: n * width], self.tree_mask[: n * width**2]
        positions = self.positions[: n * width]
        index, child, sibling = (
            buffer.view(-1)[: n * width].view(n, width)
            for buffer in (self.retrieve_indexes, self.retrieve_next_token, self.retrieve_next_sibling)
        )
        tokens.copy_(torch.from_numpy(ids), non_blocking=True)
        tree.copy_(torch.from_numpy(seen), non_blocking=True)
        # Copies, because the rows are overwritten by the next step and a grammar may still read them.
        self.grammar_tree_host = (seen.copy(), ids.copy()) if batch.has_grammar else None
        reconstruct_indices_from_tree_mask_func(tree, batch.seq_lens, positions, index, child, sibling, n, width)
        mask = tree
        if tree.device.type != "cpu":
            mask = full_mask(tree, batch.seq_lens, int(batch.seq_lens_cpu.sum()), width)
        batch.forward_mode = ForwardMode.TARGET_VERIFY
        batch.input_ids = tokens
        batch.out_cache_loc = assign_extend_cache_locs_func(
            req_pool_indices=batch.req_pool_indices,
            req_to_token=batch.req_to_token_pool.req_to_token,
            start_offset=batch.seq_lens,
            end_offset=batch.seq_lens + width,
            batch_size=n,
            draft_token_num=width,
            device=self.device,
        )
        prepare_mamba_track_for_verify(batch)
        batch.spec_info = NgramVerifyInput(
            draft_token=tokens,
            custom_mask=mask,
            positions=positions,
            retrieve_index=index,
            retrieve_next_token=child,
            retrieve_next_sibling=sibling,
            draft_token_num=width,
        )

    def _update_ngram_corpus(self, batch: Any) -> None:
        """After the verify pass was launched: learn while the model runs."""
        if self._source is None:
            super()._update_ngram_corpus(batch)
        else:
            self._source.decoded(batch.reqs)

    def forward_batch_generation(self, batch: Any, on_publish: Any = None, pp_proxy_tensors: Any = None) -> Any:
        """Run one batch; of a prefill, follow the requests and read their prompts once it was launched.

        Parameters
        ----------
        batch, on_publish, pp_proxy_tensors
            The engine's.
        """
        prefill, n_rows = batch.forward_mode.is_extend(), self.draft_token_num
        with ExitStack() as self._step:
            self._step.callback(setattr, self, "draft_token_num", n_rows)
            result = super().forward_batch_generation(batch, on_publish=on_publish, pp_proxy_tensors=pp_proxy_tensors)
            width = self.draft_token_num
        if width != n_rows:
            widen(result, len(batch.reqs), width, n_rows)
        if prefill and self._source is not None:
            self._source.prefilled(batch.reqs)
        return result


@contextmanager
def settings_of(width: int) -> Iterator[None]:
    """The engine's settings with another number of rows a request."""
    context, before = get_context(), get_spec().speculative_num_draft_tokens
    context.override("ngramspec.capture", speculative_num_draft_tokens=width)
    try:
        yield
    finally:
        context.override("ngramspec.captured", speculative_num_draft_tokens=before)


def widen(result: Any, n: int, width: int, n_rows: int) -> None:
    """Pad a step's accepted tokens to the server's rows, by which everything that reads them strides; modifies.

    Parameters
    ----------
    result : GenerationBatchResult
        Of the step.
    n : int
        Requests in it.
    width, n_rows : int
        Rows a request that it verified, and that the server does.
    """
    following = result.next_draft_input
    accepted = following.accept_tokens.view(n, width)
    padded = accepted.new_zeros(n, n_rows)
    padded[:, :width] = accepted
    following.accept_tokens = result.next_token_ids = padded.flatten()
    following.draft_token_num = following.num_tokens_per_req = following.num_tokens_for_logprob_per_req = n_rows
