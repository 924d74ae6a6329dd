/* What the fuzz targets share: how bytes become calls, and a main for compilers without libFuzzer.
 *
 * Build a target with libFuzzer (clang -fsanitize=fuzzer,address,undefined), or with -DNGS_FUZZ_MAIN for a program that
 * runs files, or random inputs for a number of seconds: `fuzz 60`. */
#ifndef NGS_FUZZING_H
#define NGS_FUZZING_H

#include <ngramspec.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 8, MAX_SLOTS = 4, WIDTH = 12, MAX_TEXT = 60 };

typedef struct {
    const uint8_t *data;
    size_t size;
} Input;

static uint32_t take(Input *in) {
    if (in->size == 0) return 0;
    in->size--;
    return *in->data++;
}

/* A small cache of this kind and so many blocks beyond the fewest; targets change what they are about. */
static inline ngs_config small_config(int32_t kind, int64_t n_blocks) {
    ngs_config config = {.struct_size = sizeof config, .kind = kind, .vocab_size = VOCAB};
    config.capacity_tokens = 32 * (2 * MAX_SLOTS + 2 + n_blocks);
    config.n_eos = 1;
    config.eos_ids[0] = VOCAB - 1;
    config.max_requests = MAX_SLOTS;
    config.max_sessions = 2;
    config.n_orders = 3;
    memcpy(config.orders, (int32_t[]){1, 2, 4}, 3 * sizeof(int32_t));
    config.max_hops = 8;
    config.max_match = 16;
    config.shared_percent = 50;
    config.counted_rows = 32;
    config.depth = 4;
    config.max_followers = 8;
    config.max_nodes = 100;
    return config;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int condition, const char *what) {
    if (condition) return;
    fprintf(stderr, "fuzz: %s\n", what);
    abort();
}

/* Up to `most` tokens, mostly such as occurred before. */
static int32_t text(Input *in, int32_t *tokens, uint32_t most) {
    int32_t n = (int32_t)(take(in) % (most + 1));
    for (int32_t i = 0; i < n; i++) {
        uint32_t byte = take(in);
        tokens[i] = byte >= 250 ? -1 : byte >= 128 && i >= 3 ? tokens[i - 3] : (int32_t)(byte % VOCAB);
    }
    return n;
}

/* Slots that run, by asking. */
static int32_t running(const ngs_cache *cache, int32_t *slots) {
    int32_t n = 0;
    for (int32_t slot = 0; slot < 2 * MAX_SLOTS && n < MAX_SLOTS; slot++)
        if (ngs_bad_slot(cache, &slot, 1) < 0) slots[n++] = slot;
    return n;
}

static void draft(ngs_cache *cache, Input *in, const int32_t *slots, int32_t n) {
    int32_t tokens[MAX_SLOTS * WIDTH], parents[MAX_SLOTS * WIDTH], paths[MAX_SLOTS * WIDTH], n_draft[MAX_SLOTS];
    int32_t match[MAX_SLOTS], reason[MAX_SLOTS], most[MAX_SLOTS], remaining[MAX_SLOTS];
    int8_t sources[MAX_SLOTS * WIDTH];
    ngs_drafts out = {sizeof out, WIDTH, tokens, parents, paths, sources, n_draft, match, reason};
    for (int32_t i = 0; i < n; i++) {
        most[i] = (int32_t)(take(in) % (WIDTH + 2));
        remaining[i] = (int32_t)(take(in) % 8) - 1;
    }
    int32_t flags = take(in) % 2 ? NGS_CHAIN : NGS_TREE, min_q30 = take(in) % 4 ? 0 : 1 << 27;
    must(ngs_draft_batch(cache, slots, n, most, remaining, min_q30, flags, &out) == NGS_OK, "draft refused");
    for (int32_t i = 0; i < n; i++) {
        must(n_draft[i] >= 0 && n_draft[i] <= WIDTH, "draft longer than asked");
        must((n_draft[i] > 0) == (reason[i] == NGS_DRAFTED), "reason and length disagree");
        for (int32_t j = 0; j < n_draft[i]; j++) {
            must(tokens[i * WIDTH + j] >= 0 && tokens[i * WIDTH + j] < VOCAB, "drafted token does not exist");
            must(parents[i * WIDTH + j] >= -1 && parents[i * WIDTH + j] < j, "parent does not come first");
        }
    }
}

static void call(ngs_cache *cache, Input *in) {
    int32_t tokens[MAX_SLOTS * MAX_TEXT], slots[MAX_SLOTS], offsets[MAX_SLOTS + 1] = {0}, slot;
    int32_t n = running(cache, slots);
    uint32_t which = take(in) % 8;
    if (which == 0) {
        ngs_request request = {sizeof request, (int32_t)(take(in) % 3), take(in) % 2, (int32_t)(take(in) % 8) - 1,
                               (int32_t)take(in)};
        int32_t status = ngs_begin(cache, &request, tokens, text(in, tokens, MAX_TEXT), &slot);
        must(status == (n == MAX_SLOTS ? NGS_FULL : NGS_OK), "begin");
    } else if (n == 0) {
        return;
    } else if (which <= 2) {
        draft(cache, in, slots, 1 + (int32_t)(take(in) % (uint32_t)n));
    } else if (which <= 4) {
        for (int32_t i = 0; i < n; i++) offsets[i + 1] = offsets[i] + text(in, tokens + offsets[i], 6);
        must(ngs_accept_batch(cache, slots, n, tokens, offsets[n], offsets) == NGS_OK, "accept");
    } else if (which == 5) {
        slot = slots[take(in) % (uint32_t)n];
        int64_t length = (int64_t)(take(in) % 64);
        ngs_truncate(cache, slot, length); /* refused when it is shorter */
    } else if (which == 6) {
        must(ngs_finish(cache, slots[take(in) % (uint32_t)n]) == NGS_OK, "finish");
    } else {
        ngs_settle_batch(cache, slots, n); /* refused by other kinds */
    }
}

#ifdef NGS_FUZZ_MAIN
#include <time.h>

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void run_file(const char *path) {
    static uint8_t data[1 << 16];
    FILE *file = fopen(path, "rb");
    must(file != NULL, path);
    LLVMFuzzerTestOneInput(data, fread(data, 1, sizeof data, file));
    fclose(file);
}

int main(int argc, char **argv) {
    uint8_t data[1200];
    uint64_t state = 88172645463325252u + (argc > 2 ? strtoull(argv[2], NULL, 10) : 0), n = 0;
    if (argc > 1 && (argv[1][0] < '0' || argv[1][0] > '9')) {
        for (int i = 1; i < argc; i++) run_file(argv[i]);
        return 0;
    }
    time_t end = time(NULL) + (argc > 1 ? atoi(argv[1]) : 10);
    while (time(NULL) < end) {
        size_t size = 2 + next_random(&state) % (sizeof data - 2);
        for (size_t i = 0; i < size; i++) data[i] = (uint8_t)(next_random(&state) >> 24);
        FILE *last = fopen("last-input", "wb"); /* what to look at after a crash */
        if (last) {
            fwrite(data, 1, size, last);
            fclose(last);
        }
        LLVMFuzzerTestOneInput(data, size);
        n++;
    }
    printf("%llu inputs\n", (unsigned long long)n);
    return 0;
}
#endif

#endif
