/* Rows of running requests and idle sessions: their own text and their life; see kernels/requests.py. */
#ifndef NGS_REQUESTS_H
#define NGS_REQUESTS_H

#include "store.h"

enum { AHEAD = 16 }; /* tokens of a prompt whose heads are found at once */

/* Offset of a row in the buffer. */
static inline i64 row_at(const i64 *hr, i64 row) { return hr[R_OFF] + row * ROW; }

/* Take a row out of the list of idle sessions. */
static inline void idle_remove(i64 *hr, i32 *m, i64 row) {
    i64 r = row_at(hr, row), old = m[r + T_OLDER], new = m[r + T_NEWER];
    if (old)
        m[row_at(hr, old - 1) + T_NEWER] = (i32)new;
    else
        hr[R_IDLE_OLD] = new;
    if (new)
        m[row_at(hr, new - 1) + T_OLDER] = (i32)old;
    else
        hr[R_IDLE_NEW] = old;
    m[r + T_OLDER] = m[r + T_NEWER] = 0;
    hr[R_N_IDLE] -= 1;
}

/* Make a row the most recently used idle session. */
static inline void idle_append(i64 *hr, i32 *m, i64 row) {
    i64 r = row_at(hr, row), last = hr[R_IDLE_NEW];
    m[r + T_STATE] = IDLE;
    m[r + T_OLDER] = (i32)last;
    if (last)
        m[row_at(hr, last - 1) + T_NEWER] = (i32)(row + 1);
    else
        hr[R_IDLE_OLD] = row + 1;
    hr[R_IDLE_NEW] = row + 1;
    hr[R_N_IDLE] += 1;
}

/* Empty a row. */
static inline void clear_row(const i64 *hr, i32 *m, i64 row) {
    i64 r = row_at(hr, row);
    for (i64 i = 0; i < ROW; i++) m[r + i] = 0;
}

/* Shorten a row's own text to `n_tokens`, newest first, so that each chain is cut at its head. */
static inline void own_pop(const i64 *hr, i64 *ho, i32 *m, i64 row, i64 n_tokens) {
    i64 r = row_at(hr, row);
    while (m[r + T_LENGTH] > n_tokens) {
        i64 tail = m[r + T_TAIL];
        if (tail == 0) { /* what is left was dropped from the front before */
            m[r + T_LENGTH] = (i32)n_tokens;
            break;
        }
        i64 meta = meta_at(ho, tail - 1), p = (tail - 1) * BLOCK + m[meta + M_FILL] - 1;
        if (ho[S_ORDERS]) unlink_position(ho, m, p, m[r + T_OWNER_LO], m[r + T_OWNER_HI]);
        clear_position(ho, m, p);
        m[meta + M_FILL] -= 1;
        ho[S_TOKENS] -= 1;
        m[r + T_LENGTH] -= 1;
        if (m[meta + M_FILL] == 0) {
            i64 prev = m[meta + M_PREV];
            free_block(ho, m, tail - 1);
            m[r + T_TAIL] = (i32)prev;
            m[r + T_BLOCKS] -= 1;
            if (prev == 0) m[r + T_FIRST] = 0;
        }
    }
    m[r + T_DROPPED] = (i32)least_of(m[r + T_DROPPED], m[r + T_LENGTH]);
    m[r + T_PROMPT] = (i32)least_of(m[r + T_PROMPT], m[r + T_LENGTH]);
}

/* A running text loses its oldest block; chains that reach it end there. */
static inline void drop_first_block(const i64 *hr, i64 *ho, i32 *m, i64 row) {
    i64 r = row_at(hr, row), first = m[r + T_FIRST], meta = meta_at(ho, first - 1);
    m[r + T_FIRST] = m[meta + M_NEXT];
    m[r + T_BLOCKS] -= 1;
    m[r + T_DROPPED] += m[meta + M_FILL];
    ho[S_EVICTED] += m[meta + M_FILL];
    free_block(ho, m, first - 1);
}

/* The running row with the most blocks. */
static inline i64 longest_row(const i64 *hr, const i32 *m) {
    i64 longest = 0, row = -1;
    for (i64 i = 0; i < hr[R_ROWS]; i++) {
        i64 r = row_at(hr, i);
        if (m[r + T_STATE] == LIVE && m[r + T_BLOCKS] > longest) {
            longest = m[r + T_BLOCKS];
            row = i;
        }
    }
    return row;
}

/* The least recently used idle session loses its last block, and its row with the last of them. */
static inline void shorten_idle(i64 *hr, i64 *ho, i32 *m, i64 row) {
    i64 r = row_at(hr, row), tail = m[r + T_TAIL], fill = tail ? m[meta_at(ho, tail - 1) + M_FILL] : 0;
    ho[S_EVICTED] += fill;
    own_pop(hr, ho, m, row, m[r + T_LENGTH] - fill);
    if (m[r + T_TAIL] == 0) {
        idle_remove(hr, m, row);
        clear_row(hr, m, row);
    }
}

