/* The functions of ngramspec.h, and the only file to compile: the others are included. */
#include "check.h"
#include "hash_draft.h"
#include "layout.h"

enum { X_SIZE = 0, MAX_WIDTH = 65536 };

int32_t ngs_abi_version(void) { return NGS_ABI_VERSION; }

const char *ngs_strerror(int32_t status) {
    switch (status) {
        case NGS_OK: return "no error";
        case NGS_BAD_ARGUMENT: return "an argument is outside what is allowed, or a struct_size is another version's";
        case NGS_BAD_CONFIG: return "a setting is outside what is allowed: see ngs_config";
        case NGS_BAD_BUFFER: return "the buffer is not exactly ngs_bytes long and aligned to 8";
        case NGS_OTHER_STATE: return "the buffer holds another state: attach with the settings that made it";
        case NGS_BAD_SCRATCH: return "the scratch is too small or not aligned to 4: see ngs_scratch_bytes";
        case NGS_BAD_SLOT: return "no running request has this slot";
        case NGS_FULL: return "max_requests requests are running: finish some";
        case NGS_TOO_WIDE: return "a draft would be wider than the scratch: attach with more";
        case NGS_DAMAGED_ROWS: return "the table of requests is damaged: start empty";
        case NGS_DAMAGED_TEXT: return "the kept text is damaged: start empty";
        case NGS_DAMAGED_COUNTS: return "the counted contexts are damaged: start empty";
        case NGS_DAMAGED_MIXER: return "what the mixer learned is damaged: start empty";
        case NGS_DAMAGED_OFFERS: return "the offers are damaged: start empty";
        case NGS_DAMAGED_TRIE: return "the trie is damaged: start empty";
        case NGS_UNSUPPORTED: return "this kind of cache cannot do that";
        default: return "unknown status";
    }
}

int64_t ngs_bytes(const ngs_config *config) {
    Layout layout;
    int status = layout_of(config, &layout);
    return status ? status : layout_nbytes(&layout);
}

/* Elements of scratch beside the tree. */
static i64 fixed_scratch(void) { return W_SIZE + G_SIZE + X_SIZE; }

int64_t ngs_scratch_bytes(const ngs_config *config, int32_t max_draft) {
    Layout layout;
    int status = layout_of(config, &layout);
    if (status) return status;
    if (!within(max_draft, 1, MAX_WIDTH)) return NGS_BAD_ARGUMENT;
    return 4 * (fixed_scratch() + TREE_ROWS * ((i64)max_draft + 1));
}

/* Point a cache into its buffer and scratch. */
static int bind(ngs_cache *cache, const ngs_config *config, void *buffer, void *scratch, i64 scratch_nbytes) {
    i64 width = (scratch_nbytes / 4 - fixed_scratch()) / TREE_ROWS - 1;
    if (!scratch || (uintptr_t)scratch % 4 || width < 1) return NGS_BAD_SCRATCH;
    memset(cache, 0, sizeof *cache);
    cache->kind = config->kind;
    cache->deferred = config->kind == NGS_DRAFTER && config->deferred;
    cache->max_requests = config->max_requests;
    cache->max_sessions = config->max_sessions;
    cache->width = (i32)least_of(width, MAX_WIDTH);
    cache->mem = buffer;
    cache->scratch = scratch;
    cache->requests = header_of(buffer, 0);
    cache->own = header_of(buffer, 1);
    cache->shared = header_of(buffer, 2);
    return NGS_OK;
}

/* What ngs_init and ngs_attach ask of their arguments. */
static int good_place(ngs_cache *cache, const ngs_config *config, Layout *layout, const void *buffer, i64 nbytes) {
    int status = layout_of(config, layout);
    if (status) return status;
    if (!cache) return NGS_BAD_ARGUMENT;
    return !buffer || (uintptr_t)buffer % 8 || nbytes != layout_nbytes(layout) ? NGS_BAD_BUFFER : NGS_OK;
}

