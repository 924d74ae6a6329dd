/* Which components a configuration needs, and where their sections lie; see arena.py and config.py. */
#ifndef NGS_LAYOUT_H
#define NGS_LAYOUT_H

#include <stddef.h>
#include <string.h>

#include "../include/ngramspec.h"
#include "store.h"

enum { MAX_COMPONENTS = 6, MAX_WORDS = 24, MAX_SECTIONS = 5 };

/* One part of the buffer: header words and their start values; header words that hold offsets, and lengths (int32). */
typedef struct {
    i64 name;
    int n_words, n_sections;
    struct {
        int word;
        i64 value;
    } words[MAX_WORDS];
    struct {
        int word;
        i64 length;
    } sections[MAX_SECTIONS];
} Component;

typedef struct {
    int n;
    Component components[MAX_COMPONENTS];
} Layout;

/* Digests of the components' names, as arena.digest63 makes them. */
#define NAME_REQUESTS INT64_C(0x02e8651ac2f79d88)
#define NAME_OWN INT64_C(0x0b285c3eda2dee76)
#define NAME_SHARED INT64_C(0x05856c17bf54edbe)
#define NAME_COUNTS INT64_C(0x3829581d2b468e97)
#define NAME_MIXER INT64_C(0x73e54b13f63fdb6e)
#define NAME_OFFERS INT64_C(0x389e0396be84d0ec)
#define NAME_TRIE INT64_C(0x3116ec4b0cb6f3bc)
#define NAME_FROZEN INT64_C(0x3e374ece31488cc9)

static inline Component *add_component(Layout *layout, i64 name) {
    Component *c = &layout->components[layout->n++];
    memset(c, 0, sizeof *c);
    c->name = name;
    return c;
}

static inline void add_word(Component *c, int word, i64 value) {
    c->words[c->n_words].word = word;
    c->words[c->n_words++].value = value;
}

static inline void add_section(Component *c, int word, i64 length) {
    c->sections[c->n_sections].word = word;
    c->sections[c->n_sections++].length = length;
}

static inline i64 n_rows_of(const ngs_config *config) { return (i64)config->max_requests + config->max_sessions; }

static inline i64 n_blocks_of(const ngs_config *config) { return (config->capacity_tokens + BLOCK - 1) / BLOCK; }

/* Blocks for the text of running requests and idle sessions. */
static inline i64 n_own_blocks(const ngs_config *config) {
    i64 n = n_blocks_of(config);
    return most_of(2 * (i64)config->max_requests, n - n * config->shared_percent / 100);
}

static inline void add_requests(Layout *layout, const ngs_config *config) {
    Component *c = add_component(layout, NAME_REQUESTS);
    add_word(c, R_ROWS, n_rows_of(config));
    add_word(c, R_VOCAB, config->vocab_size);
    add_word(c, R_N_EOS, config->n_eos);
    for (int i = 0; i < config->n_eos; i++) add_word(c, R_EOS0 + i, config->eos_ids[i]);
    add_section(c, R_OFF, n_rows_of(config) * ROW);
}

static inline void add_store(Layout *layout, i64 name, i64 n_blocks, const i32 *orders, int n_orders, i64 hops,
                             i64 top) {
    Component *c = add_component(layout, name);
    i64 n_positions = n_blocks * BLOCK;
    add_word(c, S_BLOCKS, n_blocks);
    add_word(c, S_HEADS, n_positions);
    add_word(c, S_ORDERS, n_orders);
    add_word(c, S_HOPS, hops);
    add_word(c, S_TOP, top);
    for (int i = 0; i < n_orders; i++) add_word(c, S_ORDER0 + i, orders[i]);
    add_section(c, S_TEXT, n_positions);
    add_section(c, S_META, n_blocks * META);
    if (n_orders == 0) return;
    add_section(c, S_LINKS, n_positions * (1 + n_orders));
    add_section(c, S_HEAD, n_positions * n_orders);
}

static inline void add_texts(Layout *layout, const ngs_config *config) {
    i64 n_own = n_own_blocks(config), n_shared = most_of(1, n_blocks_of(config) - n_own);
    add_store(layout, NAME_OWN, n_own, config->orders, config->n_orders, config->max_hops, config->max_match);
    add_store(layout, NAME_SHARED, n_shared, config->orders, config->n_orders, config->max_hops, config->max_match);
}

static inline void add_learned(Layout *layout, i64 counted_rows) {
    static const int sizes[] = {28 * 128, 169 * 32, 1024 * 32, 169 * 32, 4096 * 24};
    Component *counts = add_component(layout, NAME_COUNTS);
    add_word(counts, K_ROWS, counted_rows);
    add_section(counts, K_OFF, COUNT_ROW * counted_rows);
    Component *mixer = add_component(layout, NAME_MIXER);
    for (int i = B_TABLES; i <= B_FINAL; i++) add_section(mixer, i, sizes[i]);
}

static inline void add_trie(Layout *layout, const ngs_config *config) {
    i64 n = config->max_nodes, bits = 0;
    while (n >> bits) bits++;
    Component *c = add_component(layout, NAME_TRIE);
    add_word(c, X_NODES, n);
    add_word(c, X_DEPTH, config->depth);
    add_word(c, X_FOLLOWERS, config->max_followers);
    add_word(c, X_BITS, bits);
    add_word(c, X_EDGES, EDGES_PER_NODE * n);
    add_section(c, X_NODE, n * NODE);
    add_section(c, X_VERSION, n);
    add_section(c, X_EDGE, EDGES_PER_NODE * n);
    add_section(c, X_PLACE, n_rows_of(config) * PLACE);
}

