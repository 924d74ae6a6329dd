/* A drafting loop as an engine would write it: draft, verify, accept, from what Python learned, or from nothing.
 *
 *     embed PRIOR [SNAPSHOT] < tokens
 *
 * PRIOR is what `ngramspec native prior` wrote, SNAPSHOT what `ngramspec.snapshot.save` wrote of a drafter with the
 * settings below. Standard input holds numbers: the prompt, -1, the output that the model would emit; the loop verifies
 * against it. Prints what every step drafted, and how many tokens a step emitted. */
#include <ngramspec.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DRAFT = 8, MAX_TOKENS = 1 << 16 };

/* End the program where something is refused. */
static void must(int64_t status, const char *what) {
    if (status >= 0) return;
    fprintf(stderr, "%s: %s\n", what, ngs_strerror((int32_t)status));
    exit(1);
}

/* Fill a buffer from a file; how many bytes it holds. */
static size_t read_file(const char *path, void *buffer, size_t most) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        exit(1);
    }
    size_t n = fread(buffer, 1, most, file);
    fclose(file);
    return n;
}

/* What the model does in a real engine: run the drafted tree in one forward pass and follow its own choices down it.
 * Here the choices are known. Returns how many drafted tokens were right, counted from the root. */
static int32_t verify(const int32_t *tokens, const int32_t *parents, int32_t n, const int32_t *choices, int32_t left) {
    int32_t at = -1, n_right = 0;
    for (int32_t i = 0; i < n && n_right < left; i++)
        if (parents[i] == at && tokens[i] == choices[n_right]) {
            at = i; /* parents come before children, so that one pass follows the path */
            n_right++;
        }
    return n_right;
}

int main(int argc, char **argv) {
    static int32_t text[MAX_TOKENS], prior[NGS_PRIOR_SIZE];
    ngs_config config = {.struct_size = sizeof config, .kind = NGS_DRAFTER, .vocab_size = 1000};
    config.capacity_tokens = 4096;
    config.max_requests = 4;
    config.max_sessions = 4;
    config.n_orders = 4;
    memcpy(config.orders, (int32_t[]){1, 2, 4, 8}, 4 * sizeof(int32_t));
    config.max_hops = 8;
    config.max_match = 32;
    config.shared_percent = 50;
    config.counted_rows = 1024;
    if (argc < 2) {
        fprintf(stderr, "usage: embed PRIOR [SNAPSHOT] < tokens\n");
        return 2;
    }

    int64_t nbytes = ngs_bytes(&config), scratch_nbytes = ngs_scratch_bytes(&config, MAX_DRAFT);
    must(nbytes, "config");
    void *buffer = malloc((size_t)nbytes), *scratch = malloc((size_t)scratch_nbytes);
    ngs_cache cache;
    must(ngs_init(&cache, &config, buffer, nbytes, scratch, scratch_nbytes), "init");
    if (read_file(argv[1], prior, sizeof prior) != sizeof prior) must(NGS_BAD_ARGUMENT, argv[1]);
    must(ngs_set_prior(&cache, prior, NGS_PRIOR_SIZE), argv[1]);
    if (argc > 2) {
        void *file = malloc((size_t)nbytes + 4096); /* what is shared is less than the whole */
        int64_t n_file = (int64_t)read_file(argv[2], file, (size_t)nbytes + 4096);
        must(ngs_load(&cache, file, n_file, NULL, 0), argv[2]);
        free(file);
    }

    int32_t n = 0, n_prompt = -1, slot, token;
    while (n < MAX_TOKENS && scanf("%d", &token) == 1) {
        if (token == -1 && n_prompt < 0)
            n_prompt = n;
        else
            text[n++] = token;
    }
    if (n_prompt < 0) n_prompt = n;

    ngs_request request = {.struct_size = sizeof request, .share = NGS_SHARE_OUTPUTS, .resume_slot = -1};
    request.tenant = ngs_tenant_key("", 0); /* no tenant, as in Python */
    must(ngs_begin(&cache, &request, text, n_prompt, &slot), "begin");

    int32_t tokens[MAX_DRAFT], parents[MAX_DRAFT], paths[MAX_DRAFT], n_draft, match, reason, most = MAX_DRAFT, steps = 0;
    int8_t sources[MAX_DRAFT];
    ngs_drafts drafts = {sizeof drafts, MAX_DRAFT, tokens, parents, paths, sources, &n_draft, &match, &reason};
    for (int32_t at = n_prompt; at < n; steps++) {
        int32_t left = n - at;
        must(ngs_draft_batch(&cache, &slot, 1, &most, &left, 1 << 26, NGS_TREE, &drafts), "draft");
        int32_t n_right = verify(tokens, parents, n_draft, text + at, left);
        int32_t n_emitted = n_right < left ? n_right + 1 : left; /* the model's own next token is the bonus */
        int32_t offsets[2] = {0, n_emitted};
        printf("drafted");
        for (int32_t i = 0; i < n_draft; i++) printf(" %d<%d", tokens[i], parents[i]);
        printf(": %d right\n", n_right);
        must(ngs_accept_batch(&cache, &slot, 1, text + at, n_emitted, offsets), "accept");
        at += n_emitted;
    }
    must(ngs_finish(&cache, slot), "finish");
    printf("%d tokens in %d steps\n", n - n_prompt, steps);
    free(buffer);
    free(scratch);
    return 0;
}
