"""A draft: a tree of proposed tokens with path probabilities, and the caller-owned arrays of a batch of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .errors import ConfigError

Int32 = NDArray[np.int32]

#: Most requests of a batch, and most tokens of a draft: what a key of a plan's merge can name.
MAX_SIDE = 1 << 16

#: One, as a path probability in fixed point (30 fractional bits).
ONE_Q30 = 1 << 30


class Reason(IntEnum):
    """Why a draft is empty (`DRAFTED` when it is not)."""

    DRAFTED = 0
    TOO_SHORT = 1  #: no committed token yet, or the prompt is not ingested to its end
    NO_MATCH = 2  #: nothing known followed this context
    BELOW_MIN = 3  #: the best candidate's path probability was below `min_prob`
    BUDGET = 4  #: `max_draft` was 0
    LENGTH_LIMIT = 5  #: `remaining` left no room beside the bonus token
    DISABLED = 6  #: drafting is switched off for this request


class Source(IntEnum):
    """Where a drafted token was found."""

    NONE = 0
    OWN = 1  #: the session's own prompt and output
    SHARED = 2  #: outputs of the tenant's other requests
    COUNTS = 3  #: counted short contexts
    FROZEN = 4  #: a frozen corpus


class Topology(IntEnum):
    """Shape of a draft."""

    CHAIN = 0
    TREE = 1

    @classmethod
    def parse(cls, name: str | Topology) -> Topology:
        """Turn `"chain"` or `"tree"` into a member; raises `ConfigError` for anything else."""
        if isinstance(name, Topology):
            return name
        try:
            return cls[name.upper()]
        except (KeyError, AttributeError):
            raise ConfigError(f"topology: got {name!r}, allowed 'chain' or 'tree'") from None


class Links(NamedTuple):
    """Tree links as tree-verification kernels read them, row 0 being the last committed token."""

    next_token: Int32  #: int32[n + 1], first child of each row, -1 where none
    next_sibling: Int32  #: int32[n + 1], next child of the same parent, -1 where none


@dataclass(frozen=True)
class Draft:
    """Proposed tokens of one request, every parent before its children.

    Attributes
    ----------
    tokens : int32[n]
        Proposed token ids.
    parents : int32[n]
        Index of each token's parent in `tokens`; -1 is the last committed token.
    probs : float32[n]
        Estimated probability that the whole path down to this token is emitted.
    sources : int8[n]
        `Source` of each token.
    match_length : int
        Tokens of context that the longest match behind this draft agrees on (capped).
    reason : Reason
        `DRAFTED`, or why the draft is empty.

    Examples
    --------
    >>> import ngramspec as ns
    >>> cache = ns.RollingHashCache(ns.HashConfig(capacity_tokens=100_000, vocab_size=1000))
    >>> slot = cache.begin("r1", [1, 2, 9, 1, 3, 8, 1])
    >>> draft = cache.draft("r1", max_draft=4)
    >>> draft.tokens, draft.parents
    (array([3, 2, 8, 9], dtype=int32), array([-1, -1,  0,  1], dtype=int32))
    >>> draft.mask().astype(int)  # what each row, the last committed token first, attends to
    array([[1, 0, 0, 0, 0],
           [1, 1, 0, 0, 0],
           [1, 0, 1, 0, 0],
           [1, 1, 0, 1, 0],
           [1, 0, 1, 0, 1]])
    >>> draft.links().next_sibling
    array([-1,  2, -1, -1, -1], dtype=int32)
    """

    tokens: Int32
    parents: Int32
    probs: NDArray[np.float32]
    sources: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, np.int8))
    match_length: int = 0
    reason: Reason = Reason.NO_MATCH

    def __len__(self) -> int:
        return len(self.tokens)

    def depths(self) -> Int32:
        """Depth of each token, int32[n]; children of the last committed token have depth 1."""
        depth = np.ones(len(self), np.int32)
        for i, parent in enumerate(self.parents):
            if parent >= 0:
                depth[i] = depth[parent] + 1
        return depth

    def mask(self) -> NDArray[np.bool_]:
        """Ancestor mask bool[n + 1, n + 1]: row i may attend to column j.

        Row 0 is the last committed token; row i + 1 is `tokens[i]`. Every row sees itself, row 0 and its ancestors.
        """
        seen = np.eye(len(self) + 1, dtype=np.bool_)
        seen[:, 0] = True
        for i, parent in enumerate(self.parents):
            seen[i + 1] |= seen[parent + 1]
        return seen

    def links(self) -> Links:
        """First-child and next-sibling links over rows (row 0 = last committed token), siblings in draft order."""
        n = len(self) + 1
        next_token, next_sibling = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
        last_child = np.full(n, -1, np.int32)
        for i, parent in enumerate(self.parents):
            row, above = i + 1, parent + 1
            if last_child[above] < 0:
                next_token[above] = row
            else:
                next_sibling[last_child[above]] = row
            last_child[above] = row
        return Links(next_token, next_sibling)

    def positions(self, n_committed: int) -> Int32:
        """Sequence position of each row, int32[n + 1], when `n_committed` tokens are committed (row 0 is the last)."""
        return np.concatenate([[0], self.depths()]).astype(np.int32) + np.int32(n_committed - 1)

    def __str__(self) -> str:
        return self.render()

    def render(self, decode: Callable[[list[int]], str] | None = None) -> str:
        """Draw the tree, one token a line.

        Parameters
        ----------
        decode : callable, optional
            Turns a list of token ids into text (a tokenizer's `decode`); ids are shown without it.

        Returns
        -------
        str
            The drawing; for an empty draft one line with the reason.
        """
        if not len(self):
            return f"(no draft: {self.reason.name.lower()})"
        children: dict[int, list[int]] = {}
        for i, parent in enumerate(self.parents.tolist()):
            children.setdefault(parent, []).append(i)
        lines: list[str] = []
        stack = [(i, "", k == len(children[-1]) - 1) for k, i in reversed(list(enumerate(children[-1])))]
        while stack:
            i, indent, last = stack.pop()
            token = int(self.tokens[i])
            shown = str(token) if decode is None else f"{token} {decode([token])!r}"
            lines.append(f"{indent}{'└' if last else '├'}─ {shown}  {self.probs[i]:.3f}")
            below = children.get(i, [])
            deeper = indent + ("   " if last else "│  ")
            stack += [(j, deeper, k == len(below) - 1) for k, j in reversed(list(enumerate(below)))]
        return "\n".join(lines)


@dataclass(frozen=True)
class DraftBatch:
    """Caller-owned arrays that `draft_batch` fills; reuse one object for every step.

    Row i of every array belongs to `slots[i]`. Entries at and beyond `n_draft[i]` are undefined: length is explicit,
    never a padding token.

    Examples
    --------
    >>> import numpy as np
    >>> import ngramspec as ns
    >>> cache = ns.RollingHashCache(ns.HashConfig(capacity_tokens=100_000, vocab_size=1000))
    >>> slots = np.array([cache.begin(f"r{i}", [7, 8, i, 7, 8]) for i in range(2)], np.int32)
    >>> drafts = ns.DraftBatch.allocate(batch=2, width=4)
    >>> cache.draft_batch(slots, drafts, max_draft=4)  # one compiled call a step
    >>> drafts.n_draft
    array([4, 4], dtype=int32)
    >>> drafts.row(1).tokens
    array([1, 7, 8, 1], dtype=int32)
    """

    tokens: Int32  #: int32[batch, width]
    parents: Int32  #: int32[batch, width], -1 is the last committed token
    path_q30: Int32  #: int32[batch, width], path probability times 2**30
    sources: NDArray[np.int8]  #: int8[batch, width], `Source`
    n_draft: Int32  #: int32[batch]
    match_length: Int32  #: int32[batch]
    reason: Int32  #: int32[batch], `Reason`

    def __post_init__(self) -> None:
        """Check every array once: kernels write without looking."""
        if not isinstance(self.tokens, np.ndarray) or self.tokens.ndim != 2:
            got = f"{self.tokens.ndim} dimensions" if isinstance(self.tokens, np.ndarray) else repr(self.tokens)
            raise ConfigError(f"out.tokens: got {got}, must be int32[batch, width]; use DraftBatch.allocate")
        batch = self.tokens.shape[:1]
        for item in fields(self):
            array = getattr(self, item.name)
            shape = batch if item.name in ("n_draft", "match_length", "reason") else self.tokens.shape
            dtype = np.dtype(np.int8 if item.name == "sources" else np.int32)
            if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != dtype:
                got = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else repr(array)
                raise ConfigError(f"out.{item.name}: got {got}, must be {dtype}{list(shape)}; use DraftBatch.allocate")

    @classmethod
    def allocate(cls, batch: int, width: int) -> DraftBatch:
        """Arrays for up to `batch` requests and `width` drafted tokens each."""
        for value in (batch, width):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not 0 <= value <= MAX_SIDE:
                raise ConfigError(
                    f"DraftBatch: got batch={batch!r}, width={width!r}; both must be integers from 0 to {MAX_SIDE}"
                )
        shape = (batch, width)
        return cls(
            np.zeros(shape, np.int32),
            np.zeros(shape, np.int32),
            np.zeros(shape, np.int32),
            np.zeros(shape, np.int8),
            np.zeros(batch, np.int32),
            np.zeros(batch, np.int32),
            np.zeros(batch, np.int32),
        )

    @property
    def width(self) -> int:
        """Drafted tokens a request that fit."""
        return int(self.tokens.shape[1])

    def row(self, i: int) -> Draft:
        """A copy of request `i`'s draft as a `Draft`."""
        n = int(self.n_draft[i])
        return Draft(
            self.tokens[i, :n].copy(),
            self.parents[i, :n].copy(),
            (self.path_q30[i, :n] / np.float32(ONE_Q30)).astype(np.float32),
            self.sources[i, :n].copy(),
            int(self.match_length[i]),
            Reason(int(self.reason[i])),
        )
