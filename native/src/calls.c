/* The calls on requests; part of ngramspec.c. */
#include "rows.h"

static int good_slots(const ngs_cache *cache, const int32_t *slots, i64 n) {
    if (!cache || n < 0 || (n && !slots)) return NGS_BAD_ARGUMENT;
    return bad_slot(cache->requests, cache->mem, slots, n) < 0 ? NGS_OK : NGS_BAD_SLOT;
}

static int good_tokens(const int32_t *tokens, i64 n) { return (n == 0 || tokens) && within(n, 0, INT32_MAX - 1); }

/* Whether a row's length can still be counted with so many tokens more. */
static int has_room(const ngs_cache *cache, i64 row, i64 n_tokens) {
    return cache->mem[row_at(cache->requests, row) + T_LENGTH] + n_tokens < INT32_MAX;
}

/* Whether a row is an idle session. */
static int is_idle(const ngs_cache *cache, i64 row) {
    return within(row, 0, cache->requests[R_ROWS] - 1) && cache->mem[row_at(cache->requests, row) + T_STATE] == IDLE;
}

/* Running requests. */
static i64 n_live(const ngs_cache *cache) {
    i64 n = 0;
    for (i64 row = 0; row < cache->requests[R_ROWS]; row++)
        n += cache->mem[row_at(cache->requests, row) + T_STATE] == LIVE;
    return n;
}

int32_t ngs_take_row(ngs_cache *cache) {
    if (!cache) return NGS_BAD_ARGUMENT;
    if (n_live(cache) >= cache->max_requests) return NGS_FULL;
    return (i32)take_row(cache->requests, cache->own, cache->mem);
}

int64_t ngs_common_prefix(const ngs_cache *cache, int32_t row, const int32_t *tokens, int64_t n_tokens) {
    if (!cache || !good_tokens(tokens, n_tokens)) return NGS_BAD_ARGUMENT;
    if (!is_idle(cache, row)) return NGS_BAD_SLOT;
    return common_prefix(cache->requests, cache->own, cache->mem, row, tokens, n_tokens);
}

int32_t ngs_begin_row(ngs_cache *cache, int32_t row, int64_t n_keep, int64_t n_prompt, int32_t share, uint64_t tenant) {
    if (!cache || !within(share, SHARE_NONE, SHARE_ALL) || !within(n_prompt, 0, INT32_MAX - 1)) return NGS_BAD_ARGUMENT;
    if (!within(row, 0, cache->requests[R_ROWS] - 1)) return NGS_BAD_SLOT;
    i64 r = row_at(cache->requests, row);
    if (cache->mem[r + T_STATE] == LIVE) return NGS_BAD_SLOT;
    if (!within(n_keep, 0, least_of(cache->mem[r + T_LENGTH], n_prompt))) return NGS_BAD_ARGUMENT;
    if (n_live(cache) >= cache->max_requests) return NGS_FULL;
    if (cache->kind == NGS_SUFFIX_TRIE) before_begin(cache, row, n_keep);
    begin_row(cache->requests, cache->own, cache->mem, row, n_keep, n_prompt, share, (i32)(uint32_t)tenant,
              (i32)(uint32_t)(tenant >> 32));
    return NGS_OK;
}

int32_t ngs_ingest(ngs_cache *cache, int32_t slot, const int32_t *tokens, int64_t n_tokens) {
    int status = good_slots(cache, &slot, 1);
    if (status) return status;
    if (!good_tokens(tokens, n_tokens) || !has_room(cache, slot, n_tokens)) return NGS_BAD_ARGUMENT;
    ingest_row(cache, slot, tokens, n_tokens);
    cache->requests[R_TOKENS_IN] += n_tokens;
    return NGS_OK;
}

int32_t ngs_begin(ngs_cache *cache, const ngs_request *request, const int32_t *prompt, int64_t n_prompt,
                  int32_t *slot) {
    if (!cache || !request || request->struct_size != sizeof *request || !slot || !good_tokens(prompt, n_prompt))
        return NGS_BAD_ARGUMENT;
    if (!within(request->share, SHARE_NONE, SHARE_ALL)) return NGS_BAD_ARGUMENT;
    if (n_live(cache) >= cache->max_requests) return NGS_FULL;
    i64 keep = 0, row = request->resume_slot;
    if (is_idle(cache, row) && cache->mem[row_at(cache->requests, row) + T_SERIAL] == request->resume_serial)
        keep = common_prefix(cache->requests, cache->own, cache->mem, row, prompt, n_prompt);
    else
        row = take_row(cache->requests, cache->own, cache->mem);
    int status = ngs_begin_row(cache, (i32)row, keep, n_prompt, request->share, request->tenant);
    if (status) return status;
    *slot = (i32)row;
    return ngs_ingest(cache, (i32)row, prompt ? prompt + keep : NULL, n_prompt - keep);
}

