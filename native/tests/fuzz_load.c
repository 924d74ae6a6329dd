/* Fuzzing ngs_load: a snapshot of any content is refused, changing nothing, or is as safe as one that was saved.
 *
 * An input is a kind, calls from which the snapshot is made as Python makes it, damage to the snapshot, and calls of
 * the cache that is to load it. Most damaged files get the checksum that belongs to them: what a checksum finds needs
 * no fuzzing. */
#include "../src/blake2b.h"
#include "../src/layout.h"
#include "fuzzing.h"

enum { HEAD_WORDS = 64, H_CHECKSUM = 4, H_VOCAB = 10, H_N_EOS = 11, H_KIND = 28, H_EOS0 = 32 };

static ngs_config config_of(uint32_t choice) {
    /* The drafter's mixer takes fifty times as long to hash: rarely. */
    ngs_config config = small_config(choice % 32 == 31 ? NGS_DRAFTER : NGS_ROLLING_HASH, 2 * (choice / 8 % 4));
    config.deferred = (int32_t)(choice / 64 % 2);
    return config;
}

static ngs_cache opened(const ngs_config *config) {
    int64_t nbytes = ngs_bytes(config), scratch_nbytes = ngs_scratch_bytes(config, WIDTH);
    ngs_cache cache;
    void *buffer = malloc((size_t)nbytes), *scratch = malloc((size_t)scratch_nbytes);
    must(ngs_init(&cache, config, buffer, nbytes, scratch, scratch_nbytes) == NGS_OK, "init");
    return cache;
}

static void closed(ngs_cache *cache) {
    free(cache->mem);
    free(cache->scratch);
}

/* Components of a snapshot of this cache. */
static Layout shared_layout(const ngs_cache *cache, const ngs_config *config) {
    Layout layout = {0};
    add_store(&layout, NAME_SHARED, cache->shared[S_BLOCKS], config->orders, config->n_orders, 0, config->max_match);
    if (config->kind == NGS_DRAFTER) add_learned(&layout, config->counted_rows);
    return layout;
}

/* A component's state, but its offsets, the look-up setting that stays behind, and who writes. */
static void copy(const Component *component, const int64_t *from, const int32_t *mem, int64_t *to, int32_t *image) {
    int64_t was[HEAD_WORDS];
    memcpy(was, to, sizeof was);
    memcpy(to, from, sizeof was);
    for (int i = 0; i < component->n_sections; i++) {
        int word = component->sections[i].word;
        to[word] = was[word];
        memcpy(image + to[word], mem + from[word], 4 * (size_t)component->sections[i].length);
    }
    if (component->name != NAME_SHARED) return;
    to[S_HOPS] = was[S_HOPS];
    for (int64_t b = 0; b < to[S_BLOCKS]; b++) image[to[S_META] + b * META + M_WRITER] = 0;
}

static void seal(int64_t *file, int64_t nbytes) {
    uint64_t sum[4];
    Blake2b s;
    memset(file + H_CHECKSUM, 0, sizeof sum);
    hash_begin(&s, sizeof sum);
    hash_add(&s, file, (size_t)nbytes);
    hash_end(&s, sum, 4);
    memcpy(file + H_CHECKSUM, sum, sizeof sum);
}

/* A snapshot of the cache; `nbytes` receives its length. */
static int64_t *saved(const ngs_cache *cache, const ngs_config *config, int64_t *nbytes) {
    Layout layout = shared_layout(cache, config);
    int64_t image = layout_nbytes(&layout);
    int64_t *file = calloc(1, 8 * HEAD_WORDS + (size_t)image);
    *nbytes = 8 * HEAD_WORDS + image;
    memcpy(file, "ngrmsnap", 8);
    file[1] = file[2] = 1;
    file[3] = image;
    file[H_VOCAB] = config->vocab_size;
    file[H_N_EOS] = 1;
    file[H_EOS0] = config->eos_ids[0];
    if (config->kind == NGS_DRAFTER)
        memcpy(file + H_KIND, "ngramspec", 9);
    else
        memcpy(file + H_KIND, "rolling-hash", 12);
    void *arena = file + HEAD_WORDS;
    format(&layout, 5, arena);
    const int64_t *from[] = {cache->shared, cache->counts, cache->mixer};
    for (int i = 0; i < layout.n; i++) copy(&layout.components[i], from[i], cache->mem, header_of(arena, i), arena);
    seal(file, *nbytes);
    return file;
}

/* A bit anywhere, a small number into a field, or one into a word of a header. */
static void damage(int64_t *file, Input *in, int64_t nbytes) {
    int64_t at = take(in) | take(in) << 8 | take(in) << 16;
    uint32_t how = take(in);
    if (how % 4 == 0)
        ((uint8_t *)file)[at % nbytes] ^= (uint8_t)(1u << (how / 4 % 8));
    else if (how % 4 == 1)
        file[at % (3 * HEAD_WORDS)] = (int64_t)(how / 4) - 4;
    else
        ((int32_t *)file)[at % (nbytes / 4)] = (int32_t)(how / 4) - 4;
}

static void finish_all(ngs_cache *cache) {
    int32_t slots[MAX_SLOTS];
    int32_t n = running(cache, slots);
    for (int32_t i = 0; i < n; i++) must(ngs_finish(cache, slots[i]) == NGS_OK, "finish");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Input in = {data, size};
    ngs_config config = config_of(take(&in));
    ngs_cache source = opened(&config), cache = opened(&config);
    int64_t nbytes, state = ngs_bytes(&config);
    for (uint32_t n = take(&in) % 48; n > 0; n--) call(&source, &in);
    int64_t *file = saved(&source, &config, &nbytes);
    closed(&source);
    uint32_t how = take(&in), n_damaged = how % 4;
    int64_t given = how / 4 % 8 ? nbytes : (int64_t)(take(&in) | take(&in) << 8) % nbytes;
    for (uint32_t n = n_damaged; n > 0; n--) damage(file, &in, nbytes);
    if (how / 32 % 8) seal(file, nbytes);
    int64_t *exact = malloc((size_t)given + 1); /* so that a sanitizer sees a read beyond its end */
    memcpy(exact, file, (size_t)given);
    free(file);
    for (uint32_t n = take(&in) % 16; n > 0; n--) call(&cache, &in);
    finish_all(&cache);
    void *before = malloc((size_t)state);
    memcpy(before, cache.mem, (size_t)state);
    int32_t status = ngs_load(&cache, exact, given, NULL, 0);
    must(status <= NGS_OK, "status");
    if (status) {
        must(memcmp(before, cache.mem, (size_t)state) == 0, "a refused file changed the cache");
        must(n_damaged || given < nbytes, "a good file is refused");
    }
    free(before);
    free(exact);
    must(ngs_check(&cache) == NGS_OK, "a loaded state is unsound");
    while (in.size) call(&cache, &in);
    must(ngs_check(&cache) == NGS_OK, "a loaded state became unsound");
    closed(&cache);
    return 0;
}
