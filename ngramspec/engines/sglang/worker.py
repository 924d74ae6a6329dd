"""The worker behind `--speculative-algorithm NGRAM`: SGLang's own, with our drafts in its rows."""

from __future__ import annotations

import logging
from typing import Any

import torch
from sglang.kernels.ops.speculative.cache_locs import assign_extend_cache_locs_func
from sglang.kernels.ops.speculative.reconstruct_tree import reconstruct_indices_from_tree_mask_func
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.speculative.ngram_info import NgramVerifyInput
from sglang.srt.speculative.ngram_worker import NGRAMWorker
from sglang.srt.speculative.spec_utils import prepare_mamba_track_for_verify

from ...errors import EngineContractError
from .config import EngineConfig
from .drafts import Drafts, Rows
from .mask import full_mask
from .server import Server, start_line
from .warm import warm_up

_log = logging.getLogger("ngramspec")


class Worker(NGRAMWorker):  # type: ignore[misc]
    """SGLang's n-gram worker with our drafts; where we cannot serve, it is SGLang's own worker, unchanged."""

    #: Settings, put here by the plugin before the engine makes a worker.
    config: EngineConfig = EngineConfig()

    ngram_corpus: Any
    _drafts: Drafts | None = None

    def init_attention_backends(self) -> None:
        """Build the drafter, once pools and attention backends are known; fall back to SGLang's own if that fails."""
        super().init_attention_backends()
        try:
            server = self._server()
            server.check()
            self._drafts = self._build(server)
        except Exception as error:
            expected = isinstance(error, (EngineContractError, ValueError))
            _log.error(
                "ngramspec: stands aside, the server runs SGLang's own n-gram drafts: %s",
                error,
                exc_info=None if expected else error,
            )
            self._drafts = None
            self.ngram_corpus = self.ngram_corpus.build_stock()

    def _server(self) -> Server:
        runner, args = self.model_runner, self.server_args
        model = runner.model_config
        backends = (runner.prefill_attention_backend_str, runner.decode_attention_backend_str)
        return Server(
            tp_size=args.tp_size,
            pp_size=args.pp_size,
            disaggregation=args.disaggregation_mode,
            external_corpora=self.ngram_corpus.options.get("external_sam_budget", 0) > 0,
            backends=backends,
            mla=runner.use_mla_backend,
            breadth=self.topk,
            page_size=self.page_size,
            vocab_size=model.vocab_size,
            eos_ids=tuple(model.hf_eos_token_id or ()),
            context_tokens=model.context_len,
            max_running=self.max_batch_size,
            n_rows=self.draft_token_num,
        )

    def _build(self, server: Server) -> Drafts:
        drafter = server.drafter(self.config)
        warm_up(server.n_rows)
        drafts = Drafts(
            self.config,
            drafter,
            max_batch=server.max_running,
            n_rows=server.n_rows,
            chain=server.chain(self.config),
        )
        _log.warning("%s", start_line(self.config, drafter, server))
        return drafts

    def clear_cache_pool(self) -> None:
        """Forget everything, as the server's cache flush asks."""
        super().clear_cache_pool()
        if self._drafts is not None:
            self._drafts.flush()

    def _prepare_draft_tokens(self, batch: Any) -> Rows:
        if self._drafts is None:
            return super()._prepare_draft_tokens(batch)  # type: ignore[no-any-return]
        latest = None
        if self.enable_overlap and not batch.grammar_needs_sync():
            # The record of a request is one step behind: what the latest step accepted comes beside it.
            lengths = batch.spec_info.accept_lens.tolist()
            tokens = batch.spec_info.accept_tokens.view(len(lengths), -1).tolist()
            latest = [row[:length] for row, length in zip(tokens, lengths, strict=True)]
        return self._drafts.rows(batch.reqs, latest)

    def _prepare_for_speculative_decoding(self, batch: Any) -> None:
        if self._drafts is None or not batch.forward_mode.is_decode():
            super()._prepare_for_speculative_decoding(batch)
            return
        n, width = len(batch.reqs), self.draft_token_num
        ids, seen = self._prepare_draft_tokens(batch)
        tokens, tree = self.draft_tokens_batch[n], self.tree_mask_batch[n]
        tokens.copy_(torch.from_numpy(ids), non_blocking=True)
        tree.copy_(torch.from_numpy(seen), non_blocking=True)
        # Copies, because the rows are overwritten by the next step and a grammar may still read them.
        self.grammar_tree_host = (seen.copy(), ids.copy()) if batch.has_grammar else None
        positions, index = self.positions_batch[n], self.retrieve_indexes_batch[n]
        child, sibling = self.retrieve_next_token_batch[n], self.retrieve_next_sibling_batch[n]
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
        if self._drafts is None:
            super()._update_ngram_corpus(batch)
        else:
            self._drafts.decoded(batch.reqs)

    def forward_batch_generation(self, batch: Any, on_publish: Any = None, pp_proxy_tensors: Any = None) -> Any:
        """Run one batch; of a prefill, follow the requests and read their prompts once it was launched.

        Parameters
        ----------
        batch, on_publish, pp_proxy_tensors
            The engine's.
        """
        prefill = batch.forward_mode.is_extend()
        result = super().forward_batch_generation(batch, on_publish=on_publish, pp_proxy_tensors=pp_proxy_tensors)
        if prefill and self._drafts is not None:
            self._drafts.prefilled(batch.reqs)
        return result
