/* BLAKE2b without a key (RFC 7693): checksums of snapshots, fingerprints of tokenizers, keys of tenants. */
#ifndef NGS_BLAKE2B_H
#define NGS_BLAKE2B_H

#include <string.h>

#include "arena.h"

enum { HASH_BLOCK = 128, HASH_ROUNDS = 12 };

typedef struct {
    uint64_t h[8];
    uint64_t n_bytes; /* taken in so far */
    uint8_t block[HASH_BLOCK];
    size_t n_block; /* bytes that wait in `block` */
} Blake2b;

static const uint64_t HASH_START[8] = {
    UINT64_C(0x6a09e667f3bcc908), UINT64_C(0xbb67ae8584caa73b), UINT64_C(0x3c6ef372fe94f82b),
    UINT64_C(0xa54ff53a5f1d36f1), UINT64_C(0x510e527fade682d1), UINT64_C(0x9b05688c2b3e6c1f),
    UINT64_C(0x1f83d9abfb41bd6b), UINT64_C(0x5be0cd19137e2179),
};

static inline uint64_t rotate_right(uint64_t x, int n) { return x >> n | x << (64 - n); }

static inline uint64_t word_at(const uint8_t *bytes) {
    uint64_t word = 0;
    for (int i = 7; i >= 0; i--) word = word << 8 | bytes[i];
    return word;
}

/* Mix two words of the message into four of the state. */
static inline void hash_mix(uint64_t *v, int a, int b, int c, int d, uint64_t x, uint64_t y) {
    v[a] += v[b] + x;
    v[d] = rotate_right(v[d] ^ v[a], 32);
    v[c] += v[d];
    v[b] = rotate_right(v[b] ^ v[c], 24);
    v[a] += v[b] + y;
    v[d] = rotate_right(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = rotate_right(v[b] ^ v[c], 63);
}

static inline void hash_block(Blake2b *s, const uint8_t *block, int last) {
    static const uint8_t order[10][16] = {
        {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
        {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
        {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
        {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
        {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
    };
    uint64_t v[16], m[16];
    for (int i = 0; i < 16; i++) m[i] = word_at(block + 8 * i);
    memcpy(v, s->h, sizeof s->h);
    memcpy(v + 8, HASH_START, sizeof HASH_START);
    v[12] ^= s->n_bytes;
    if (last) v[14] = ~v[14];
    for (int round = 0; round < HASH_ROUNDS; round++) {
        const uint8_t *o = order[round % 10];
        for (int i = 0; i < 4; i++) hash_mix(v, i, 4 + i, 8 + i, 12 + i, m[o[2 * i]], m[o[2 * i + 1]]);
        for (int i = 0; i < 4; i++)
            hash_mix(v, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, m[o[8 + 2 * i]], m[o[9 + 2 * i]]);
    }
    for (int i = 0; i < 8; i++) s->h[i] ^= v[i] ^ v[8 + i];
}

static inline void hash_begin(Blake2b *s, int digest_size) {
    memset(s, 0, sizeof *s);
    memcpy(s->h, HASH_START, sizeof HASH_START);
    s->h[0] ^= UINT64_C(0x01010000) ^ (uint64_t)digest_size;
}

static inline void hash_add(Blake2b *s, const void *data, size_t size) {
    const uint8_t *bytes = data;
    while (size > 0) {
        if (s->n_block == HASH_BLOCK) { /* only now is it known not to be the last */
            s->n_bytes += HASH_BLOCK;
            hash_block(s, s->block, 0);
            s->n_block = 0;
        }
        size_t n = HASH_BLOCK - s->n_block < size ? HASH_BLOCK - s->n_block : size;
        memcpy(s->block + s->n_block, bytes, n);
        s->n_block += n;
        bytes += n;
        size -= n;
    }
}

/* The first words of the digest, little end first, as the caller asked for in hash_begin. */
static inline void hash_end(Blake2b *s, uint64_t *words, int n_words) {
    s->n_bytes += s->n_block;
    memset(s->block + s->n_block, 0, HASH_BLOCK - s->n_block);
    hash_block(s, s->block, 1);
    for (int i = 0; i < n_words; i++) words[i] = s->h[i];
}

#endif
