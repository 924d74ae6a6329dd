/* The drafter's step: evidence to probabilities to a tree, then learning from what was emitted; kernels/drafter.py. */
#ifndef NGS_DRAFTER_H
#define NGS_DRAFTER_H

#include "hash_draft.h"
#include "mixer.h"

/* An offer: two halves a row, used in turn, so that one may still wait while the next is made. */
enum {
    O_LENGTH, O_SERIAL, O_N, O_EMITTED, O_DRAFTED, O_HEAD = 8, N_KEPT = 2 * PER_CLASS + PER_FROZEN,
    O_HALF = O_HEAD + KEPT_ROWS * N_KEPT, O_TURN = 2 * O_HALF,
    MAX_SETTLE = 160 /* emitted tokens of one step that are learned from */
};

/* Scratch: candidates, followers, what their probabilities were made of, the tree. */
typedef struct {
    i32 *w, *g, *x;
    Tree t;
} Scratch;

/* Offset of one half of a row's offers. */
static inline i64 offer_at(const ngs_cache *c, i64 row, i64 half) {
    return c->offers[F_OFF] + row * OFFER_ROW + half * O_HALF;
}

/* Which half is made next. */
static inline i32 *turn_of(const ngs_cache *c, i64 row) { return c->mem + offer_at(c, row, 0) + O_TURN; }

/* Remember the candidates at the row's last token until the outcome is known. */
static inline void keep_offer(const ngs_cache *c, i64 row, i64 n, const i32 *w) {
    const i32 *request = c->mem + row_at(c->requests, row);
    i32 *half = c->mem + offer_at(c, row, *turn_of(c, row));
    half[O_LENGTH] = request[T_LENGTH];
    half[O_SERIAL] = request[T_SERIAL];
    half[O_N] = (i32)n;
    for (i64 i = 0; i < n; i++)
        for (i64 j = 0; j < KEPT_ROWS; j++) half[O_HEAD + KEPT_ROWS * i + j] = w[j * W_COLUMNS + i];
}

/* Forget what every row's last draft looked at. */
static inline void drop_offers(const ngs_cache *c) {
    for (i64 row = 0; row < c->requests[R_ROWS]; row++)
        for (i64 half = 0; half < 2; half++) c->mem[offer_at(c, row, half) + O_LENGTH] = -1;
}

/* Candidates of an offer back into `w`; returns how many. */
static inline i64 recall_offer(const i32 *half, i32 *w) {
    i64 n = half[O_N];
    for (i64 i = 0; i < n; i++)
        for (i64 j = 0; j < KEPT_ROWS; j++) w[j * W_COLUMNS + i] = half[O_HEAD + KEPT_ROWS * i + j];
    for (i64 i = 0; i < n; i++) w[C_NEXT + i] = (i32)(i + 1);
    if (n) w[C_NEXT + n - 1] = -1;
    return n;
}

/* Whose counted contexts a row reads and feeds: its tenant's, or its own when it shares nothing. */
static inline i64 counted_seed(const ngs_cache *c, i64 row) {
    const i32 *request = c->mem + row_at(c->requests, row);
    if (request[T_SHARE] == SHARE_NONE) return owner_seed(request[T_OWNER_LO], request[T_OWNER_HI]);
    return owner_seed(request[T_TENANT_LO], request[T_TENANT_HI]);
}

/* Followers of a tree node with their probabilities, into `g`. */
static inline Node judge(const ngs_cache *c, i64 seed, const i32 *context, i64 n_context, i64 candidates, i64 at,
                         const Scratch *s) {
    i32 last_tokens[N_ORDERS];
    i64 n_last = path_context(&s->t, at, context, n_context, last_tokens, N_ORDERS);
    Keys keys = keys_of(c->counts, seed, last_tokens, n_last);
    touch(c->counts, c->mem, &keys);
    Node node;
    node.n = collect(c, s->w, s->g, &s->t, at, candidates, &node.found);
    node.n_levels = levels(s->w, s->g, node.n, &node.found);
    counted(c->counts, c->mem, &keys, s->w, s->g, &node);
    node.last = n_last ? last_tokens[0] : 0;
    mix_followers(c, s->w, s->g, s->x, &node);
    return node;
}

