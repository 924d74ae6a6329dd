"""Finished responses in a ring, two tables into it, and a vote among the places that agree with a context.

`corpus int32[n]` holds documents, each followed by a negative number; no document lies across the ring's
end. `table int64[2, n_buckets, SLOTS]` holds, under the last 4 tokens and under the last 2, the newest place
in each of the last `SLOTS` documents: 1 + (number of the document << 32) + position of the token that
follows; 0 is empty. Entries are not removed: what they point to is compared with the context. `state
int64[2]`: where the next document goes, documents so far.
"""

import numpy as np

from .._jit import inline, kernel

HEAD, N_DOCUMENTS = range(2)
SEPARATOR = -1

SLOTS = 8
KEYS = (4, 2)
N_CANDIDATES = 2 * SLOTS

#: Columns of `candidates int64[N_CANDIDATES, 4]`.
PLACE, MATCH, ALIVE, TOKEN = range(4)

FACTOR = np.int64(-7046029254386353131)  # the golden ratio times 2**64, odd, as a signed number


@inline
def bucket_of(tokens, end, n, n_buckets):
    """Bucket of the `n` tokens ahead of `end`, the last one hashed first."""
    x = np.int64(0)
    for i in range(n):
        x = (x ^ np.int64(tokens[end - 1 - i])) * FACTOR
    return ((x >> np.int64(29)) ^ x) & np.int64(n_buckets - 1)


@kernel
def ingest(state, corpus, table, tokens):
    """Append a document, the last tokens of it where it is longer than the ring, and index it."""
    capacity = len(corpus)
    tokens = tokens[max(len(tokens) - (capacity - 1), 0) :]
    n = len(tokens)
    head = state[HEAD]
    if head + n + 1 > capacity:
        head = 0
    slot = state[N_DOCUMENTS] % SLOTS
    for i in range(n):
        corpus[head + i] = tokens[i]
        value = 1 + (state[N_DOCUMENTS] << 32) + head + i
        for t in range(2):
            if i >= KEYS[t]:
                table[t, bucket_of(tokens, i, KEYS[t], table.shape[1]), slot] = value
    corpus[head + n] = SEPARATOR
    state[HEAD] = head + n + 1
    state[N_DOCUMENTS] += 1


@kernel
def collect(corpus, table, text, depth, candidates):
    """Places in the corpus that agree with the end of `text` on the tokens of their key; returns how many."""
    n = 0
    for t in range(2):
        if len(text) < KEYS[t]:
            continue
        bucket = bucket_of(text, len(text), KEYS[t], table.shape[1])
        for slot in range(SLOTS):
            value = table[t, bucket, slot]
            if value == 0:
                continue
            place = (value - 1) & 0xFFFFFFFF
            length = 0
            while length < min(depth, len(text), place) and corpus[place - 1 - length] == text[len(text) - 1 - length]:
                length += 1
            known = length < KEYS[t] or corpus[place] < 0
            for i in range(n):
                known = known or (candidates[i, PLACE] - 1) & 0xFFFFFFFF == place
            if not known:
                candidates[n, PLACE], candidates[n, MATCH] = value, length
                n += 1
    return n


@kernel
def vote(corpus, candidates, n, length, width, out):
    """The chain that candidates matching at least `length` tokens vote for; returns its length and score.

    Token by token the most frequent continuation wins, the newest among equals, and those that disagree drop
    out. The score is the sum of the products of shares; a candidate whose document has ended still counts
    once.
    """
    share, score = np.float32(1.0), np.float32(0.0)
    n_alive = 0
    for i in range(n):
        candidates[i, ALIVE] = candidates[i, MATCH] >= length
        n_alive += candidates[i, ALIVE]
    for d in range(width):
        for i in range(n):
            place = ((candidates[i, PLACE] - 1) & 0xFFFFFFFF) + d
            candidates[i, TOKEN] = SEPARATOR
            if candidates[i, ALIVE] and place < len(corpus):
                candidates[i, TOKEN] = corpus[place]
        most, newest, token = 0, 0, 0
        for i in range(n):
            if candidates[i, TOKEN] < 0:
                continue
            count = 0
            for j in range(n):
                count += candidates[j, TOKEN] == candidates[i, TOKEN]
            if count > most or (count == most and candidates[i, PLACE] > newest):
                most, newest, token = count, candidates[i, PLACE], candidates[i, TOKEN]
        if most == 0:
            return d, score
        share = share * np.float32(most) / np.float32(n_alive)
        score += share
        out[d] = token
        n_alive = most
        for i in range(n):
            candidates[i, ALIVE] = candidates[i, TOKEN] == token
    return width, score


@kernel
def draft(corpus, table, text, depth, width, candidates, trial, out):
    """The chain with the highest score over all match lengths, the longer among equals; returns length and match."""
    n = collect(corpus, table, text, depth, candidates)
    best_n, best_match, best_score = 0, 0, np.float32(-1.0)
    for i in range(n):
        length = candidates[i, MATCH]
        if length == best_match:
            continue
        n_found, score = vote(corpus, candidates, n, length, width, trial)
        if score > best_score or (score == best_score and length > best_match):
            best_n, best_match, best_score = n_found, length, score
            for d in range(n_found):
                out[d] = trial[d]
    return best_n, best_match
