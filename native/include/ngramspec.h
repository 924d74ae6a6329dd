/* ngramspec: drafts for speculative decoding from text already seen. C interface.
 *
 * NAME
 *     ngramspec - a cache of token ids that proposes what comes next, over memory that the caller owns
 *
 * SYNOPSIS
 *     ngs_config config = {.struct_size = sizeof config, .kind = NGS_ROLLING_HASH, .vocab_size = 32000, ...};
 *     void *buffer = calloc(1, ngs_bytes(&config)), *scratch = malloc(ngs_scratch_bytes(&config, 16));
 *     ngs_cache cache;
 *     ngs_init(&cache, &config, buffer, ngs_bytes(&config), scratch, ngs_scratch_bytes(&config, 16));
 *     ngs_begin(&cache, &request, prompt, n_prompt, &slot);
 *     for (;;) { ngs_draft_batch(...); verify with the model; ngs_accept_batch(...); }
 *     ngs_finish(&cache, slot);
 *
 * DESCRIPTION
 *     One buffer of fixed size holds everything that is known: text, chains, counts, what was learned. It is the same
 *     buffer, byte for byte, that the Python package keeps and saves: after the same calls both hold the same bytes and
 *     give the same drafts. Nothing in it points anywhere, so it may be copied, mapped, shared and saved.
 *
 *     The library allocates nothing, keeps nothing, starts no thread, reads no clock and uses no floating point.
 *     Probabilities are integers of 30 fractional bits ("q30": 1 << 30 is certainty).
 *
 *     Requests run in slots, from ngs_begin to ngs_finish. An ended request stays as an idle session, to be gone on
 *     with, until its room is needed.
 *
 * MEMORY
 *     The caller owns everything. `buffer` is the state: exactly ngs_bytes(config) long, aligned to 8, writable, and
 *     left alone by everybody else while the cache is in use. `scratch` is room to work in, aligned to 4, at least
 *     ngs_scratch_bytes(config, max_draft) long; nothing in it outlives a call. An ngs_cache holds pointers to both and
 *     nothing else: to close a cache, forget it and free what you allocated.
 *
 *     To keep a state, write the buffer's bytes to a file between two calls; to go on with it, read or map them
 *     (MAP_PRIVATE will do) and call ngs_attach. What all requests share comes in a smaller file, which fits other
 *     max_requests and max_sessions too: Python's snapshot.save writes it and ngs_load opens it. Numbers lie in both as
 *     the machine has them; those of a machine with another byte order are NGS_OTHER_STATE.
 *
 * RETURN VALUE
 *     NGS_OK (0), or a negative ngs_status; ngs_strerror says what it means and what to do. Sizes are returned as
 *     int64_t, negative ones being statuses. A call that fails has changed nothing but, in ngs_init and ngs_attach, the
 *     ngs_cache, which must not be used then. Counts, slots, spans and settings are checked on every call; pointers
 *     have to be what they seem, and arrays as long as their counts say.
 *
 * THREADS
 *     Calls on one buffer must follow one another, whichever ngs_cache they are made with; the library does not lock.
 *     These may be made side by side:
 *       - ngs_draft_batch for different slots, with NGS_UNCOUNTED, each thread with an ngs_cache of its own (a copy,
 *         given scratch of its own by ngs_set_scratch); ngs_count_drafts counts them afterwards, in one thread;
 *       - calls on different buffers, which have nothing to do with each other;
 *       - what takes no ngs_cache: ngs_bytes, ngs_strerror, ngs_block_hashes, ngs_tenant_key and their like.
 *     Processes that map one buffer keep the same rule among themselves. A frozen corpus is never written to: any
 *     number of caches, threads and processes may use it.
 *
 * DETERMINISM
 *     State and drafts depend on the sequence of calls and on nothing else: not on threads, time or compiler. Ranks
 *     that make the same calls hold the same bytes and draft the same tokens.
 *
 * LIMITS
 *     tokens    ids from 0 to vocab_size - 1, at most 2**31 - 1 of them; others are placeholders: kept, never matched
 *               across, never drafted
 *     text      capacity_tokens, from 32 * (2 * max_requests + 2) to 2**31 - 2; the oldest makes room for new
 *     requests  65,536 running (NGS_FULL beyond), 1,000,000 idle sessions; 2**31 - 2 tokens in each
 *     drafts    65,536 tokens a slot (NGS_TOO_WIDE beyond what the scratch was made for)
 *     matches   6 orders, 64 places visited in each, 64 tokens compared backward; in a trie 31 tokens
 *     tables    2**28 trie nodes, 2**31 - 2 counted contexts; 16 end ids
 *     Probabilities are calibrated by the drafter alone; the other kinds' are shares of what was seen.
 *
 * COSTS
 *     Memory: ngs_bytes, ngs_scratch_bytes, less than 16 KiB of stack. With four orders 41 bytes a token of capacity,
 *     57 with a drafter's counts; 44 bytes a trie node.
 *     Time, by calls, on one core of a server (README.md says how it was measured):
 *       ngs_begin         a look at every row, then O(orders) a prompt token, some 0.05 us; in a trie O(depth), 0.16 us
 *       ngs_draft_batch   O(orders * max_hops) look-ups and O(max_draft) tree nodes a slot: 1 to 9 us, whatever the
 *                         length of the text
 *       ngs_accept_batch  0.3 to 1.3 us a token in batches; ngs_truncate: as much for a token taken back
 *       ngs_finish        O(1), and the blocks of the session that makes room
 *       ngs_init          writes the whole buffer
 *       ngs_check         reads the whole state: 20 ms for a million tokens, more for a trie; so does ngs_attach
 *       ngs_load          checks and copies the file, checksum included: 200 ms for a million tokens
 */
