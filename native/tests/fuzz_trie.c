/* Fuzzing the suffix trie: tries of any shape, mostly full ones, checked after every call.
 *
 * An input is a configuration, calls, then damage to the trie's own sections: nodes, versions, edges, places. The state
 * is attached to anew; when it is accepted, calls follow, each of which must leave a state that ngs_check accepts. */
#include "../src/arena.h"
#include "fuzzing.h"

static ngs_config config_of(Input *in) {
    ngs_config config = {.struct_size = sizeof config, .kind = NGS_SUFFIX_TRIE, .vocab_size = VOCAB};
    config.capacity_tokens = 32 * (2 * MAX_SLOTS + 2) + 32 * (int64_t)(take(in) % 8);
    config.n_eos = (int32_t)(take(in) % 2);
    config.eos_ids[0] = VOCAB - 1;
    config.max_requests = MAX_SLOTS;
    config.max_sessions = (int32_t)(take(in) % 4);
    config.depth = 2 + (int32_t)(take(in) % 8);
    config.max_followers = 1 + (int32_t)(take(in) % 9);
    config.max_nodes = config.depth * (config.depth - 1) / 2 + 3 + (int32_t)(take(in) % 128);
    return config;
}

static void checked_call(ngs_cache *cache, Input *in) {
    call(cache, in);
    must(ngs_check(cache) == NGS_OK, "a call left an unsound state");
}

/* A small number, or a bit, into some field of the trie. */
static void damage(ngs_cache *cache, Input *in, int64_t nbytes) {
    int64_t first = cache->trie[X_NODE], n = nbytes / 4 - first;
    int64_t at = first + (int64_t)(take(in) | take(in) << 8 | take(in) << 16) % n;
    uint32_t how = take(in);
    if (how % 4 == 0)
        cache->mem[at] ^= (int32_t)(1u << (how / 4 % 32));
    else
        cache->mem[at] = (int32_t)(how / 4 + take(in)) - 4;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Input in = {data, size};
    ngs_config config = config_of(&in);
    int64_t nbytes = ngs_bytes(&config), scratch_nbytes = ngs_scratch_bytes(&config, WIDTH);
    void *buffer = malloc((size_t)nbytes), *scratch = malloc((size_t)scratch_nbytes);
    ngs_cache cache;
    must(ngs_init(&cache, &config, buffer, nbytes, scratch, scratch_nbytes) == NGS_OK, "init");
    for (uint32_t n = take(&in) % 64; n > 0; n--) checked_call(&cache, &in);
    for (uint32_t n = take(&in) % 4; n > 0; n--) damage(&cache, &in, nbytes);
    if (ngs_attach(&cache, &config, buffer, nbytes, scratch, scratch_nbytes, 0) == NGS_OK)
        while (in.size) checked_call(&cache, &in);
    free(buffer);
    free(scratch);
    return 0;
}
