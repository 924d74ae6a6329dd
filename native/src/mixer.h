/* From evidence to a calibrated probability, by context mixing in fixed-point integers; see kernels/mixer.py.
 *
 * Right shifts of negative numbers are arithmetic, as every compiler in use makes them. Offsets kept in scratch are
 * counted from the start of their section, so that they fit in 32 bits however large the buffer is. */
#ifndef NGS_MIXER_H
#define NGS_MIXER_H

#include "counts.h"
#include "evidence.h"
#include "squash_table.h"
#include "stretch_table.h"

enum {
    BIAS = N_INPUTS, SET = 32, ONE = 65536, N_BUCKETS = 8, TABLE = N_BUCKETS * N_BUCKETS * 2,
    N_TABLES = N_INPUTS * TABLE, N_MATCHES = N_TIERS + 1, N_NODE_SETS = N_MATCHES * N_MATCHES, N_TOKEN_SETS = 1024,
    N_FINAL = 4096, FINAL_STEPS = 24, COUNTED_SOURCE = 3, LEARNING_RATE = 12, WEIGHT_LIMIT = 1 << 24, TABLE_LIMIT = 255,
    TERM_BITS = 12 /* dropped from each term of a sum: 29 terms at their limits then stay within 32 bits */
};

/* Columns of `x`, scratch int32[X_SIZE], a row a follower: what its probability was made of, for learning. */
enum { X_GROUP_SET, X_LOGIT, X_STEP, X_COLUMNS, X_SIZE = N_GROUPS * X_COLUMNS };

/* What was found at one node: followers, levels, longest matches, the token + 1 before it. */
typedef struct {
    i64 n, n_levels, last;
    Found found;
} Node;

/* How far an entry moves after so many events. */
static inline i64 step_of(i64 events) { return 131072u / (uint32_t)(2 * events + 3); }

/* Bucket of a total; totals below 0, which uncounting leaves behind, stand with the largest. */
static inline i64 total_bucket(i64 total) {
    static const int8_t buckets[33] = {0, 0, 1, 2, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 6,
                                       6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 7};
    return total < 0 ? N_BUCKETS - 1 : buckets[least_of(total, 32)];
}

/* Bucket of a count; from 64 on, of a share in 32nds, rounded up. */
static inline i64 count_bucket(i64 i) {
    static const int8_t buckets[128] = {
        0, 1, 2, 3, 4, 4, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
        7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
        0, 1, 2, 3, 3, 3, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 6, 6, 7, 7, 7, 7, 7,
        7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    };
    return buckets[i];
}

/* Add what the counted contexts say: followers, and one level an order known; inputs N_LEVELS.. of `g` hold counts. */
static inline void counted(const i64 *hk, const i32 *m, const Keys *keys, i32 *w, i32 *g, Node *node) {
    for (i64 i = keys->n - 1; i >= 0; i--) {
        i64 at = find_counts(hk, m, keys->rows[i], keys->checks[i]), latest = -1, level = N_LEVELS + i;
        if (at < 0) continue;
        for (i64 j = 0; j < N_FOLLOWERS && m[at + K_VALUE + j] != 0; j++) {
            i64 k = group_of(w, g, &node->n, m[at + K_VALUE + j], COUNTED_SOURCE);
            if (k == N_GROUPS) continue;
            g[k * G_COLUMNS + level] = m[at + K_COUNT + j];
            if (j == 0) latest = k;
        }
        w[L_LEVEL + node->n_levels] = (i32)level;
        w[L_TOTAL + node->n_levels] = m[at + K_TOTAL];
        w[L_LATEST + node->n_levels] = (i32)latest;
        node->n_levels++;
    }
}

/* The weights of a mix: those chosen by a node's longest matches, and by the token before it. */
static inline i32 *node_set(const ngs_cache *c, const Node *node) {
    return c->mem + c->mixer[B_NODE] + (top_of(&node->found, 0) * N_MATCHES + top_of(&node->found, 1)) * SET;
}

static inline i32 *token_set(const ngs_cache *c, const Node *node) {
    return c->mem + c->mixer[B_TOKEN] + ((node->last * 40503) & (N_TOKEN_SETS - 1)) * SET;
}

/* Per level of a node: the start of its table entries and the node's and token's weight together. */
static inline void prepare(const ngs_cache *c, i32 *w, const Node *node) {
    const i32 *by_node = node_set(c, node), *by_token = token_set(c, node);
    for (i64 j = 0; j < node->n_levels; j++) {
        i64 level = w[L_LEVEL + j], total = w[L_TOTAL + j];
        int many = level >= N_LEVELS && total > 9; /* then the share counts, in 32nds; 0 where the count does */
        w[L_BASE + j] = (i32)(level * TABLE + total_bucket(total) * 2 * N_BUCKETS);
        w[L_WEIGHT + j] = by_node[level] + by_token[level];
        w[L_SCALE + j] = many ? (i32)((32 << 16) / total) : 0;
    }
}

/* What the followers of a node have in common at one level. */
typedef struct {
    i64 level, latest, weight, base, scale;
} Level;

static inline Level level_of(const i32 *w, i64 j) {
    return (Level){w[L_LEVEL + j], w[L_LATEST + j], w[L_WEIGHT + j], w[L_BASE + j], w[L_SCALE + j]};
}

/* Table entry, from the level's first, of one piece of evidence: a follower's count, and whether it was the latest. */
static inline i64 entry_of(const Level *l, const i32 *g, i64 i) {
    i64 count_here = g[i * G_COLUMNS + l->level], share = (count_here * l->scale + 0xFFFF) >> 16;
    i64 bucket = l->scale ? count_bucket(64 + least_of(share, 63)) : count_bucket(least_of(count_here, 63));
    return 2 * bucket + (l->latest == i);
}