#ifndef NGRAMSPEC_H
#define NGRAMSPEC_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32) && defined(NGS_SHARED)
#define NGS_API __declspec(dllexport)
#elif defined(__GNUC__)
#define NGS_API __attribute__((visibility("default")))
#else
#define NGS_API
#endif

/* Changes whenever a caller must be compiled anew, or the layout of the buffer differs. */
#define NGS_ABI_VERSION 1

typedef enum ngs_status {
    NGS_OK = 0,
    NGS_BAD_ARGUMENT = -1,    /* a null pointer, a count or value out of range, a struct_size of another version */
    NGS_BAD_CONFIG = -2,      /* a setting out of range */
    NGS_BAD_BUFFER = -3,      /* of another size than ngs_bytes says, or not aligned */
    NGS_OTHER_STATE = -4,     /* a sound state or file, but of other settings, another version or tokenizer */
    NGS_BAD_SCRATCH = -5,     /* too small, or not aligned */
    NGS_BAD_SLOT = -6,        /* no running request has it (or, for rows: it is not idle or free) */
    NGS_FULL = -7,            /* max_requests are running */
    NGS_TOO_WIDE = -8,        /* more tokens a slot than the scratch was made for */
    NGS_DAMAGED_ROWS = -9,    /* from here on: what ngs_attach, ngs_check and ngs_load found unsound */
    NGS_DAMAGED_TEXT = -10,
    NGS_DAMAGED_COUNTS = -11,
    NGS_DAMAGED_MIXER = -12,
    NGS_DAMAGED_OFFERS = -13,
    NGS_DAMAGED_TRIE = -14,
    NGS_UNSUPPORTED = -15,    /* not with this kind of cache */
    NGS_DAMAGED_FILE = -16,   /* shorter or longer than it says, or its checksum differs */
    NGS_BUSY = -17            /* requests are running */
} ngs_status;

/* Which cache: where have we been; what usually follows; both, and learning from every emitted token. */
typedef enum ngs_kind { NGS_ROLLING_HASH = 1, NGS_SUFFIX_TRIE = 2, NGS_DRAFTER = 3 } ngs_kind;

