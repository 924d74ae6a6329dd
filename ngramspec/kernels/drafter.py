"""The drafter's step: candidates and counted contexts to probabilities to a tree; then learning from what was emitted.

What a draft looked at is kept per row (its *offer*: the candidates at the last committed token). When the step's
tokens are known they are appended to the row's own text, and the offer is walked along them: the same evidence that
stood behind the draft teaches the mixer about every emitted token, drafted or not, without a second look-up. Only
then do the tokens become visible to others and count. This settling may wait until the next draft has been handed
out.
"""

from .._jit import highest_bit, inline, kernel
from ..arena import (
    F_OFF,
    OFFER_ROW,
    R_TOKENS_OUT,
    S_TEXT,
    S_TOP,
    SHARE_ALL,
    SHARE_NONE,
    SHARE_OUTPUTS,
    T_LENGTH,
    T_OWNER_HI,
    T_OWNER_LO,
    T_PROMPT,
    T_SERIAL,
    T_SHARE,
    T_TENANT_HI,
    T_TENANT_LO,
)
from .counts import N_ORDERS, count, fetch, keys, uncount
from .evidence import (
    C_NEXT,
    G_COLUMNS,
    G_HEAD,
    G_PROB,
    G_SOURCE,
    G_VALUE,
    KEPT_ROWS,
    PER_CLASS,
    PER_FROZEN,
    W_CHECKS,
    W_COLUMNS,
    W_CONTEXT,
    W_HISTORY,
    W_KEYS,
    W_SHORT,
    collect,
    gather,
    levels,
)
from .hash_draft import longest_behind
from .limits import DRAFTED, empty_reason, progress, remember, stopped_by
from .mixer import counted, learn, mix_followers
from .requests import (
    ban_last,
    is_banned,
    is_eos,
    own_append,
    own_context,
    own_pop,
    own_tail,
    row_at,
    to_value,
)
from .shared_text import shared_append, shared_pop
from .store import expect, older, owner_seed
from .tree import N_DEPTH, N_LIST, N_PARENT, N_PATH, N_TOKEN, O_PATH, draft_best, hand_out, offer, path_context, plant

# An offer: two halves a row, used in turn, so that one may still wait while the next is made.
O_LENGTH, O_SERIAL, O_N, O_EMITTED, O_DRAFTED, O_HEAD = 0, 1, 2, 3, 4, 8
N_KEPT = 2 * PER_CLASS + PER_FROZEN
O_HALF = O_HEAD + KEPT_ROWS * N_KEPT
O_TURN = 2 * O_HALF
N_ANNOUNCED, MAX_ORDER = 4, 8  # tokens asked for ahead of time, and how far back their contexts are looked at
MAX_SETTLE = 160  # emitted tokens of one step that are learned from


@inline
def offer_at(hf, m, row, half):
    """Offset of one half of a row's offers."""
    return hf[F_OFF] + row * OFFER_ROW + half * O_HALF


@kernel
def keep_offer(hr, hf, m, row, n, w):
    """Remember the candidates at the row's last token until the outcome is known."""
    at = offer_at(hf, m, row, int(m[hf[F_OFF] + row * OFFER_ROW + O_TURN]))
    r = row_at(hr, row)
    m[at + O_LENGTH], m[at + O_SERIAL], m[at + O_N] = m[r + T_LENGTH], m[r + T_SERIAL], n
    at += O_HEAD
    for i in range(n):
        for j in range(KEPT_ROWS):
            m[at + KEPT_ROWS * i + j] = w[j * W_COLUMNS + i]


@kernel
def drop_offers(hf, m, n_rows):
    """Forget what every row's last draft looked at."""
    for row in range(n_rows):
        m[offer_at(hf, m, row, 0) + O_LENGTH] = -1
        m[offer_at(hf, m, row, 1) + O_LENGTH] = -1


@inline
def recall_offer(hf, m, at, w):
    """Candidates of an offer back into `w`; returns how many."""
    n = int(m[at + O_N])
    at += O_HEAD
    for i in range(n):
        for j in range(KEPT_ROWS):
            w[j * W_COLUMNS + i] = m[at + KEPT_ROWS * i + j]
        w[C_NEXT + i] = i + 1
    if n:
        w[C_NEXT + n - 1] = -1
    return n