/* A block for own text; there is always one: idle sessions yield first, then the longest running text. */
static inline i64 take_own_block(i64 *hr, i64 *ho, i32 *m) {
    i64 b = take_free_block(ho, m);
    while (b < 0) {
        if (hr[R_IDLE_OLD])
            shorten_idle(hr, ho, m, hr[R_IDLE_OLD] - 1);
        else
            drop_first_block(hr, ho, m, longest_row(hr, m));
        b = take_free_block(ho, m);
    }
    return b;
}

/* Write one token behind a row's own text, in no chain yet; returns its position. */
static inline i64 own_put(i64 *hr, i64 *ho, i32 *m, i64 row, i64 value) {
    i64 r = row_at(hr, row), tail = m[r + T_TAIL];
    if (tail == 0 || m[meta_at(ho, tail - 1) + M_FILL] == BLOCK) {
        i64 b = take_own_block(hr, ho, m);
        tail = m[r + T_TAIL]; /* may have changed: its first block can be its only one */
        open_block(ho, m, b, tail - 1, m[r + T_OWNER_LO], m[r + T_OWNER_HI], 0);
        m[r + T_BLOCKS] += 1;
        if (tail == 0) m[r + T_FIRST] = (i32)(b + 1);
        tail = b + 1;
        m[r + T_TAIL] = (i32)tail;
    }
    m[r + T_LENGTH] += 1;
    return put(ho, m, tail - 1, value);
}

/* Append one token to a row's own text; `value` is token + 1, -1 for a placeholder. */
static inline void own_append(i64 *hr, i64 *ho, i32 *m, i64 row, i64 value) {
    i64 r = row_at(hr, row), p = own_put(hr, ho, m, row, value);
    if (ho[S_ORDERS]) insert(ho, m, p, m[r + T_OWNER_LO], m[r + T_OWNER_HI]);
}

/* Position of a row's last token, -1 when it has none. */
static inline i64 own_tail(const i64 *hr, const i64 *ho, const i32 *m, i64 row) {
    i64 tail = m[row_at(hr, row) + T_TAIL];
    return tail ? (tail - 1) * BLOCK + m[meta_at(ho, tail - 1) + M_FILL] - 1 : -1;
}

/* Tokens + 1 up to position `p`, newest first, into `context`, to `most` or a placeholder; returns how many. */
static inline i64 context_at(const i64 *ho, const i32 *m, i64 p, i32 *context, i64 most) {
    i64 n = 0;
    while (p >= 0 && n < most) {
        i32 value = m[ho[S_TEXT] + p];
        if (value <= 0) break;
        context[n++] = value;
        p = older(ho, m, p);
    }
    return n;
}

/* Last tokens + 1 of a row, newest first, into `context`, up to `most` or a placeholder; returns how many. */
static inline i64 own_context(const i64 *hr, const i64 *ho, const i32 *m, i64 row, i32 *context, i64 most) {
    return context_at(ho, m, own_tail(hr, ho, m, row), context, most);
}

/* Stored form of a token id: id + 1, or -1 for a placeholder. */
static inline i64 to_value(const i64 *hr, i64 token) { return 0 <= token && token < hr[R_VOCAB] ? token + 1 : -1; }

/* Append many tokens to a row's own text, which has chains; with the outcome of appending one after the other.
 *
 * The heads of AHEAD tokens are found, and asked for, before the first of them is entered, so that cache misses of
 * different tokens overlap. */
static inline void own_extend(i64 *hr, i64 *ho, i32 *m, i64 row, const i32 *tokens, i64 n_tokens) {
    i64 r = row_at(hr, row), top = ho[S_ORDER0 + ho[S_ORDERS] - 1];
    i32 values[AHEAD + 64]; /* newest first, as contexts are; no order is larger */
    Heads heads[AHEAD];
    for (i64 start = 0; start < n_tokens; start += AHEAD) {
        i64 n = least_of(AHEAD, n_tokens - start), lo = m[r + T_OWNER_LO], hi = m[r + T_OWNER_HI];
        i64 known = own_context(hr, ho, m, row, values + AHEAD, top);
        i32 dropped = m[r + T_DROPPED];
        for (i64 j = 0; j < n; j++) {
            i32 *first = values + AHEAD - 1 - j;
            *first = (i32)to_value(hr, tokens[start + j]);
            heads[j] = heads_of(ho, m, lo, hi, first, least_of(j + 1 + known, top));
        }
        for (i64 j = 0; j < n; j++) {
            i64 p = own_put(hr, ho, m, row, values[AHEAD - 1 - j]);
            if (m[r + T_DROPPED] == dropped)
                link_position(ho, m, p, &heads[j]);
            else /* space ran out, and the text lost its beginning: contexts may be shorter than they were */
                insert(ho, m, p, lo, hi);
        }
    }
}

