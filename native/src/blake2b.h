/* BLAKE2b without a key (RFC 7693): checksums of snapshots, fingerprints of tokenizers, keys of tenants. */
#ifndef NGS_BLAKE2B_H
#define NGS_BLAKE2B_H

#include <string.h>

#include "arena.h"

enum { HASH_BLOCK = 128 };

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

/* Eight bytes, little end first; written so that compilers make one load of it. */
static inline uint64_t word_at(const uint8_t *b) {
    return (uint64_t)b[0] | (uint64_t)b[1] << 8 | (uint64_t)b[2] << 16 | (uint64_t)b[3] << 24 | (uint64_t)b[4] << 32 |
           (uint64_t)b[5] << 40 | (uint64_t)b[6] << 48 | (uint64_t)b[7] << 56;
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

/* One round: columns, then diagonals. The order of the message's words is spelt out so that every index is known when
 * this is compiled: twice as fast. */
#define HASH_ROUND(a, b, c, d, e, f, g, h, i, j, k, l, n, o, p, q) \
    hash_mix(v, 0, 4, 8, 12, m[a], m[b]); \
    hash_mix(v, 1, 5, 9, 13, m[c], m[d]); \
    hash_mix(v, 2, 6, 10, 14, m[e], m[f]); \
    hash_mix(v, 3, 7, 11, 15, m[g], m[h]); \
    hash_mix(v, 0, 5, 10, 15, m[i], m[j]); \
    hash_mix(v, 1, 6, 11, 12, m[k], m[l]); \
    hash_mix(v, 2, 7, 8, 13, m[n], m[o]); \
    hash_mix(v, 3, 4, 9, 14, m[p], m[q])

static inline void hash_block(Blake2b *s, const uint8_t *block, int last) {
    uint64_t v[16], m[16];
    for (int i = 0; i < 16; i++) m[i] = word_at(block + 8 * i);
    memcpy(v, s->h, sizeof s->h);
    memcpy(v + 8, HASH_START, sizeof HASH_START);
    v[12] ^= s->n_bytes;
    if (last) v[14] = ~v[14];
    HASH_ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    HASH_ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3);
    HASH_ROUND(11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4);
    HASH_ROUND(7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8);
    HASH_ROUND(9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13);
    HASH_ROUND(2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9);
    HASH_ROUND(12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11);
    HASH_ROUND(13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10);
    HASH_ROUND(6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5);
    HASH_ROUND(10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0);
    HASH_ROUND(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    HASH_ROUND(14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3);
    for (int i = 0; i < 8; i++) s->h[i] ^= v[i] ^ v[8 + i];
}
#undef HASH_ROUND

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
        for (; s->n_block == 0 && size > HASH_BLOCK; bytes += HASH_BLOCK, size -= HASH_BLOCK) { /* without a copy */
            s->n_bytes += HASH_BLOCK;
            hash_block(s, bytes, 0);
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
