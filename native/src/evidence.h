/* What followed this context before: candidates from the chains, grouped by follower; see kernels/evidence.py.
 *
 * `w` is scratch int32[W_SIZE], rows of W_COLUMNS; `g` is scratch int32[G_SIZE], a row of G_COLUMNS a follower. */
#ifndef NGS_EVIDENCE_H
#define NGS_EVIDENCE_H

#include <string.h>

#include "cache.h"
#include "tree.h"

enum {
    N_TIERS = 12, N_LEVELS = 2 * N_TIERS, N_COUNTED = 4, N_INPUTS = N_LEVELS + N_COUNTED, N_GROUPS = 16, PER_CLASS = 48,
    PER_FROZEN = 16, FROZEN_AGE = 1 << 30, N_SEEN = 32 /* places of the table that finds a follower's row */
};

/* A walk may overshoot PER_CLASS by what one more look-up gathers: 6 orders of 64 hops. */
enum { W_COLUMNS = 448, N_W_ROWS = 22, KEPT_ROWS = 4, W_SIZE = N_W_ROWS * W_COLUMNS };
enum {
    C_POS = 0 * W_COLUMNS, C_LENGTH = 1 * W_COLUMNS, C_CLASS = 2 * W_COLUMNS, C_AGE = 3 * W_COLUMNS,
    C_NEXT = 4 * W_COLUMNS, W_CONTEXT = 5 * W_COLUMNS, W_STARTS = 6 * W_COLUMNS, V_TOTAL = 7 * W_COLUMNS,
    V_AGE = 8 * W_COLUMNS, V_LATEST = 9 * W_COLUMNS, L_LEVEL = 10 * W_COLUMNS, L_TOTAL = 11 * W_COLUMNS,
    L_LATEST = 12 * W_COLUMNS, L_BASE = 13 * W_COLUMNS, L_WEIGHT = 14 * W_COLUMNS, L_SCALE = 15 * W_COLUMNS,
    W_KEYS = 16 * W_COLUMNS, W_CHECKS = 17 * W_COLUMNS, W_SHORT = 18 * W_COLUMNS, W_HISTORY = 19 * W_COLUMNS,
    W_SEEN = 20 * W_COLUMNS, W_FROZEN_STARTS = 21 * W_COLUMNS
};

/* Columns of `g`: counts by level and counted order first. */
enum {
    G_VALUE = N_INPUTS, G_HEAD, G_TAIL, G_PROB, G_SOURCE, G_OWN, G_SHARED, G_COLUMNS = N_INPUTS + 8,
    G_SIZE = N_GROUPS * G_COLUMNS
};

/* Empty N_SEEN numbers, in pieces short enough that compilers write them out: a call or a string instruction for 128
 * bytes costs more than all of a follower's counting. */
_Static_assert(N_INPUTS <= N_SEEN && (int)N_SEEN <= (int)G_COLUMNS && N_SEEN % 16 == 0, "its counts are in it");
static inline void clear(i32 *at) {
    for (i64 i = 0; i < N_SEEN; i += 16) memset(at + i, 0, 16 * sizeof *at);
}

/* Number of the highest bit set; there is one. */
static inline i64 highest_bit(uint32_t bits) {
#ifdef __GNUC__
    return 31 - __builtin_clz(bits);
#else
    i64 n = 31;
    while (!(bits >> n)) n--;
    return n;
#endif
}

/* Tier of a match length: 1, 2, 3, 4, 5-6, 7-8, 9-11, 12-15, 16-19, 20-25, 26-31, 32 and more. */
static inline i64 tier_of(i64 length) {
    static const int8_t tiers[33] = {0, 0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 7, 7, 7, 7, 8,
                                     8, 8, 8, 9, 9, 9, 9, 9, 9, 10, 10, 10, 10, 10, 10, 11};
    return tiers[least_of(length, 32)];
}

/* Class and age of the candidates from `first` up to `last`. */
static inline void note(Text text, i32 *w, i64 first, i64 last, i64 kind, i64 age) {
    i64 width = 1 + text.h[S_ORDERS];
    for (i64 i = first; i < last; i++) {
        i64 clock = text.m[text.h[S_LINKS] + w[C_POS + i] * width];
        w[C_CLASS + i] = (i32)kind;
        w[C_AGE + i] = (i32)(((text.h[S_CLOCK] - clock) & (CLOCK_MASK >> 1)) | age);
    }
}