/* What later requests of the tenant may see of a request. */
typedef enum ngs_share { NGS_SHARE_NONE = 0, NGS_SHARE_OUTPUTS = 1, NGS_SHARE_ALL = 2 } ngs_share;

/* Why a draft is empty. */
typedef enum ngs_reason {
    NGS_DRAFTED = 0,
    NGS_TOO_SHORT = 1,    /* no token yet, or the prompt is not ingested to its end */
    NGS_NO_MATCH = 2,     /* nothing known followed this context */
    NGS_BELOW_MIN = 3,    /* the best candidate's path probability was below the minimum */
    NGS_BUDGET = 4,       /* max_draft was 0 */
    NGS_LENGTH_LIMIT = 5  /* `remaining` left no room beside the bonus token */
} ngs_reason;

/* Flags of ngs_attach and ngs_draft_batch. */
enum {
    NGS_TREE = 0,      /* draft a tree */
    NGS_CHAIN = 1,     /* draft a chain */
    NGS_UNCOUNTED = 2, /* leave the counters alone, so that other threads may draft too */
    NGS_TRUSTED = 4    /* attach to a state of this process's own making without ngs_check */
};

/* Settings; fields that a kind does not have are not read. The same names and defaults as in Python's HashConfig,
 * TrieConfig and DrafterConfig, but that 0 is no default: give every field of the kind. */
typedef struct ngs_config {
    uint32_t struct_size;     /* sizeof(ngs_config) */
    int32_t kind;             /* ngs_kind */
    int64_t digest;           /* the caller's own mark of these settings; ngs_attach refuses a state with another one */
    int64_t capacity_tokens;  /* tokens of text kept, own and shared; at least 32 * (2 * max_requests + 2) */
    int32_t vocab_size;       /* ids at or above it are placeholders */
    int32_t n_eos;            /* ids after which a draft stops, at most 16 */
    int32_t eos_ids[16];
    int32_t max_requests;     /* 1 to 65,536 */
    int32_t max_sessions;     /* ended requests kept, 0 to 1,000,000 */
    /* Rolling hash and drafter. */
    int32_t n_orders;         /* 1 to 6 */
    int32_t orders[6];        /* context lengths at which positions are chained, ascending, 1 to max_match */
    int32_t max_hops;         /* positions visited an order and look-up, 1 to 64 */
    int32_t max_match;        /* tokens compared backward, 1 to 64 */
    int32_t shared_percent;   /* share of the capacity for what others may see, 0 to 95 */
    /* Drafter. */
    int32_t counted_rows;     /* counted contexts, an even number; about 16 for each shared block of 32 tokens */
    int32_t deferred;         /* not 0: learn from a step in ngs_settle_batch, or with the next one */
    /* Suffix trie. */
    int32_t depth;            /* tokens of a counted context and its follower, 2 to 32 */
    int32_t max_followers;    /* followers that a draft looks at, 1 to 64 */
    int32_t max_nodes;        /* at least depth * (depth - 1) / 2 + 3, at most 2**28 */
} ngs_config;

/* A cache in use: pointers into the caller's buffer and scratch. Filled by ngs_init and ngs_attach, to be changed by
 * nobody; may be copied and dropped, the state is in the buffer. */
typedef struct ngs_cache {
    int32_t kind, deferred, max_requests, max_sessions, width;
    int64_t *requests, *own, *shared, *counts, *mixer, *offers, *trie, *frozen;
    int32_t *mem, *frozen_mem, *scratch;
} ngs_cache;

/* A request to begin. `resume_slot` and `resume_serial` name an idle session to go on with (what ngs_begin returned
 * for it, and what ngs_serial did before it ended), if it is still there; resume_slot = -1: none. */
typedef struct ngs_request {
    uint32_t struct_size; /* sizeof(ngs_request) */
    int32_t share;        /* ngs_share */
    uint64_t tenant;      /* nothing crosses tenants */
    int32_t resume_slot;
    int32_t resume_serial;
} ngs_request;