/* Grow one row's draft in the tree. */
static inline Drafted drafter_draft_row(const ngs_cache *c, i64 row, Ask ask, const Scratch *s) {
    const Tree *t = &s->t;
    i64 n_context, n_candidates = gather(c, row, s->w, &n_context), seed = counted_seed(c, row);
    i64 n_open = 0, at = 0, match = 0;
    int refused = 0, cut = 0;
    keep_offer(c, row, n_candidates, s->w);
    plant(t, n_candidates ? 0 : -1, ask.max_draft);
    while (1) {
        i64 room = ask.chain ? 1 : ask.max_draft - at, path = t->row[N_PATH][at];
        int hopeless = !ask.chain && n_open >= room && t->row[O_PATH][0] >= path; /* no child could come in */
        if (ask.chain) n_open = 0;
        if (t->row[N_DEPTH][at] >= ask.max_depth) {
            cut = 1;
        } else if (!hopeless && !is_eos(c->requests, t->row[N_TOKEN][at])) {
            Node node = judge(c, seed, s->w + W_CONTEXT, n_context, t->row[N_LIST][at], at, s);
            if (at == 0) match = longest_behind(c, row, s->w, s->g, node.n);
            for (i64 i = 0; i < node.n; i++) {
                const i32 *group = s->g + i * G_COLUMNS;
                i64 child = (path * group[G_PROB]) >> 16;
                if (child < ask.min_q30)
                    refused = 1;
                else if (at > 0 || !is_banned(c->requests, c->mem, row, group[G_VALUE]))
                    n_open = offer(t, n_open, room, group[G_VALUE], at, child, group[G_HEAD], group[G_SOURCE]);
            }
        }
        if (n_open == 0 || at == ask.max_draft) break;
        at++;
        n_open = draft_best(t, n_open, at);
        if (at == ask.max_draft) break;
    }
    return (Drafted){at, match, stopped_by(at, ask.max_draft, cut, refused)};
}

/* What waited in the other half may settle now that the next draft was handed out. */
static inline void mark_drafted(const ngs_cache *c, i64 row) {
    c->mem[offer_at(c, row, 1 - *turn_of(c, row)) + O_DRAFTED] = 1;
}

/* Last stored values of a row, placeholders included, newest first, into `values`; returns how many. */
static inline i64 own_values(const ngs_cache *c, i64 row, i32 *values, i64 most) {
    i64 q = own_tail(c->requests, c->own, c->mem, row), n = 0;
    for (; q >= 0 && n < most; q = older(c->own, c->mem, q)) values[n++] = c->mem[c->own[S_TEXT] + q];
    return n;
}