/* Candidates of one text, longest order first, newest first; returns the new count. */
static inline i64 look_up(Text text, const Heads *heads, i64 lo, i64 hi, i64 skip_writer, i64 n_context, i32 *w, i64 n,
                          i64 most) {
    i64 last = n + most;
    for (i64 o = 0; o < heads->n; o++) fetch(text.h, text.m, text.m[heads->at[o]]);
    for (i64 o = heads->n - 1; o >= 0 && n < last; o--)
        n = walk_chain(text.h, text.m, text.m[heads->at[o]], o, lo, hi, skip_writer, w + W_CONTEXT, n_context,
                       w + C_POS, w + C_LENGTH, n);
    return least_of(n, last);
}

/* Candidates of a row's own text: its last token's own links lead to what came before. */
static inline i64 look_up_own(const ngs_cache *c, i64 row, i64 n_context, i32 *w) {
    const i64 *ho = c->own;
    const i32 *m = c->mem;
    i64 r = row_at(c->requests, row), links = ho[S_LINKS] + own_tail(c->requests, ho, m, row) * (1 + ho[S_ORDERS]);
    i64 n = 0;
    for (i64 o = 0; o < ho[S_ORDERS]; o++) fetch(ho, m, m[links + 1 + o]);
    for (i64 o = ho[S_ORDERS] - 1; o >= 0; o--)
        if (ho[S_ORDER0 + o] <= n_context && n < PER_CLASS)
            n = walk_chain(ho, m, m[links + 1 + o], o, m[r + T_OWNER_LO], m[r + T_OWNER_HI], -1, w + W_CONTEXT,
                           n_context, w + C_POS, w + C_LENGTH, n);
    return least_of(n, PER_CLASS);
}

/* Candidates for a row's next token: own text, then shared, then frozen.
 *
 * Fills the candidate rows of `w` and its context row; returns how many candidates. */
static inline i64 gather(const ngs_cache *c, i64 row, i32 *w, i64 *n_context) {
    const i32 *m = c->mem;
    i64 r = row_at(c->requests, row);
    *n_context = own_context(c->requests, c->own, m, row, w + W_CONTEXT, c->own[S_TOP]);
    if (*n_context == 0) return 0;
    Text own = text_of(c, OWN), shared = text_of(c, SHARED), frozen = text_of(c, FROZEN);
    i64 lo = m[r + T_TENANT_LO], hi = m[r + T_TENANT_HI];
    Heads shared_heads = heads_of(shared.h, m, lo, hi, w + W_CONTEXT, *n_context), frozen_heads = {0, {0}};
    if (frozen.h) frozen_heads = heads_of(frozen.h, frozen.m, 0, 0, w + W_CONTEXT, *n_context);
    i64 n_own = look_up_own(c, row, *n_context, w);
    note(own, w, 0, n_own, OWN, 0);
    i64 n = look_up(shared, &shared_heads, lo, hi, m[r + T_SERIAL], *n_context, w, n_own, PER_CLASS);
    note(shared, w, n_own, n, SHARED, 0);
    if (frozen.h) {
        i64 n_shared = n;
        n = look_up(frozen, &frozen_heads, 0, 0, -1, *n_context, w, n_shared, PER_FROZEN);
        note(frozen, w, n_shared, n, FROZEN, FROZEN_AGE);
    }
    for (i64 i = 0; i < n; i++) w[C_NEXT + i] = (i32)(i + 1);
    if (n) w[C_NEXT + n - 1] = -1;
    return n;
}

/* Move candidate `i` one token on; returns the token + 1 it moved to, 0 when its text ends or cannot be drafted.
 *
 * Own text goes on with the path drafted so far, which is what makes periodic text extend: a position of -(d + 1)
 * stands for the path's token at depth d. */
static inline i64 advance(const ngs_cache *c, i32 *w, i64 i, const Tree *t, i64 node) {
    i64 p = w[C_POS + i];
    if (p >= 0) {
        i64 kind = w[C_CLASS + i];
        Text text = text_of(c, kind);
        i64 q = newer(text.h, text.m, p);
        if (q >= 0) {
            w[C_POS + i] = (i32)q;
            return most_of(text.m[text.h[S_TEXT] + q], 0);
        }
        if (kind != OWN) return 0;
        p = -1; /* the own text's last token is the path's depth 0 */
    }
    i64 depth = -p;
    if (depth > t->row[N_DEPTH][node]) return 0;
    w[C_POS + i] = (i32)(p - 1);
    return path_value(t, node, depth);
}

/* Row of a follower in `g`, added when new and counted in `n_groups`; N_GROUPS when full. */
static inline i64 group_of(i32 *w, i32 *g, i64 *n_groups, i64 value, i64 source) {
    i64 at = value & (N_SEEN - 1);
    for (; w[W_SEEN + at]; at = (at + 1) & (N_SEEN - 1))
        if (g[(w[W_SEEN + at] - 1) * G_COLUMNS + G_VALUE] == value) return w[W_SEEN + at] - 1;
    if (*n_groups == N_GROUPS) return N_GROUPS;
    w[W_SEEN + at] = (i32)(*n_groups + 1);
    i32 *fresh = g + *n_groups * G_COLUMNS;
    clear(fresh); /* the counts, and more that is set below */
    fresh[G_VALUE] = (i32)value;
    fresh[G_SOURCE] = (i32)source;
    fresh[G_HEAD] = fresh[G_TAIL] = -1;
    fresh[G_OWN] = fresh[G_SHARED] = 0;
    return (*n_groups)++;
}