/* Where drafts go: one row of `width` entries a slot; entries from n_draft on are left alone. Every parent comes before
 * its children, and tokens in falling path probability, so that any prefix is the best draft of its size. */
typedef struct ngs_drafts {
    uint32_t struct_size;  /* sizeof(ngs_drafts) */
    int32_t width;         /* most tokens a slot */
    int32_t *tokens;       /* [n, width] */
    int32_t *parents;      /* [n, width], index in the row; -1 is the last committed token */
    int32_t *path_q30;     /* [n, width], probability that the whole path down to the token is emitted */
    int8_t *sources;       /* [n, width], 1 own text, 2 shared, 3 counts, 4 frozen */
    int32_t *n_draft;      /* [n] */
    int32_t *match_length; /* [n], tokens of context behind the draft */
    int32_t *reason;       /* [n], ngs_reason */
} ngs_drafts;

/* ---- Sizes and versions ------------------------------------------------------------------------------------------ */

NGS_API int32_t ngs_abi_version(void);

/* What a status means and what to do; never NULL. */
NGS_API const char *ngs_strerror(int32_t status);

/* Bytes of a cache's state, or a negative status. */
NGS_API int64_t ngs_bytes(const ngs_config *config);

/* Bytes of scratch for drafts of up to `max_draft` tokens (1 to 65,536) a slot, or a negative status. */
NGS_API int64_t ngs_scratch_bytes(const ngs_config *config, int32_t max_draft);

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

/* Make an empty cache in `buffer` (aligned to 8, exactly ngs_bytes long, overwritten); `scratch` (aligned to 4) decides
 * how wide drafts may be. A drafter starts without a prior: see ngs_set_prior. */
NGS_API int32_t ngs_init(ngs_cache *cache, const ngs_config *config, void *buffer, int64_t nbytes, void *scratch,
                         int64_t scratch_nbytes);

/* Open a state that is there already. Its layout, settings and digest must be the configuration's; unless
 * NGS_TRUSTED is given every number in it is checked as by ngs_check, so that no call can leave the buffer. */
NGS_API int32_t ngs_attach(ngs_cache *cache, const ngs_config *config, void *buffer, int64_t nbytes, void *scratch,
                           int64_t scratch_nbytes, int32_t flags);

/* Give an open cache, or a copy of it for another thread, scratch of its own. */
NGS_API int32_t ngs_set_scratch(ngs_cache *cache, void *scratch, int64_t nbytes);

/* Check everything that the functions here rely on, in O(state); changes nothing. */
NGS_API int32_t ngs_check(const ngs_cache *cache);

/* Numbers of a drafter's prior: what it believes before the first token. `ngramspec native prior FILE` writes the one
 * that comes with the package (int32, little end first). */
#define NGS_PRIOR_SIZE 14456

/* Write a prior into a drafter that has learned nothing yet; entries out of range are NGS_BAD_ARGUMENT. */
NGS_API int32_t ngs_set_prior(ngs_cache *cache, const int32_t *prior, int64_t n);

/* Replace what is shared by that of a snapshot (`ngramspec.snapshot.save` of a cache with the same settings, as far as
 * they shape what is shared), given as the whole file in memory, aligned to 8. `tokenizer`: the bytes or the name that
 * it was saved with, or NULL and 0. Nothing may be running; nothing is changed when it is refused. */
NGS_API int32_t ngs_load(ngs_cache *cache, const void *file, int64_t nbytes, const void *tokenizer,
                         int64_t n_tokenizer);

/* Key of a tenant's name, the same as Python's; an empty name is Python's "no tenant". */
NGS_API uint64_t ngs_tenant_key(const char *name, int64_t n);

/* Let a drafter's requests be drafted from a frozen corpus too (the state of a Python FrozenCorpus of the same
 * vocabulary and orders, and at least the same max_match), from the next call on; NULL and 0: from none. What waits is
 * learned first. The corpus is not written to, and is checked unless NGS_TRUSTED is given. */
NGS_API int32_t ngs_use_corpus(ngs_cache *cache, void *buffer, int64_t nbytes, int32_t flags);

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

