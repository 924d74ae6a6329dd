"""The suffix trie in dicts: counts, orders and drafts by definition, nothing ever evicted."""

from __future__ import annotations

from dataclasses import dataclass, field

from ngramspec.kernels.shared_text import SHARED_CONTEXT
from ngramspec.kernels.trie_draft import CLAIM, ENOUGH, KEPT_BACK, LATEST, OWN, SHARED, UNIT, WORTH

NOTHING = -1
ONE = 1 << 30

Path = tuple[int, ...]


class Counts:
    """Followers of every context of fewer than `depth` tokens, the most recently counted last."""

    def __init__(self, depth: int) -> None:
        self.depth = depth
        self.followers: dict[Path, dict[int, int]] = {}

    def count(self, context: list[int], token: int) -> None:
        """Count `token` behind the last 0, 1, ... tokens of `context`, up to a placeholder."""
        if token != NOTHING:
            for before in contexts(context, self.depth - 1):
                seen = self.followers.setdefault(before, {})
                n = seen.get(token, 0) + 1
                if before:  # single tokens stay in the order in which they first occurred
                    seen.pop(token, None)
                seen[token] = n

    def uncount(self, context: list[int], token: int) -> None:
        """Take back one `count` with the same arguments."""
        if token != NOTHING:
            for before in contexts(context, self.depth - 1):
                self.followers[before][token] -= 1
                if not self.followers[before][token]:
                    del self.followers[before][token]
                if not self.followers[before]:
                    del self.followers[before]

    @classmethod
    def of(cls, text: list[int], depth: int) -> Counts:
        """Counts of one text."""
        counts = cls(depth)
        for i, token in enumerate(text):
            counts.count(text[:i], token)
        return counts

    def occurred(self, path: Path) -> int:
        """How often the last token of `path` was counted behind the others."""
        return self.followers.get(path[:-1], {}).get(path[-1], 0)


def contexts(text: list[int], most: int) -> list[Path]:
    """The last 0, 1, ... up to `most` tokens of `text`, shortest first, up to a placeholder."""
    found: list[Path] = [()]
    for i in range(len(text) - 1, max(-1, len(text) - 1 - most), -1):
        if text[i] == NOTHING:
            break
        found.append((text[i], *found[-1]))
    return found


@dataclass
class Request:
    """One running request."""

    tenant: str | None
    session: str | None
    share: str
    text: list[int] = field(default_factory=list)
    n_context: int = 0  # unshared tokens ahead of the first shared one that count as its context
    n_shared: int = 0
    offered: list[int] = field(default_factory=list)
    banned: set[int] = field(default_factory=set)


