/* Fuzzing: any sequence of calls keeps the state sound, and a damaged state is refused or as safe as a sound one.
 *
 * An input is a kind, calls, then damage: bytes to overwrite in the state. The state is attached to anew, trusting
 * nothing; when it is accepted, more calls follow, after which ngs_check must still find nothing. */
#include "fuzzing.h"

static ngs_config config_of(uint32_t choice) {
    ngs_config config = small_config(1 + (int32_t)(choice % 3), 2 * (choice / 16 % 4));
    config.max_sessions = (int32_t)(choice / 4 % 4);
    config.deferred = (int32_t)(choice / 64 % 2);
    return config;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Input in = {data, size};
    ngs_config config = config_of(take(&in));
    int64_t nbytes = ngs_bytes(&config), scratch_nbytes = ngs_scratch_bytes(&config, WIDTH);
    uint8_t *buffer = malloc((size_t)nbytes);
    void *scratch = malloc((size_t)scratch_nbytes);
    ngs_cache cache;
    must(ngs_init(&cache, &config, buffer, nbytes, scratch, scratch_nbytes) == NGS_OK, "init");
    for (uint32_t n = take(&in) % 64; n > 0; n--) call(&cache, &in);
    must(ngs_check(&cache) == NGS_OK, "a state of our own making is refused");
    for (uint32_t n = take(&in) % 4; n > 0; n--) { /* anywhere, or a small number into some 32-bit field */
        uint32_t at = take(&in) | take(&in) << 8 | take(&in) << 16;
        if (at & 1) {
            buffer[at % nbytes] = (uint8_t)take(&in);
        } else {
            int32_t value = (int32_t)(take(&in) % 80) - 4;
            memcpy(buffer + at % (nbytes / 4) * 4, &value, sizeof value);
        }
    }
    if (ngs_attach(&cache, &config, buffer, nbytes, scratch, scratch_nbytes, 0) == NGS_OK) {
        while (in.size) call(&cache, &in);
        must(ngs_check(&cache) == NGS_OK, "an accepted state became unsound");
    }
    free(buffer);
    free(scratch);
    return 0;
}