/* Start a request and ingest its prompt; `slot` receives its number, valid until ngs_finish. */
NGS_API int32_t ngs_begin(ngs_cache *cache, const ngs_request *request, const int32_t *prompt, int64_t n_prompt,
                          int32_t *slot);

/* The parts of ngs_begin, for callers that ingest a prompt piece by piece or look for sessions by themselves: a free
 * row (or that of the idle session used least recently; NGS_FULL when all run); how many tokens an idle row's text
 * shares with a prompt; the start of a request of `n_prompt` tokens in a row that keeps `n_keep` of them; and appending
 * prompt tokens to it. */
NGS_API int32_t ngs_take_row(ngs_cache *cache);
NGS_API int64_t ngs_common_prefix(const ngs_cache *cache, int32_t row, const int32_t *tokens, int64_t n_tokens);
NGS_API int32_t ngs_begin_row(ngs_cache *cache, int32_t row, int64_t n_keep, int64_t n_prompt, int32_t share,
                              uint64_t tenant);
NGS_API int32_t ngs_ingest(ngs_cache *cache, int32_t slot, const int32_t *tokens, int64_t n_tokens);

/* Serial of a running request, to go on with its session later; negative: a status. */
NGS_API int32_t ngs_serial(const ngs_cache *cache, int32_t slot);

/* Draft for `n` slots, each at most once, into `out`. `max_draft` [n]: most tokens a slot, capped at out->width and at
 * what the scratch was made for. `remaining` [n] or NULL: tokens that a request may still emit, negative: unknown.
 * `min_path_q30`: leave out what is less probable. `flags`: NGS_TREE or NGS_CHAIN, NGS_UNCOUNTED. */
NGS_API int32_t ngs_draft_batch(ngs_cache *cache, const int32_t *slots, int32_t n, const int32_t *max_draft,
                                const int32_t *remaining, int32_t min_path_q30, int32_t flags, const ngs_drafts *out);

/* Index of the first of `n` slots that no running request has, of the first span that does not lie within the tokens;
 * -1: all are fine. */
NGS_API int32_t ngs_bad_slot(const ngs_cache *cache, const int32_t *slots, int32_t n);
NGS_API int32_t ngs_bad_span(const int32_t *offsets, int32_t n, int64_t n_tokens);

/* Hash of the first 1, 2, ... blocks of 32 tokens, into `hashes` [n_tokens / 32]: a key by which to find an ended
 * request whose text a prompt repeats. */
NGS_API void ngs_block_hashes(const int32_t *tokens, int64_t n_tokens, int64_t *hashes);

/* Count `n` drafts made with NGS_UNCOUNTED. */
NGS_API int32_t ngs_count_drafts(ngs_cache *cache, const int32_t *reason, int32_t n);

/* Append emitted tokens (accepted drafts and the bonus token): tokens[offsets[i]] to tokens[offsets[i + 1] - 1] to
 * slots[i]. An empty span says that nothing of the last draft was right and nothing was emitted: the same first tokens
 * are not offered again before progress. */
NGS_API int32_t ngs_accept_batch(ngs_cache *cache, const int32_t *slots, int32_t n, const int32_t *tokens,
                                 int64_t n_tokens, const int32_t *offsets);

/* Learn from steps whose next draft has been handed out, in a drafter whose `deferred` is set. Optional: what is not
 * settled here is settled by the slot's next ngs_accept_batch, with the same result. Call it while the model runs. */
NGS_API int32_t ngs_settle_batch(ngs_cache *cache, const int32_t *slots, int32_t n);

/* Keep the first `n_tokens` tokens of a request, prompt and output. */
NGS_API int32_t ngs_truncate(ngs_cache *cache, int32_t slot, int64_t n_tokens);

/* End a request; its text waits as an idle session. */
NGS_API int32_t ngs_finish(ngs_cache *cache, int32_t slot);

#ifdef __cplusplus
}
#endif

#endif
