"""A small trie, and what it holds in plain dicts and lists."""

from ngramspec.arena import C_CHILD, C_COUNT, C_NEWER, C_OLDER, C_TOKEN, OWN_ROOT, SHARED_ROOT
from ngramspec.caches.suffix_trie import SuffixTrieCache
from ngramspec.caches.trie_integrity import TrieCheck
from ngramspec.config import TrieConfig


def trie(**settings):
    """A small cache."""
    defaults = {"capacity_tokens": 4_096, "vocab_size": 1_000, "max_requests": 4, "max_sessions": 16}
    return SuffixTrieCache(TrieConfig(**(defaults | settings)))


def trees(cache):
    """Counted followers of each context, oldest first, by root: ("own", row) or ("shared", n-th)."""
    check = TrieCheck(cache.arena)
    check.check_free_list()
    check.check_waste()
    found, n_shared = {}, 0
    for node in check.live:
        fields = check.nodes[node]
        root = check.root_of[node]
        followers, child = [], fields[C_CHILD]
        while child:
            below = check.nodes[child]
            followers.append((below[C_TOKEN] - 1, below[C_COUNT]))
            child = below[C_OLDER]
        if followers:
            path = tuple(value - 1 for value in check.paths[node])
            found.setdefault(root, {})[path] = list(reversed(followers))
    by_name = {}
    for root, contexts in found.items():
        fields = check.nodes[root]
        if fields[C_TOKEN] == OWN_ROOT:
            by_name["own", fields[C_NEWER] - 1] = contexts
        else:
            assert fields[C_TOKEN] == SHARED_ROOT
            by_name["shared", n_shared] = contexts
            n_shared += 1
    return by_name


def as_lists(counts):
    """Counts in the form that `trees` gives."""
    return {path: list(seen.items()) for path, seen in counts.followers.items()}


def drafted(draft):
    """Tokens, parents, path probabilities times 2**30 and sources of a draft."""
    paths = [round(prob * 2**30) for prob in draft.probs.tolist()]
    return list(zip(draft.tokens.tolist(), draft.parents.tolist(), paths, draft.sources.tolist()))