@kernel
def counted_seed(hr, m, row):
    """Whose counted contexts a row reads and feeds: its tenant's, or its own when it shares nothing."""
    r = row_at(hr, row)
    if m[r + T_SHARE] == SHARE_NONE:
        return owner_seed(int(m[r + T_OWNER_LO]), int(m[r + T_OWNER_HI]))
    return owner_seed(int(m[r + T_TENANT_LO]), int(m[r + T_TENANT_HI]))


@kernel
def judge(ho, hs, hz, hk, hx, m, mz, seed, context, n_context, candidates, node, w, g, x, t):
    """Followers of a tree node with their probabilities, into `g`.

    Returns (followers, levels, longest own match, longest shared match, token + 1 before them).
    """
    short = w[W_SHORT : W_SHORT + N_ORDERS]
    n_short = path_context(t, node, context, n_context, short)
    keys(hk, seed, short, n_short, w[W_KEYS:], w[W_CHECKS:])
    fetch(hk, m, min(N_ORDERS, n_short), w[W_KEYS:])
    n, own_tiers, shared_tiers = collect(ho, hs, hz, m, mz, w, g, t, node, candidates)
    n_levels = levels(w, g, n, own_tiers, shared_tiers)
    own, shared = highest_bit(own_tiers) + 1, highest_bit(shared_tiers) + 1
    n, n_levels = counted(hk, m, n_short, w, g, n, n_levels)
    last = int(short[0]) if n_short else 0
    mix_followers(hx, m, w, g, x, n, n_levels, own, shared, last)
    return n, n_levels, own, shared, last


@kernel
def draft_row(hr, ho, hs, hz, hk, hx, hf, m, mz, row, max_draft, max_depth, chain, min_q30, w, g, x, t):
    """Grow one row's draft in `t`; returns (tokens drafted, longest match, what ended it)."""
    n_candidates, n_context = gather(hr, ho, hs, hz, m, mz, row, w)
    keep_offer(hr, hf, m, row, n_candidates, w)
    context, seed = w[W_CONTEXT : W_CONTEXT + ho[S_TOP]], counted_seed(hr, m, row)
    plant(t, 0 if n_candidates else -1, max_draft)
    n_open, node, match, refused, cut = 0, 0, 0, False, False
    while True:
        room = 1 if chain else max_draft - node
        path = int(t[N_PATH, node])
        hopeless = not chain and n_open >= room and t[O_PATH, 0] >= path  # no child could displace an open node
        if chain:
            n_open = 0
        if t[N_DEPTH, node] >= max_depth:
            cut = True
        elif not hopeless and not is_eos(hr, t[N_TOKEN, node]):
            n, _, _, _, _ = judge(
                ho, hs, hz, hk, hx, m, mz, seed, context, n_context, int(t[N_LIST, node]), node, w, g, x, t
            )
            if node == 0:
                match = longest_behind(hr, m, row, w, g, n)
            for i in range(n):
                child = (path * int(g[i * G_COLUMNS + G_PROB])) >> 16
                if child < min_q30:
                    refused = True
                elif node > 0 or not is_banned(hr, m, row, g[i * G_COLUMNS + G_VALUE]):
                    n_open = offer(
                        t,
                        n_open,
                        room,
                        g[i * G_COLUMNS + G_VALUE],
                        node,
                        child,
                        g[i * G_COLUMNS + G_HEAD],
                        g[i * G_COLUMNS + G_SOURCE],
                    )
        if n_open == 0 or node == max_draft:
            break
        node += 1
        n_open = draft_best(t, n_open, node)
        if node == max_draft:
            break
    return node, match, stopped_by(node, max_draft, cut, refused)