int32_t ngs_serial(const ngs_cache *cache, int32_t slot) {
    int status = good_slots(cache, &slot, 1);
    return status ? status : cache->mem[row_at(cache->requests, slot) + T_SERIAL];
}

static int good_drafts(const ngs_drafts *out, i64 n) {
    if (!out || out->struct_size != sizeof *out || out->width < 0) return 0;
    if (n && !(out->n_draft && out->match_length && out->reason)) return 0;
    return n == 0 || out->width == 0 || (out->tokens && out->parents && out->path_q30 && out->sources);
}

int32_t ngs_draft_batch(ngs_cache *cache, const int32_t *slots, int32_t n, const int32_t *max_draft,
                        const int32_t *remaining, int32_t min_path_q30, int32_t flags, const ngs_drafts *out) {
    int status = good_slots(cache, slots, n);
    if (status) return status;
    if (!good_drafts(out, n) || (n && !max_draft) || min_path_q30 < 0 || flags & ~(NGS_CHAIN | NGS_UNCOUNTED))
        return NGS_BAD_ARGUMENT;
    for (i32 i = 0; i < n; i++)
        if (least_of(max_draft[i], out->width) > cache->width) return NGS_TOO_WIDE;
    for (i32 i = 0; i < n; i++)
        draft_into(cache, slots[i], least_of(max_draft[i], out->width), remaining ? remaining[i] : -1,
                   flags & NGS_CHAIN, min_path_q30, i, out);
    if (!(flags & NGS_UNCOUNTED)) count_drafts(cache->requests, out->reason, n);
    return NGS_OK;
}

int32_t ngs_bad_slot(const ngs_cache *cache, const int32_t *slots, int32_t n) {
    return (i32)bad_slot(cache->requests, cache->mem, slots, n);
}

int32_t ngs_bad_span(const int32_t *offsets, int32_t n, int64_t n_tokens) {
    return (i32)bad_span(offsets, n, n_tokens);
}

void ngs_block_hashes(const int32_t *tokens, int64_t n_tokens, int64_t *hashes) {
    block_hashes(tokens, n_tokens / BLOCK, hashes);
}

int32_t ngs_count_drafts(ngs_cache *cache, const int32_t *reason, int32_t n) {
    if (!cache || n < 0 || (n && !reason)) return NGS_BAD_ARGUMENT;
    for (i32 i = 0; i < n; i++)
        if (!within(reason[i], DRAFTED, LENGTH_LIMIT)) return NGS_BAD_ARGUMENT;
    count_drafts(cache->requests, reason, n);
    return NGS_OK;
}

int32_t ngs_accept_batch(ngs_cache *cache, const int32_t *slots, int32_t n, const int32_t *tokens, int64_t n_tokens,
                         const int32_t *offsets) {
    int status = good_slots(cache, slots, n);
    if (status) return status;
    if (!good_tokens(tokens, n_tokens) || (n && !offsets)) return NGS_BAD_ARGUMENT;
    if (bad_span(offsets, n, n_tokens) >= 0) return NGS_BAD_ARGUMENT;
    for (i32 i = 0; i < n; i++)
        if (!has_room(cache, slots[i], (i64)offsets[i + 1] - offsets[i])) return NGS_BAD_ARGUMENT;
    accept_rows(cache, slots, n, tokens, offsets);
    return NGS_OK;
}

int32_t ngs_truncate(ngs_cache *cache, int32_t slot, int64_t n_tokens) {
    int status = good_slots(cache, &slot, 1);
    if (status) return status;
    if (!within(n_tokens, 0, cache->mem[row_at(cache->requests, slot) + T_LENGTH])) return NGS_BAD_ARGUMENT;
    truncate_row(cache, slot, n_tokens);
    return NGS_OK;
}

int32_t ngs_finish(ngs_cache *cache, int32_t slot) {
    int status = good_slots(cache, &slot, 1);
    if (status) return status;
    if (cache->kind == NGS_DRAFTER) settle_rows(cache, &slot, 1, 0);
    finish_row(cache->requests, cache->own, cache->mem, slot, cache->max_sessions);
    return NGS_OK;
}

int32_t ngs_settle_batch(ngs_cache *cache, const int32_t *slots, int32_t n) {
    int status = good_slots(cache, slots, n);
    if (status) return status;
    if (cache->kind != NGS_DRAFTER) return NGS_UNSUPPORTED;
    settle_rows(cache, slots, n, 1);
    return NGS_OK;
}