/* Learn from a row's last emitted tokens, then let them count and be seen by others. */
static inline void settle_row(const ngs_cache *c, i64 row, int only_drafted, const Scratch *s) {
    i32 *half = c->mem + offer_at(c, row, 1 - *turn_of(c, row)), *history = s->w + W_HISTORY;
    const i32 *request = c->mem + row_at(c->requests, row);
    i64 n_emitted = half[O_EMITTED];
    if (n_emitted == 0 || half[O_SERIAL] != request[T_SERIAL] || (only_drafted && half[O_DRAFTED] == 0)) return;
    half[O_EMITTED] = 0;
    i64 n_history = own_values(c, row, history, n_emitted + c->own[S_TOP]), n_before = 0;
    while (n_emitted + n_before < n_history && history[n_emitted + n_before] > 0) n_before++;
    i64 n_context = n_before, seed = counted_seed(c, row), candidates = recall_offer(half, s->w) ? 0 : -1;
    int share = request[T_SHARE] != SHARE_NONE;
    plant(&s->t, 0, 0);
    for (i64 i = 0; i < n_emitted; i++) {
        const i32 *context = history + n_emitted - i;
        i64 value = n_emitted - i - 1 < n_history ? context[-1] : -1, n = 0;
        if (share && value > 0) /* where sharing it will be entered */
            heads_of(c->shared, c->mem, request[T_TENANT_LO], request[T_TENANT_HI], context - 1, n_context + 1);
        if (value > 0) {
            /* The tree holds the emitted tokens as one path; its context is what came before them. */
            Node node = judge(c, seed, history + n_emitted, n_before, candidates, i, s);
            learn(c, s->w, s->g, s->x, &node, value);
            n = node.n;
        }
        candidates = -1;
        for (i64 k = 0; k < n; k++)
            if (s->g[k * G_COLUMNS + G_VALUE] == value) candidates = s->g[k * G_COLUMNS + G_HEAD];
        s->t.row[N_TOKEN][i + 1] = (i32)value;
        s->t.row[N_PARENT][i + 1] = (i32)i;
        s->t.row[N_DEPTH][i + 1] = (i32)(i + 1);
        if (value > 0) count(c->counts, c->mem, seed, context, n_context, value);
        if (share) shared_append(c->requests, c->shared, c->mem, row, value, context, n_context);
        n_context = value > 0 ? n_context + 1 : 0;
    }
}

/* Append at most MAX_SETTLE emitted tokens to a row's own text; what they teach waits in the row's offer. */
static inline void append_row(const ngs_cache *c, i64 row, const i32 *tokens, i64 n_tokens, const Scratch *s) {
    if (n_tokens == 0) {
        ban_last(c->requests, c->mem, row);
        return;
    }
    const i32 *request = c->mem + row_at(c->requests, row);
    i32 *turn = turn_of(c, row), *half = c->mem + offer_at(c, row, *turn);
    if (half[O_LENGTH] != request[T_LENGTH] || half[O_SERIAL] != request[T_SERIAL]) {
        i64 n_context, n = gather(c, row, s->w, &n_context);
        keep_offer(c, row, n, s->w);
    }
    for (i64 j = 0; j < n_tokens; j++) own_append(c->requests, c->own, c->mem, row, to_value(c->requests, tokens[j]));
    half[O_LENGTH] = -1;
    half[O_EMITTED] = (i32)n_tokens;
    half[O_DRAFTED] = 0;
    *turn = 1 - *turn;
    c->requests[R_TOKENS_OUT] += n_tokens;
    progress(c->requests, c->mem, row);
}

/* Shorten a settled row, and take back what the rest of it was counted and shared for. */
static inline void drafter_truncate(const ngs_cache *c, i64 row, i64 n_tokens) {
    i32 *request = c->mem + row_at(c->requests, row), history[N_ORDERS + 1];
    i64 seed = counted_seed(c, row);
    c->mem[offer_at(c, row, *turn_of(c, row)) + O_LENGTH] = -1;
    while (request[T_LENGTH] > n_tokens) {
        i64 n = own_context(c->requests, c->own, c->mem, row, history, N_ORDERS + 1);
        if (request[T_LENGTH] > request[T_PROMPT]) {
            if (n > 0) uncount(c->counts, c->mem, seed, history + 1, n - 1, history[0]);
            if (request[T_SHARE] == SHARE_OUTPUTS) shared_pop(c->requests, c->shared, c->mem, row, 1);
        }
        if (request[T_SHARE] == SHARE_ALL) shared_pop(c->requests, c->shared, c->mem, row, 1);
        own_pop(c->requests, c->own, c->mem, row, request[T_LENGTH] - 1);
    }
    request[T_PROMPT] = (i32)least_of(request[T_PROMPT], n_tokens);
    progress(c->requests, c->mem, row);
}

#endif