/* Tokens that an idle row's text shares with `tokens` from the start; 0 when its start was dropped. */
static inline i64 common_prefix(const i64 *hr, const i64 *ho, const i32 *m, i64 row, const i32 *tokens, i64 n_tokens) {
    i64 r = row_at(hr, row), n = 0;
    if (m[r + T_DROPPED] || m[r + T_FIRST] == 0) return 0;
    i64 q = ((i64)m[r + T_FIRST] - 1) * BLOCK;
    while (q >= 0 && n < n_tokens && m[ho[S_TEXT] + q] == to_value(hr, tokens[n])) {
        n++;
        q = newer(ho, m, q);
    }
    return n;
}

/* Free an idle session's text and row. */
static inline void forget_idle(i64 *hr, i64 *ho, i32 *m, i64 row) {
    own_pop(hr, ho, m, row, 0);
    idle_remove(hr, m, row);
    clear_row(hr, m, row);
}

/* A free row; the least recently used idle session makes room; -1 when every row runs. */
static inline i64 take_row(i64 *hr, i64 *ho, i32 *m) {
    for (i64 row = 0; row < hr[R_ROWS]; row++)
        if (m[row_at(hr, row) + T_STATE] == FREE) return row;
    i64 oldest = hr[R_IDLE_OLD] - 1;
    if (oldest >= 0) forget_idle(hr, ho, m, oldest);
    return oldest;
}

/* Start a request in a free row, or in an idle one whose first `n_keep` tokens it repeats. */
static inline void begin_row(i64 *hr, i64 *ho, i32 *m, i64 row, i64 n_keep, i64 n_prompt, i64 share, i64 tenant_lo,
                             i64 tenant_hi) {
    i64 r = row_at(hr, row);
    if (m[r + T_STATE] == IDLE) {
        idle_remove(hr, m, row);
        own_pop(hr, ho, m, row, n_keep);
    }
    hr[R_SERIAL] = (hr[R_SERIAL] + 1) & 0x7FFFFFFF;
    i64 serial = hr[R_SERIAL];
    if (m[r + T_STATE] == FREE) {
        m[r + T_OWNER_LO] = (i32)(row + 1);
        m[r + T_OWNER_HI] = (i32)serial;
    }
    m[r + T_STATE] = LIVE;
    m[r + T_SHARE] = (i32)share;
    m[r + T_PROMPT] = (i32)n_prompt;
    m[r + T_SERIAL] = (i32)serial;
    m[r + T_TENANT_LO] = (i32)tenant_lo;
    m[r + T_TENANT_HI] = (i32)tenant_hi;
    m[r + T_SHARED_TAIL] = m[r + T_SHARED_N] = m[r + T_CONTEXT_N] = 0;
    m[r + T_N_BANNED] = m[r + T_N_ROOTS] = 0;
}

/* End a request: its text waits as an idle session, or goes at once where none may wait. */
static inline void finish_row(i64 *hr, i64 *ho, i32 *m, i64 row, i64 max_idle) {
    idle_append(hr, m, row);
    while (hr[R_N_IDLE] > max_idle) forget_idle(hr, ho, m, hr[R_IDLE_OLD] - 1);
}

/* Nothing was emitted: the first tokens of the last draft are not offered again before progress.
 *
 * Where there is no room left to remember them, nothing is offered before progress. */
static inline void ban_last(const i64 *hr, i32 *m, i64 row) {
    i64 r = row_at(hr, row), n = m[r + T_N_BANNED], n_roots = m[r + T_N_ROOTS];
    if (n + n_roots <= MAX_BANNED)
        for (i64 i = 0; i < n_roots; i++) m[r + T_BANNED + n + i] = m[r + T_ROOTS + i];
    m[r + T_N_BANNED] = (i32)least_of(n + n_roots, MAX_BANNED + 1);
    m[r + T_N_ROOTS] = 0;
}

/* Whether a token + 1 was offered first and refused since the last progress. */
static inline int is_banned(const i64 *hr, const i32 *m, i64 row, i64 value) {
    i64 r = row_at(hr, row);
    if (m[r + T_N_BANNED] > MAX_BANNED) return 1;
    for (i64 i = 0; i < m[r + T_N_BANNED]; i++)
        if (m[r + T_BANNED + i] == value) return 1;
    return 0;
}

/* Whether a token + 1 ends a request. */
static inline int is_eos(const i64 *hr, i64 value) {
    for (i64 i = 0; i < hr[R_N_EOS]; i++)
        if (hr[R_EOS0 + i] + 1 == value) return 1;
    return 0;
}

/* Hash of the first 1, 2, ... `n` blocks of `tokens`, two 31-bit lanes each, into `hashes`. */
static inline void block_hashes(const i32 *tokens, i64 n, i64 *hashes) {
    i64 a = 0x243F6A88, b = 0x13198A2E;
    for (i64 i = 0; i < n; i++) {
        for (i64 j = i * BLOCK; j < (i + 1) * BLOCK; j++) {
            i64 value = tokens[j] & 0x7FFFFFFF;
            a = mix(a, value);
            b = mix(b, value ^ 0x5A5A5A5);
        }
        hashes[i] = ((a & 0x7FFFFFFF) << 31) | (b & 0x7FFFFFFF);
    }
}

#endif
