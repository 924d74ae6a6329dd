"""What every cache must agree with, in dicts and lists: who may see which text, and what followed a context in it.

The oracle has the caches' method names but no drafts: it says which next tokens are allowed after a context, how long
the longest true match is, and where its occurrences lie. Nothing is ever evicted here, so that a cache whose text was
may know less, but never more.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

NOTHING = -1  # stands for every placeholder: matched by nothing, followed by nothing


@dataclass
class Request:
    """One running request."""

    tenant: str | None
    session: str | None
    share: str
    tokens: list[int] = field(default_factory=list)  # ingested prompt, then output
    waiting: list[int] = field(default_factory=list)  # prompt tokens not ingested yet
    span: "Span | None" = None  # what it shares
    offered: set[int] = field(default_factory=set)  # first tokens of the last draft
    banned: set[int] = field(default_factory=set)  # first tokens refused since the last progress


@dataclass
class Span:
    """What one request shares with its tenant: tokens that may be drafted, behind unshared ones that only match."""

    tenant: str | None
    ahead: list[int]  # own tokens before the first shared one: matched, never drafted
    tokens: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)  # when each was shared


@dataclass(frozen=True)
class Occurrence:
    """One place where a context occurred before and something followed it."""

    token: int  # what followed
    length: int  # tokens of the context that agree, counted back from its end
    shared: bool  # in the tenant's shared text, not in own text
    time: int  # the larger the later; own and shared places are not compared


class Oracle:
    """All text of all requests, and who may see it.

    Parameters
    ----------
    vocab_size : int
        Ids at or above it are placeholders, as negative ids are.
    shared_context : int or None
        Tokens of an unshared prompt that may be matched ahead of a shared output; None: all of them.
    """

    def __init__(self, vocab_size: int, shared_context: int | None = None) -> None:
        self.vocab_size = vocab_size
        self.shared_context = shared_context
        self.reset()

    # The caches' methods.

    def begin(
        self,
        request_id: str,
        prompt: Sequence[int],
        *,
        session: str | None = None,
        tenant: str | None = None,
        share: str = "outputs",
        max_tokens: int | None = None,
    ) -> None:
        waiting = [self._value(token) for token in prompt]
        self.running[request_id] = Request(tenant, session, share, waiting=waiting)
        self.ingest(request_id, max_tokens)

    def ingest(self, request_id: str, max_tokens: int | None = None) -> int:
        request = self.running[request_id]
        n = len(request.waiting) if max_tokens is None else max_tokens
        self._append(request, request.waiting[:n], shared=request.share == "all")
        del request.waiting[:n]
        return len(request.waiting)

    def accept(self, request_id: str, tokens: Sequence[int]) -> None:
        request = self.running[request_id]
        self.ingest(request_id)
        if not tokens:
            request.banned |= request.offered
            request.offered = set()
            return
        self._append(request, [self._value(token) for token in tokens], shared=request.share != "none")
        request.banned, request.offered = set(), set()

    def truncate(self, request_id: str, n_tokens: int) -> None:
        request = self.running[request_id]
        self.ingest(request_id)
        n_gone = len(request.tokens) - n_tokens
        del request.tokens[n_tokens:]
        if request.span is not None:
            n_left = max(0, len(request.span.tokens) - n_gone)
            del request.span.tokens[n_left:], request.span.times[n_left:]
            if n_left == 0:
                self.spans.remove(request.span)
                request.span = None
        request.banned, request.offered = set(), set()

    def finish(self, request_id: str) -> None:
        request = self.running.pop(request_id)
        if request.session is not None:
            self.sessions.setdefault((request.tenant, request.session), []).append(request.tokens)

    def reset(self) -> None:
        self.running: dict[str, Request] = {}
        self.sessions: dict[tuple[str | None, str], list[list[int]]] = {}  # texts of ended turns
        self.spans: list[Span] = []
        self._clock = 0

    def offer(self, request_id: str, first_tokens: Sequence[int]) -> None:
        """Take note of a draft's first tokens."""
        self.running[request_id].offered = set(first_tokens)

    # What a cache may know.

    def text(self, request_id: str) -> list[int]:
        """Prompt and output of a running request, ingested so far; every placeholder is `NOTHING`."""
        return self.running[request_id].tokens

    def occurrences(self, request_id: str, path: Sequence[int] = ()) -> list[Occurrence]:
        """Where the request's text, continued by `path`, occurred before: own ones, then shared ones, newest first.

        Own text is the request's, and goes on with the path itself.
        """
        request = self.running[request_id]
        own = [*request.tokens, *path]
        found = [Occurrence(token, length, False, i) for i, token, length in followers(own, own)]
        shared = []
        for span in self.spans:
            if span.tenant == request.tenant and span is not request.span:
                n_ahead = len(span.ahead)
                for i, token, length in followers([*span.ahead, *span.tokens], own):
                    if i >= n_ahead:
                        shared.append(Occurrence(token, length, True, span.times[i - n_ahead]))
        newest_first = {"key": lambda o: o.time, "reverse": True}
        return sorted(found, **newest_first) + sorted(shared, **newest_first)

    def allowed(self, request_id: str, path: Sequence[int] = ()) -> set[int]:
        """Tokens that a draft may put behind `path`: what followed its last token in any text the request may see."""
        request = self.running[request_id]
        own = [*request.tokens, *path]
        tokens = {occurrence.token for occurrence in self.occurrences(request_id, path)}
        if request.session is not None:  # what a session said before, its last turn or not
            for text in self.sessions.get((request.tenant, request.session), []):
                tokens |= {token for _, token, _ in followers(text, own)}
        return tokens if path else tokens - request.banned

    def longest(self, request_id: str, cap: int) -> int:
        """Length, up to `cap`, of the longest match that anything draftable followed."""
        banned = self.running[request_id].banned
        lengths = [o.length for o in self.occurrences(request_id) if o.token not in banned]
        return min(max(lengths, default=0), cap)

    def matches(self, request_id: str, shared: bool, cap: int) -> Counter[int]:
        """How many earlier places agree with the request's text for how many tokens, dead ends included."""
        request = self.running[request_id]
        if shared:
            texts = [s.ahead + s.tokens for s in self.spans if s.tenant == request.tenant and s is not request.span]
        else:
            texts = [request.tokens[:-1]]
        found: Counter[int] = Counter()
        for text in texts:
            for i in range(1, len(text) + 1):
                found[min(agreement(text[:i], request.tokens), cap)] += 1
        return found

    def _value(self, token: int) -> int:
        return token if 0 <= token < self.vocab_size else NOTHING

    def _append(self, request: Request, values: list[int], shared: bool) -> None:
        if shared and values and request.span is None:
            n = len(request.tokens)
            n_ahead = n if self.shared_context is None else min(n, self.shared_context)
            request.span = Span(request.tenant, request.tokens[n - n_ahead :])
            self.spans.append(request.span)
        for value in values:
            request.tokens.append(value)
            if shared and request.span is not None:
                self._clock += 1
                request.span.tokens.append(value)
                request.span.times.append(self._clock)


def followers(text: Sequence[int], context: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Each place i of `text` behind at least one token of `context`'s end: (i, token there, tokens that agree)."""
    for i in range(1, len(text)):
        length = 0 if text[i] == NOTHING else agreement(text[:i], context)
        if length:
            yield i, text[i], length


def agreement(one: Sequence[int], other: Sequence[int]) -> int:
    """Tokens that agree, counted back from both ends up to the first that differs or is `NOTHING`."""
    length = 0
    while length < min(len(one), len(other)) and one[-1 - length] == other[-1 - length] != NOTHING:
        length += 1
    return length
