/* Versions, sizes, and opening a buffer; part of ngramspec.c. */
#include "check.h"
#include "rows.h"

enum { MAX_WIDTH = 65536 };

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
        case NGS_DAMAGED_FILE: return "the file is not as it was written: save it again";
        case NGS_BUSY: return "requests are running: finish them first";
        case NGS_UNSUPPORTED: return "this kind of cache cannot do that";
        default: return "unknown status";
    }
}

int64_t ngs_bytes(const ngs_config *config) {
    Layout layout;
    int status = layout_of(config, &layout);
    return status ? status : layout_nbytes(&layout);
}

int64_t ngs_scratch_bytes(const ngs_config *config, int32_t max_draft) {
    Layout layout;
    int status = layout_of(config, &layout);
    if (status) return status;
    if (!within(max_draft, 1, MAX_WIDTH)) return NGS_BAD_ARGUMENT;
    return 4 * scratch_size(config->kind, most_of(max_draft, least_width(config->kind)));
}

/* Whether scratch can be used by a cache of this kind. */
static int good_scratch(i64 kind, const void *scratch, i64 nbytes) {
    return scratch && (uintptr_t)scratch % 4 == 0 && width_within(kind, nbytes / 4) >= least_width(kind);
}

int32_t ngs_set_scratch(ngs_cache *cache, void *scratch, int64_t nbytes) {
    if (!cache) return NGS_BAD_ARGUMENT;
    if (!good_scratch(cache->kind, scratch, nbytes)) return NGS_BAD_SCRATCH;
    cache->width = (i32)least_of(width_within(cache->kind, nbytes / 4), MAX_WIDTH);
    cache->scratch = scratch;
    return NGS_OK;
}

/* Point a cache into its buffer and scratch. */
static int bind(ngs_cache *cache, const ngs_config *config, void *buffer, void *scratch, i64 scratch_nbytes) {
    memset(cache, 0, sizeof *cache);
    cache->kind = config->kind;
    cache->deferred = config->kind == NGS_DRAFTER && config->deferred;
    cache->max_requests = config->max_requests;
    cache->max_sessions = config->max_sessions;
    cache->mem = buffer;
    cache->requests = header_of(buffer, 0);
    cache->own = header_of(buffer, 1);
    if (config->kind == NGS_SUFFIX_TRIE)
        cache->trie = header_of(buffer, 2);
    else
        cache->shared = header_of(buffer, 2);
    if (config->kind == NGS_DRAFTER) {
        cache->counts = header_of(buffer, 3);
        cache->mixer = header_of(buffer, 4);
        cache->offers = header_of(buffer, 5);
    }
    return ngs_set_scratch(cache, scratch, scratch_nbytes);
}

/* What ngs_init and ngs_attach ask of their arguments. */
static int good_call(ngs_cache *cache, const ngs_config *config, Layout *layout, const void *buffer, i64 nbytes) {
    int status = layout_of(config, layout);
    if (status) return status;
    if (!cache) return NGS_BAD_ARGUMENT;
    return !buffer || (uintptr_t)buffer % 8 || nbytes != layout_nbytes(layout) ? NGS_BAD_BUFFER : NGS_OK;
}

int32_t ngs_init(ngs_cache *cache, const ngs_config *config, void *buffer, int64_t nbytes, void *scratch,
                 int64_t scratch_nbytes) {
    Layout layout;
    int status = good_call(cache, config, &layout, buffer, nbytes);
    if (!status) status = bind(cache, config, buffer, scratch, scratch_nbytes);
    if (status) return status;
    memset(buffer, 0, (size_t)nbytes);
    format(&layout, config->digest, buffer);
    return NGS_OK;
}

int32_t ngs_attach(ngs_cache *cache, const ngs_config *config, void *buffer, int64_t nbytes, void *scratch,
                   int64_t scratch_nbytes, int32_t flags) {
    Layout layout;
    int status = good_call(cache, config, &layout, buffer, nbytes);
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