static inline int within(i64 value, i64 low, i64 high) { return low <= value && value <= high; }

/* What every configuration must keep. */
static inline int good_common(const ngs_config *config) {
    if (!within(config->vocab_size, 1, INT32_MAX) || !within(config->n_eos, 0, MAX_EOS)) return 0;
    for (int i = 0; i < config->n_eos; i++)
        if (!within(config->eos_ids[i], 0, (i64)config->vocab_size - 1)) return 0;
    return within(config->max_requests, 1, 65536) && within(config->max_sessions, 0, 1000000) &&
           within(config->capacity_tokens, BLOCK * (2 * (i64)config->max_requests + 2), INT32_MAX - 1);
}

static inline int good_texts(const ngs_config *config) {
    if (!within(config->n_orders, 1, MAX_ORDERS) || !within(config->max_match, 1, 64)) return 0;
    for (int i = 0; i < config->n_orders; i++)
        if (!within(config->orders[i], i ? (i64)config->orders[i - 1] + 1 : 1, config->max_match)) return 0;
    return within(config->max_hops, 1, 64) && within(config->shared_percent, 0, 95);
}

static inline int good_trie_settings(const ngs_config *config) {
    i64 depth = config->depth;
    return within(depth, 2, 32) && within(config->max_followers, 1, 64) &&
           within(config->max_nodes, depth * (depth - 1) / 2 + 3, 1 << 28);
}

/* Fill the layout of a configuration; NGS_OK or why there is none. */
static inline int layout_of(const ngs_config *config, Layout *layout) {
    layout->n = 0;
    if (!config || config->struct_size != sizeof *config) return NGS_BAD_ARGUMENT;
    if (!good_common(config)) return NGS_BAD_CONFIG;
    add_requests(layout, config);
    if (config->kind == NGS_SUFFIX_TRIE) {
        if (!good_trie_settings(config)) return NGS_BAD_CONFIG;
        add_store(layout, NAME_OWN, n_blocks_of(config), NULL, 0, 0, 0);
        add_trie(layout, config);
        return NGS_OK;
    }
    if (!within(config->kind, NGS_ROLLING_HASH, NGS_DRAFTER) || !good_texts(config)) return NGS_BAD_CONFIG;
    add_texts(layout, config);
    if (config->kind == NGS_ROLLING_HASH) return NGS_OK;
    if (config->counted_rows < 2 || config->counted_rows % 2) return NGS_BAD_CONFIG;
    add_learned(layout, config->counted_rows);
    add_section(add_component(layout, NAME_OFFERS), F_OFF, n_rows_of(config) * OFFER_ROW);
    return NGS_OK;
}

static inline i64 aligned(i64 length) { return (length + 15) & ~(i64)15; } /* sections start on a cache line */

static inline i64 layout_nbytes(const Layout *layout) {
    i64 n = 2 * WORDS * (1 + (i64)layout->n);
    for (int i = 0; i < layout->n; i++)
        for (int j = 0; j < layout->components[i].n_sections; j++)
            n += aligned(layout->components[i].sections[j].length);
    return 4 * n;
}

/* Header of component `i`; -1 is the arena's own. */
static inline i64 *header_of(void *buffer, int i) { return (i64 *)buffer + (i64)WORDS * (1 + i); }

/* Write the headers of an empty state. */
static inline void format(const Layout *layout, i64 digest, void *buffer) {
    i64 *head = header_of(buffer, -1), offset = 2 * WORDS * (1 + (i64)layout->n);
    head[A_MAGIC] = MAGIC;
    head[A_VERSION] = LAYOUT_VERSION;
    head[A_NBYTES] = layout_nbytes(layout);
    head[A_DIGEST] = digest;
    head[A_COMPONENTS] = layout->n;
    for (int i = 0; i < layout->n; i++) {
        const Component *c = &layout->components[i];
        i64 *h = header_of(buffer, i);
        head[A_NAMES + i] = c->name;
        for (int j = 0; j < c->n_words; j++) h[c->words[j].word] = c->words[j].value;
        for (int j = 0; j < c->n_sections; j++) {
            h[c->sections[j].word] = offset;
            offset += aligned(c->sections[j].length);
        }
    }
}

/* Whether the headers are those of a state of this layout and digest. */
static inline int is_formatted(const Layout *layout, i64 digest, void *buffer) {
    const i64 *head = header_of(buffer, -1);
    i64 offset = 2 * WORDS * (1 + (i64)layout->n);
    if (head[A_MAGIC] != MAGIC || head[A_VERSION] != LAYOUT_VERSION || head[A_NBYTES] != layout_nbytes(layout) ||
        head[A_DIGEST] != digest || head[A_COMPONENTS] != layout->n)
        return 0;
    for (int i = 0; i < layout->n; i++) {
        const Component *c = &layout->components[i];
        const i64 *h = header_of(buffer, i);
        if (head[A_NAMES + i] != c->name) return 0;
        for (int j = 0; j < c->n_words; j++)
            if (h[c->words[j].word] != c->words[j].value) return 0;
        for (int j = 0; j < c->n_sections; j++) {
            if (h[c->sections[j].word] != offset) return 0;
            offset += aligned(c->sections[j].length);
        }
    }
    return 1;
}

#endif