/* Put a candidate at the end of its follower's list. */
static inline void chain_candidate(i32 *w, i32 *group, i64 i) {
    w[C_NEXT + i] = -1;
    if (group[G_HEAD] < 0)
        group[G_HEAD] = (i32)i;
    else
        w[C_NEXT + group[G_TAIL]] = (i32)i;
    group[G_TAIL] = (i32)i;
}

/* Tiers met at a node, in own text and in shared: bit t for tier t. */
typedef struct {
    uint32_t tiers[2];
} Found;

/* Longest tier + 1 of a half, 0 where there is none. */
static inline i64 top_of(const Found *found, int half) {
    return found->tiers[half] ? highest_bit(found->tiers[half]) + 1 : 0;
}

/* Group the candidates of a node by follower and count them by level; each moves on to its follower.
 *
 * Returns how many followers. */
static inline i64 collect(const ngs_cache *c, i32 *w, i32 *g, const Tree *t, i64 node, i64 candidates, Found *found) {
    i64 n = 0, depth = t->row[N_DEPTH][node];
    uint32_t own = 0, others = 0;
    clear(w + W_SEEN);
    for (i64 i = candidates, following; i >= 0; i = following) {
        following = w[C_NEXT + i];
        i64 value = advance(c, w, i, t, node);
        if (value <= 0) continue;
        i64 tier = tier_of(w[C_LENGTH + i] + depth), kind = w[C_CLASS + i];
        int shared = kind != OWN;
        i64 level = shared ? tier + N_TIERS : tier;
        uint32_t bit = (uint32_t)1 << tier, *seen = shared ? &others : &own;
        i64 k = group_of(w, g, &n, value, kind == FROZEN ? 4 : 1 + kind);
        i32 before = *seen & bit ? w[V_TOTAL + level] : 0, age = w[C_AGE + i];
        int latest = before == 0 || age < w[V_AGE + level];
        w[V_AGE + level] = latest ? age : w[V_AGE + level];
        w[V_LATEST + level] = latest ? (i32)k : w[V_LATEST + level];
        w[V_TOTAL + level] = before + 1;
        *seen |= bit;
        if (k < N_GROUPS) {
            i32 *group = g + k * G_COLUMNS, *longest = group + (shared ? G_SHARED : G_OWN);
            group[level] += 1;
            *longest = (i32)most_of(*longest, tier + 1);
            chain_candidate(w, group, i);
        }
    }
    *found = (Found){{own, others}};
    return n;
}

/* Turn counts by level into counts of "at least this long a match", longest first in each class.
 *
 * Returns how many levels hold anything; L_LEVEL, L_TOTAL and L_LATEST of `w` describe them. */
static inline i64 levels(i32 *w, i32 *g, i64 n, const Found *found) {
    i64 n_levels = 0;
    for (i64 half = 0; half < 2; half++) {
        i64 total = 0, latest = -1, age = 0, above = -1;
        for (uint32_t left = found->tiers[half]; left;) {
            i64 tier = highest_bit(left), level = half * N_TIERS + tier;
            left ^= (uint32_t)1 << tier;
            total += w[V_TOTAL + level];
            if (latest < 0 || w[V_AGE + level] < age) {
                age = w[V_AGE + level];
                latest = w[V_LATEST + level];
            }
            if (above >= 0)
                for (i64 i = 0; i < n; i++) g[i * G_COLUMNS + level] += g[i * G_COLUMNS + above];
            w[L_LEVEL + n_levels] = (i32)level;
            w[L_TOTAL + n_levels] = (i32)total;
            w[L_LATEST + n_levels] = (i32)latest;
            n_levels++;
            above = level;
        }
    }
    return n_levels;
}

/* Longest match among candidates whose follower may be drafted first (kept in kernels/hash_draft.py). */
static inline i64 longest_behind(const ngs_cache *c, i64 row, const i32 *w, const i32 *g, i64 n) {
    i64 longest = 0;
    for (i64 k = 0; k < n; k++) {
        if (is_banned(c->requests, c->mem, row, g[k * G_COLUMNS + G_VALUE])) continue;
        for (i64 i = g[k * G_COLUMNS + G_HEAD]; i >= 0; i = w[C_NEXT + i]) longest = most_of(longest, w[C_LENGTH + i]);
    }
    return longest;
}

#endif
