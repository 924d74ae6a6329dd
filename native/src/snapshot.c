/* Snapshots that Python wrote (caches/image.py, snapshot.py), and the keys that both sides give to names; part of
 * ngramspec.c. */
#include "blake2b.h"
#include "check.h"

/* Words of a snapshot's head, which an arena of the shared components follows. */
enum {
    H_MAGIC = 0, H_FORMAT = 1, H_LAYOUT = 2, H_NBYTES = 3, H_CHECKSUM = 4, H_TOKENIZER = 8, H_VOCAB = 10, H_N_EOS = 11,
    H_NAME = 12, H_KIND = 28, H_EOS0 = 32, FORMAT_VERSION = 1
};

#define SNAPSHOT_MAGIC INT64_C(0x70616e736d72676e) /* "ngrmsnap", little end first */

uint64_t ngs_tenant_key(const char *name, int64_t n) {
    Blake2b s;
    uint64_t key;
    hash_begin(&s, 8);
    if (n > 0) hash_add(&s, name, (size_t)n);
    hash_end(&s, &key, 1);
    return key;
}

/* Whether the head and what follows it are as they were written. */
static int is_whole(const i64 *head, i64 nbytes) {
    i64 blank[WORDS];
    uint64_t checksum[4];
    Blake2b s;
    memcpy(blank, head, sizeof blank);
    memset(blank + H_CHECKSUM, 0, sizeof checksum);
    hash_begin(&s, sizeof checksum);
    hash_add(&s, blank, sizeof blank);
    hash_add(&s, head + WORDS, (size_t)nbytes - sizeof blank);
    hash_end(&s, checksum, 4);
    return memcmp(checksum, head + H_CHECKSUM, sizeof checksum) == 0;
}

/* Whether a snapshot is of this kind of cache, of its vocabulary and ends, and of this tokenizer. */
static int suits(const ngs_cache *cache, const i64 *head, const void *tokenizer, i64 n) {
    static const char kinds[][32] = {"", "rolling-hash", "", "ngramspec"};
    const i64 *hr = cache->requests;
    uint64_t fingerprint[2] = {0, 0};
    if (n) {
        Blake2b s;
        hash_begin(&s, sizeof fingerprint);
        hash_add(&s, tokenizer, (size_t)n);
        hash_end(&s, fingerprint, 2);
    }
    for (int i = H_NAME; i < H_KIND; i++)
        if (head[i]) return 0; /* only a corpus has a name */
    if (memcmp(head + H_KIND, kinds[cache->kind], sizeof kinds[0]) || head[H_VOCAB] != hr[R_VOCAB]) return 0;
    if (head[H_N_EOS] != hr[R_N_EOS] || memcmp(head + H_EOS0, hr + R_EOS0, sizeof(i64) * (size_t)hr[R_N_EOS])) return 0;
    return memcmp(head + H_TOKENIZER, fingerprint, sizeof fingerprint) == 0;
}

/* The components that a snapshot of this cache consists of: its own, without what only steers look-ups. */
static void add_shared(const ngs_cache *cache, Layout *layout) {
    const i64 *hs = cache->shared;
    i32 orders[MAX_ORDERS];
    for (i64 i = 0; i < hs[S_ORDERS]; i++) orders[i] = (i32)hs[S_ORDER0 + i];
    add_store(layout, NAME_SHARED, hs[S_BLOCKS], orders, (int)hs[S_ORDERS], 0, hs[S_TOP]);
    if (cache->kind == NGS_DRAFTER) add_learned(layout, cache->counts[K_ROWS]);
}

/* Whether header words other than a component's own, its offsets and these are zero. */
static int no_other_words(const Component *component, const i64 *h, int first, int last) {
    for (int word = 0; word < WORDS; word++) {
        int known = within(word, first, last);
        for (int i = 0; i < component->n_words; i++) known |= component->words[i].word == word;
        for (int i = 0; i < component->n_sections; i++) known |= component->sections[i].word == word;
        if (!known && h[word]) return 0;
    }
    return 1;
}