@kernel
def draft_batch(
    hr, ho, hs, hz, hk, hx, hf, m, mz, slots, max_draft, remaining, chain, min_q30, first, last, w, g, x, t,
    tokens, parents, path_q30, sources, n_draft, match_length, reason,
):  # fmt: skip
    """Draft for `slots[first:last]` into the caller's arrays; rows are independent, so shards may run side by side."""
    for i in range(first, last):
        row, most, left = int(slots[i]), min(int(max_draft[i]), tokens.shape[1]), int(remaining[i])
        n, match, stop = 0, 0, empty_reason(hr, m, row, most, left)
        if stop == DRAFTED:
            depth = left - 1 if left >= 0 else most
            n, match, stop = draft_row(
                hr, ho, hs, hz, hk, hx, hf, m, mz, row, most, min(depth, most), chain, min_q30, w, g, x, t
            )  # fmt: skip
        hand_out(t, n, i, tokens, parents, path_q30, sources)
        n_draft[i], match_length[i], reason[i] = n, match, DRAFTED if n else stop
        remember(hr, m, row, t, n, stop)
        m[offer_at(hf, m, row, 1 - int(m[hf[F_OFF] + row * OFFER_ROW + O_TURN])) + O_DRAFTED] = 1


@kernel
def own_values(hr, ho, m, row, values):
    """Last stored values of a row, placeholders included, newest first, into `values`; returns how many."""
    q, n = own_tail(hr, ho, m, row), 0
    while q >= 0 and n < len(values):
        values[n] = m[ho[S_TEXT] + q]
        n += 1
        q = older(ho, m, q)
    return n


@kernel
def settle_row(hr, ho, hs, hz, hk, hx, hf, m, mz, row, only_drafted, w, g, x, t):
    """Learn from a row's last emitted tokens, then let them count and be seen by others."""
    turn = hf[F_OFF] + row * OFFER_ROW + O_TURN
    at = offer_at(hf, m, row, 1 - int(m[turn]))
    n_emitted = int(m[at + O_EMITTED])
    r = row_at(hr, row)
    if n_emitted == 0 or m[at + O_SERIAL] != m[r + T_SERIAL] or (only_drafted and m[at + O_DRAFTED] == 0):
        return
    m[at + O_EMITTED] = 0
    history = w[W_HISTORY : W_HISTORY + n_emitted + ho[S_TOP]]
    n_history, n_before = own_values(hr, ho, m, row, history), 0
    while n_emitted + n_before < n_history and history[n_emitted + n_before] > 0:
        n_before += 1
    n_context = n_before
    seed = counted_seed(hr, m, row)
    n = recall_offer(hf, m, at, w)
    plant(t, 0, 0)
    candidates = 0 if n else -1
    share = m[r + T_SHARE] != SHARE_NONE
    for i in range(n_emitted):
        context = history[n_emitted - i :]
        value = int(history[n_emitted - i - 1]) if n_emitted - i - 1 < n_history else -1
        if share and value > 0:
            expect(hs, m, int(m[r + T_TENANT_LO]), int(m[r + T_TENANT_HI]), history[n_emitted - i - 1 :], n_context + 1)
        if value > 0:
            # The tree holds the emitted tokens as one path; its context is what came before them.
            n, n_levels, own, shared, last = judge(
                ho, hs, hz, hk, hx, m, mz, seed, history[n_emitted:], n_before, candidates, i, w, g, x, t,
            )  # fmt: skip
            learn(hx, m, w, g, x, n, n_levels, own, shared, last, value)
        else:
            n = 0
        candidates = -1
        for k in range(n):
            if g[k * G_COLUMNS + G_VALUE] == value:
                candidates = int(g[k * G_COLUMNS + G_HEAD])
        t[N_TOKEN, i + 1], t[N_PARENT, i + 1], t[N_DEPTH, i + 1] = value, i, i + 1
        if value > 0:
            count(hk, m, seed, context, n_context, value, w[W_KEYS:], w[W_CHECKS:])
        if share:
            shared_append(hr, hs, m, row, value, context, n_context)
        n_context = n_context + 1 if value > 0 else 0