int32_t ngs_init(ngs_cache *cache, const ngs_config *config, void *buffer, int64_t nbytes, void *scratch,
                 int64_t scratch_nbytes) {
    Layout layout;
    int status = good_place(cache, config, &layout, buffer, nbytes);
    if (!status) status = bind(cache, config, buffer, scratch, scratch_nbytes);
    if (status) return status;
    memset(buffer, 0, (size_t)nbytes);
    format(&layout, config->digest, buffer);
    return NGS_OK;
}

int32_t ngs_attach(ngs_cache *cache, const ngs_config *config, void *buffer, int64_t nbytes, void *scratch,
                   int64_t scratch_nbytes, int32_t flags) {
    Layout layout;
    int status = good_place(cache, config, &layout, buffer, nbytes);
    if (status) return status;
    if (flags & ~NGS_TRUSTED) return NGS_BAD_ARGUMENT;
    if (!is_formatted(&layout, config->digest, buffer)) return NGS_OTHER_STATE;
    status = bind(cache, config, buffer, scratch, scratch_nbytes);
    return status || flags & NGS_TRUSTED ? status : ngs_check(cache);
}

int32_t ngs_check(const ngs_cache *cache) {
    if (!cache) return NGS_BAD_ARGUMENT;
    return check_all(cache);
}

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
    begin_row(cache->requests, cache->own, cache->mem, row, n_keep, n_prompt, share, (i32)(uint32_t)tenant,
              (i32)(uint32_t)(tenant >> 32));
    return NGS_OK;
}

int32_t ngs_ingest(ngs_cache *cache, int32_t slot, const int32_t *tokens, int64_t n_tokens) {
    int status = good_slots(cache, &slot, 1);
    if (status) return status;
    if (!good_tokens(tokens, n_tokens) || !has_room(cache, slot, n_tokens)) return NGS_BAD_ARGUMENT;
    hash_ingest(cache, slot, tokens, n_tokens);
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

/* Draft for one slot into row `i` of the caller's arrays. */
static void draft_into(const ngs_cache *cache, i64 row, i64 most, i64 left, int chain, i64 min_q30, i64 i,
                       const ngs_drafts *out) {
    i32 *w = cache->scratch, *g = w + W_SIZE;
    Tree t = tree_over(w + fixed_scratch(), cache->width);
    Drafted d = {0, 0, empty_reason(cache->requests, cache->mem, row, most, left)};
    if (d.stop == DRAFTED) {
        Ask ask = {most, least_of(left >= 0 ? left - 1 : most, most), min_q30, chain};
        d = hash_draft_row(cache, row, ask, w, g, &t);
    }
    i64 at = i * out->width;
    hand_out(&t, d.n, out->tokens + at, out->parents + at, out->path_q30 + at, out->sources + at);
    out->n_draft[i] = (i32)d.n;
    out->match_length[i] = (i32)d.match;
    out->reason[i] = d.n ? DRAFTED : (i32)d.stop;
    remember(cache->requests, cache->mem, row, &t, d.n, d.stop);
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
    for (i32 i = 0; i < n; i++) {
        i64 n_emitted = (i64)offsets[i + 1] - offsets[i];
        hash_accept_row(cache, slots[i], n_emitted ? tokens + offsets[i] : NULL, n_emitted);
    }
    return NGS_OK;
}

int32_t ngs_truncate(ngs_cache *cache, int32_t slot, int64_t n_tokens) {
    int status = good_slots(cache, &slot, 1);
    if (status) return status;
    if (!within(n_tokens, 0, cache->mem[row_at(cache->requests, slot) + T_LENGTH])) return NGS_BAD_ARGUMENT;
    hash_truncate(cache, slot, n_tokens);
    return NGS_OK;
}

int32_t ngs_finish(ngs_cache *cache, int32_t slot) {
    int status = good_slots(cache, &slot, 1);
    if (status) return status;
    finish_row(cache->requests, cache->own, cache->mem, slot, cache->max_sessions);
    return NGS_OK;
}