/* Copy a component's counters and sections; offsets and look-up settings stay the target's. */
static void copy_component(const Component *component, const i64 *from, const i32 *from_mem, i64 *to, i32 *to_mem,
                           int first, int last) {
    for (int word = first; word <= last; word++)
        if (word != S_HOPS && word != S_TOP) to[word] = from[word];
    for (int i = 0; i < component->n_sections; i++) {
        int word = component->sections[i].word;
        memcpy(to_mem + to[word], from_mem + from[word], 4 * (size_t)component->sections[i].length);
    }
}

int32_t ngs_load(ngs_cache *cache, const void *file, int64_t nbytes, const void *tokenizer, int64_t n_tokenizer) {
    if (!cache || !file || n_tokenizer < 0 || (n_tokenizer && !tokenizer)) return NGS_BAD_ARGUMENT;
    if (cache->kind == NGS_SUFFIX_TRIE) return NGS_UNSUPPORTED;
    if ((uintptr_t)file % 8 || nbytes < 8 * WORDS) return NGS_BAD_BUFFER;
    const i64 *head = file;
    if (head[H_MAGIC] != SNAPSHOT_MAGIC || head[H_FORMAT] != FORMAT_VERSION || head[H_LAYOUT] != LAYOUT_VERSION)
        return NGS_OTHER_STATE;
    if (head[H_NBYTES] != nbytes - 8 * WORDS || !is_whole(head, nbytes)) return NGS_DAMAGED_FILE;
    if (!suits(cache, head, tokenizer, n_tokenizer)) return NGS_OTHER_STATE;
    for (i64 row = 0; row < cache->requests[R_ROWS]; row++)
        if (cache->mem[row_at(cache->requests, row) + T_STATE] == LIVE) return NGS_BUSY;
    Layout layout = {0};
    add_shared(cache, &layout);
    void *image = (void *)(uintptr_t)(head + WORDS); /* only read */
    if (head[H_NBYTES] != layout_nbytes(&layout)) return NGS_OTHER_STATE;
    if (!is_formatted(&layout, header_of(image, -1)[A_DIGEST], image)) return NGS_OTHER_STATE;

    ngs_cache there = *cache; /* as if the file were the cache's buffer */
    there.mem = image;
    there.shared = header_of(image, 0);
    there.counts = header_of(image, 1);
    there.mixer = header_of(image, 2);
    int has_counts = cache->kind == NGS_DRAFTER;
    if (!no_other_words(&layout.components[0], there.shared, S_CLOCK, S_EVICTED)) return NGS_DAMAGED_TEXT;
    if (!good_ring(there.shared, there.mem, cache->requests[R_VOCAB])) return NGS_DAMAGED_TEXT;
    for (i64 b = 0; b < there.shared[S_BLOCKS]; b++)
        if (there.mem[meta_at(there.shared, b) + M_WRITER]) return NGS_DAMAGED_TEXT;
    if (has_counts) {
        if (!no_other_words(&layout.components[1], there.counts, K_TOKENS, K_TOKENS)) return NGS_DAMAGED_COUNTS;
        if (!no_other_words(&layout.components[2], there.mixer, B_TABLES, B_FINAL)) return NGS_DAMAGED_MIXER;
        if (!good_counts(&there)) return NGS_DAMAGED_COUNTS;
        if (!good_mixer(&there)) return NGS_DAMAGED_MIXER;
    }
    copy_component(&layout.components[0], there.shared, there.mem, cache->shared, cache->mem, S_CLOCK, S_EVICTED);
    if (has_counts) {
        copy_component(&layout.components[1], there.counts, there.mem, cache->counts, cache->mem, K_TOKENS, K_TOKENS);
        copy_component(&layout.components[2], there.mixer, there.mem, cache->mixer, cache->mem, 0, -1);
    }
    return NGS_OK;
}