@inline
def announce(hr, ho, m, row, tokens, values):
    """Ask for what appending the first of `tokens` to a row's own text will read; `values` is scratch."""
    n = min(len(tokens), N_ANNOUNCED)
    for i in range(n):
        values[n - 1 - i] = to_value(hr, int(tokens[i]))
    n_values = n + own_context(hr, ho, m, row, values[n : n + MAX_ORDER])
    r = row_at(hr, row)
    for i in range(n):
        expect(ho, m, int(m[r + T_OWNER_LO]), int(m[r + T_OWNER_HI]), values[n - 1 - i :], n_values - (n - 1 - i))


@inline
def append_batch(hr, ho, hs, hz, hf, m, mz, slots, tokens, offsets, w):
    """Append at most MAX_SETTLE emitted tokens to every slot's own text; what they teach waits in the row's offer."""
    for i in range(len(slots)):
        row, start, end = int(slots[i]), int(offsets[i]), int(offsets[i + 1])
        if i + 1 < len(slots):
            announce(hr, ho, m, int(slots[i + 1]), tokens[offsets[i + 1] : offsets[i + 2]], w[W_HISTORY:])
        if end <= start:
            ban_last(hr, m, row)
            continue
        turn, r = hf[F_OFF] + row * OFFER_ROW + O_TURN, row_at(hr, row)
        at = offer_at(hf, m, row, int(m[turn]))
        if m[at + O_LENGTH] != m[r + T_LENGTH] or m[at + O_SERIAL] != m[r + T_SERIAL]:
            n, _ = gather(hr, ho, hs, hz, m, mz, row, w)
            keep_offer(hr, hf, m, row, n, w)
        for j in range(start, end):
            own_append(hr, ho, m, row, to_value(hr, int(tokens[j])))
        m[at + O_LENGTH], m[at + O_EMITTED], m[at + O_DRAFTED] = -1, end - start, 0
        m[turn] = 1 - m[turn]
        hr[R_TOKENS_OUT] += end - start
        progress(hr, m, row)


@kernel
def accept_batch(hr, ho, hs, hz, hk, hx, hf, m, mz, slots, tokens, offsets, deferred, w, g, x, t):
    """Append emitted tokens to every slot's own text, and learn from them; deferred, from those before them."""
    if deferred:
        settle_batch(hr, ho, hs, hz, hk, hx, hf, m, mz, slots, False, w, g, x, t)
    append_batch(hr, ho, hs, hz, hf, m, mz, slots, tokens, offsets, w)
    if not deferred:
        settle_batch(hr, ho, hs, hz, hk, hx, hf, m, mz, slots, False, w, g, x, t)


@kernel
def settle_batch(hr, ho, hs, hz, hk, hx, hf, m, mz, slots, only_drafted, w, g, x, t):
    """Settle what waits in every slot."""
    for i in range(len(slots)):
        settle_row(hr, ho, hs, hz, hk, hx, hf, m, mz, int(slots[i]), only_drafted, w, g, x, t)


@kernel
def truncate(hr, ho, hs, hk, hf, m, row, n_tokens, w):
    """Shorten a settled row, and take back what the rest of it was counted and shared for."""
    r, seed = row_at(hr, row), counted_seed(hr, m, row)
    m[offer_at(hf, m, row, int(m[hf[F_OFF] + row * OFFER_ROW + O_TURN])) + O_LENGTH] = -1
    history = w[W_HISTORY : W_HISTORY + N_ORDERS + 1]
    while m[r + T_LENGTH] > n_tokens:
        n = own_context(hr, ho, m, row, history)
        if m[r + T_LENGTH] > m[r + T_PROMPT]:
            if n > 0:
                uncount(hk, m, seed, history[1:], n - 1, int(history[0]), w[W_KEYS:], w[W_CHECKS:])
            if m[r + T_SHARE] == SHARE_OUTPUTS:
                shared_pop(hr, hs, m, row, 1)
        if m[r + T_SHARE] == SHARE_ALL:
            shared_pop(hr, hs, m, row, 1)
        own_pop(hr, ho, m, row, int(m[r + T_LENGTH]) - 1)
    m[r + T_PROMPT] = min(int(m[r + T_PROMPT]), n_tokens)
    progress(hr, m, row)