/* Where the final correction of a follower begins in its section. */
static inline i64 final_row(i64 value) {
    return (i64)((((uint64_t)value * UINT64_C(0x9E3779B1)) >> 8) & (N_FINAL - 1)) * FINAL_STEPS;
}

/* Probability (16 fractional bits) that each follower is emitted next, into `g`; what it was made of, into `x`. */
static inline void mix_followers(const ngs_cache *c, i32 *w, i32 *g, i32 *x, const Node *node) {
    const i32 *tables = c->mem + c->mixer[B_TABLES], *groups = c->mem + c->mixer[B_GROUP];
    const i32 *final = c->mem + c->mixer[B_FINAL];
    prepare(c, w, node);
    i64 bias = (i64)node_set(c, node)[BIAS] + token_set(c, node)[BIAS];
    for (i64 i = 0; i < node->n; i++) {
        const i32 *group = g + i * G_COLUMNS;
        i64 set = ((i64)group[G_OWN] * N_MATCHES + group[G_SHARED]) * SET, row = final_row(group[G_VALUE]);
        PREFETCH(final + row);
        PREFETCH(final + row + FINAL_STEPS - 1);
        x[i * X_COLUMNS + X_GROUP_SET] = (i32)set;
        x[i * X_COLUMNS + X_STEP] = (i32)row;
        x[i * X_COLUMNS + X_LOGIT] = (i32)((bias + groups[set + BIAS]) >> (TERM_BITS - 8));
    }
    for (i64 j = 0; j < node->n_levels; j++) { /* level by level: what the followers have in common is read once */
        Level l = level_of(w, j);
        const i32 *own = groups + l.level, *entries = tables + l.base;
        for (i64 i = 0; i < node->n; i++) {
            i32 *made = x + i * X_COLUMNS;
            i64 given = l.weight + own[made[X_GROUP_SET]];
            made[X_LOGIT] += (i32)((given * STRETCH[entries[entry_of(&l, g, i)] >> 18]) >> TERM_BITS);
        }
    }
    for (i64 i = 0; i < node->n; i++) {
        i32 *made = x + i * X_COLUMNS;
        i64 logit = (made[X_LOGIT] * (i64)21846) >> (32 - TERM_BITS); /* the mean of three sums */
        logit = least_of(most_of(logit, -2047), 2047);
        i64 z = (logit + 2048) * (FINAL_STEPS - 1), part = z & 4095, at = made[X_STEP] + (z >> 12);
        i64 corrected = ((final[at] >> 14) * (4096 - part) + (final[at + 1] >> 14) * part) >> 12;
        made[X_LOGIT] = (i32)logit;
        made[X_STEP] = (i32)(at + (part >= 2048 ? 1 : 0));
        g[i * G_COLUMNS + G_PROB] = (i32)most_of((SQUASH[logit + 2048] + 3 * corrected) >> 2, 16);
    }
}

/* Move an adaptive probability towards an outcome, ever more slowly. */
static inline void adapt(i32 *entry, int happened) {
    i64 probability = *entry >> 10, events = *entry & 1023, goal = happened ? 0xFFFFF : 0;
    probability += ((goal - probability) * step_of(events)) >> 16;
    *entry = (i32)((probability << 10) | least_of(events + 1, TABLE_LIMIT));
}

/* Change a weight within its limits. */
static inline void nudge(i32 *weight, i64 change) {
    *weight = (i32)least_of(most_of(*weight + change, -WEIGHT_LIMIT), WEIGHT_LIMIT);
}

/* Teach the mixer that `value` was emitted where `mix_followers` had these followers before it. */
static inline void learn(const ngs_cache *c, const i32 *w, const i32 *g, i32 *x, const Node *node, i64 value) {
    i32 *by_node = node_set(c, node), *by_token = token_set(c, node), *groups = c->mem + c->mixer[B_GROUP];
    i32 *tables = c->mem + c->mixer[B_TABLES], *final = c->mem + c->mixer[B_FINAL];
    i64 changes = 0;
    for (i64 i = 0; i < node->n; i++) {
        i32 *made = x + i * X_COLUMNS;
        int happened = g[i * G_COLUMNS + G_VALUE] == value;
        i64 error = ((happened ? ONE - 1 : 0) - (i64)SQUASH[made[X_LOGIT] + 2048]) * LEARNING_RATE;
        i64 change = (256 * error + 131072) >> 18;
        changes += change;
        nudge(groups + made[X_GROUP_SET] + BIAS, change);
        adapt(final + made[X_STEP], happened);
        made[X_LOGIT] = (i32)error;
    }
    nudge(by_node + BIAS, changes);
    nudge(by_token + BIAS, changes);
    for (i64 j = 0; j < node->n_levels; j++) {
        Level l = level_of(w, j);
        changes = 0;
        for (i64 i = 0; i < node->n; i++) {
            const i32 *made = x + i * X_COLUMNS;
            i32 *entry = tables + l.base + entry_of(&l, g, i);
            i64 change = ((i64)STRETCH[*entry >> 18] * made[X_LOGIT] + 131072) >> 18;
            changes += change;
            nudge(groups + made[X_GROUP_SET] + l.level, change);
            adapt(entry, g[i * G_COLUMNS + G_VALUE] == value);
        }
        nudge(by_node + l.level, changes);
        nudge(by_token + l.level, changes);
    }
}

#endif