class NaiveTrie:
    """Same calls as the cache, with everything in dicts.

    Parameters
    ----------
    vocab_size, depth, max_followers, eos_ids
        As in `TrieConfig`.
    """

    def __init__(self, vocab_size: int, depth: int, max_followers: int = 16, eos_ids: tuple[int, ...] = ()) -> None:
        self.vocab_size, self.depth, self.max_followers, self.eos_ids = vocab_size, depth, max_followers, eos_ids
        self.running: dict[str, Request] = {}
        self.shared: dict[str, Counts] = {}
        self.sessions: dict[tuple[str | None, str], list[int]] = {}

    def begin(self, request_id, prompt, *, session=None, tenant=None, share="outputs"):
        request = Request(tenant, session, share)
        values = [self.value(token) for token in prompt]
        before = self.sessions.pop((tenant, session), []) if session else []
        n_keep = 0
        while n_keep < min(len(before), len(values)) and before[n_keep] == values[n_keep]:
            n_keep += 1
        request.text = values[:n_keep]
        self.running[request_id] = request
        self.append(request, values[n_keep:], share == "all")

    def accept(self, request_id, tokens):
        request = self.running[request_id]
        if not len(tokens):
            request.banned |= set(request.offered)
        else:
            self.append(request, [self.value(token) for token in tokens], request.share != "none")
            request.banned = set()
        request.offered = []

    def truncate(self, request_id, n_tokens):
        request = self.running[request_id]
        while len(request.text) > n_tokens:
            token = request.text.pop()
            if request.n_shared:
                request.n_shared -= 1
                self.tenant(request).uncount(self.shared_context(request), token)
        if request.n_shared == 0:
            request.n_context = 0
        request.banned, request.offered = set(), []

    def finish(self, request_id):
        request = self.running.pop(request_id)
        if request.session:
            self.sessions[request.tenant, request.session] = request.text

    def value(self, token: int) -> int:
        return token if 0 <= token < self.vocab_size else NOTHING

    def tenant(self, request: Request) -> Counts:
        return self.shared.setdefault(request.tenant or "", Counts(self.depth))

    def shared_context(self, request: Request) -> list[int]:
        n = request.n_context + request.n_shared
        return request.text[len(request.text) - n :] if n else []

    def append(self, request: Request, values: list[int], shared: bool) -> None:
        for value in values:
            if shared:
                if request.n_shared == 0 and value != NOTHING:
                    request.n_context = len(contexts(request.text, SHARED_CONTEXT)) - 1
                self.tenant(request).count(self.shared_context(request), value)
                request.n_shared += 1
            request.text.append(value)

    # Drafts.

    def draft(self, request_id, *, max_draft, topology="tree", min_prob=0.0, remaining=None):
        """Tokens, parents, path probabilities times 2**30 and sources of a draft."""
        request = self.running[request_id]
        depth = max_draft if remaining is None else min(max_draft, remaining - 1)
        drafted: list[tuple[int, int, int, int]] = []  # token, parent, path probability, source
        paths: list[Path] = [()]
        opened: list[tuple[int, int, int, int]] = []
        most = self.depth - 1
        standing = {(): {OWN: most, SHARED: most}}  # longest context asked behind each path, by tree
        node = -1
        while len(drafted) < max_draft:
            if topology == "chain":
                opened = []
            path = paths[node + 1]
            if len(path) < depth and not (path and path[-1] in self.eos_ids):
                above = drafted[node][2] if node >= 0 else ONE
                room = 1 if topology == "chain" else max_draft - len(drafted)
                best_first = sorted((child[2] for child in opened), reverse=True)
                least = best_first[room - 1] if len(best_first) >= room else 0
                if above > least:
                    found = self.candidates(request, path, above, max(least, WORTH), standing[path])
                    for token, (prob, source, stands) in found.items():
                        below = (above * prob) >> 30
                        standing[*path, token] = {tree: min(n, most) for tree, n in stands.items()}
                        if below >= max(1, int(min_prob * ONE)):
                            opened.append((token, node, below, source))
            if not opened:
                break
            best = max(opened, key=lambda child: child[2])  # the first of equals
            opened.remove(best)
            drafted.append(best)
            paths.append((*paths[best[1] + 1], best[0]))
            node = len(drafted) - 1
        request.offered = [token for token, parent, _, _ in drafted if parent < 0]
        return drafted

    def candidates(self, request: Request, path: Path, above: int, floor: int, longest: dict[int, int]):
        """Followers behind the text continued by `path`, of probability `above`: token: probability, source, standing.

        `longest` is the longest context asked in each tree; a token stands one token behind where it was first seen, or
        behind what would have been asked next.
        """
        trees = ((OWN, Counts.of(request.text, self.depth), 1), (SHARED, self.tenant(request), request.n_shared > 0))
        banned = set() if path else request.banned
        probs: dict[int, int] = {}
        sources: dict[int, int] = {}
        stands: dict[int, dict[int, int]] = {}
        counted: dict[int, dict[int, int]] = {OWN: {}, SHARED: {}}
        before = {OWN: 0, SHARED: 0}
        next_asked = dict(longest)
        left = ONE
        for context in contexts([*request.text, *path], max(longest.values()))[:0:-1]:
            tier = min(len(context), len(CLAIM) - 1)
            for source, counts, counted_now in trees:
                if len(context) > longest[source]:
                    continue
                next_asked[source] = len(context) - 1
                total = counts.occurred(context) - (0 if path else counted_now)
                followers = counts.followers.get(context, {})
                if before[source] and total <= before[source]:
                    continue
                newest = list(reversed(followers.items()))[: self.max_followers]
                seen = {token: n for token, n in newest if token not in banned}
                total = max(total - sum(n for token, n in newest if token in banned), sum(seen.values()))
                fresh = {token: n - counted[source].get(token, 0) for token, n in seen.items()}
                fresh = {token: n for token, n in fresh.items() if n > 0}
                counted[source] |= seen
                for token in seen:
                    probs.setdefault(token, 0)
                    sources.setdefault(token, source)
                    stands.setdefault(token, {}).setdefault(source, len(context) + 1)
                if fresh:
                    latest = LATEST if source == OWN and newest[0][0] in fresh else 0
                    whole = max(total - before[source], sum(fresh.values())) * UNIT + latest
                    whole += int(KEPT_BACK[tier]) * len(fresh)
                    scale = (((left * int(CLAIM[tier])) >> 8) << 20) // whole
                    for token, n in fresh.items():
                        given = ((n * UNIT + (latest if token == newest[0][0] else 0)) * scale) >> 20
                        probs[token] += given
                        left -= given
                before[source] = total
            if left < ENOUGH or (probs and (left * above) >> 30 <= floor):
                break
        unseen = {tree: n + 1 for tree, n in next_asked.items()}
        return {token: (prob, sources[token], unseen | stands[token]) for token, prob in probs.items()}
