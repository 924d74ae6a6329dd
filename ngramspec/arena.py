"""One flat buffer holds a cache's whole state: memory, file, shared memory and C pointer alike.

The buffer starts with headers of 64 `int64` words: word layout of the arena itself, then one header a component. The
rest is `int32` sections in the order in which the components list them. Zero means empty everywhere, so a fresh buffer
costs nothing but its headers. This is the only file that knows where anything lies; kernels get the headers, the
buffer as `int32`, and the constants below.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .errors import CapacityError, ConfigError, SnapshotError

MAGIC = int.from_bytes(b"ngrmspec", "little")
LAYOUT_VERSION = 1
WORDS = 64  # int64 words of every header

# Arena header.
A_MAGIC, A_VERSION, A_NBYTES, A_DIGEST, A_COMPONENTS = range(5)
A_NAMES = 8  # first of one word a component: its name's digest

# Requests: one row a request or idle session, see `kernels/requests.py`.
R_ROWS, R_OFF, R_VOCAB, R_SERIAL, R_IDLE_OLD, R_IDLE_NEW, R_N_EOS, R_N_IDLE = range(8)
R_DRAFTS, R_TOKENS_IN, R_TOKENS_OUT, R_REASON0 = 8, 9, 10, 12  # counters; one a Reason from R_REASON0
R_EOS0, MAX_EOS = 32, 16
ROW = 64  # int32 fields a row
(T_STATE, T_SHARE, T_OWNER_LO, T_OWNER_HI, T_TENANT_LO, T_TENANT_HI, T_LENGTH, T_FIRST, T_TAIL, T_BLOCKS, T_DROPPED,
 T_PROMPT, T_OLDER, T_NEWER, T_SHARED_TAIL, T_SERIAL, T_N_BANNED, T_N_ROOTS, T_SHARED_N, T_CONTEXT_N,
 T_LAST_N, T_LAST_STOP) = range(22)  # fmt: skip
T_BANNED, MAX_BANNED = 24, 16
T_ROOTS, MAX_ROOTS = 40, 16
FREE, LIVE, IDLE = 0, 1, 2
SHARE_NONE, SHARE_OUTPUTS, SHARE_ALL = 0, 1, 2

# Store: text in blocks, and chains of earlier positions with the same last k tokens.
BLOCK = 32  # tokens a block
MAX_ORDERS = 6
(S_BLOCKS, S_HEADS, S_ORDERS, S_TEXT, S_LINKS, S_HEAD, S_META, S_CLOCK, S_CURSOR, S_FREE, S_N_FREE, S_TOKENS, S_EVICTED,
 S_HOPS, S_TOP) = range(15)  # fmt: skip
S_ORDER0 = 16
META = 8  # int32 fields a block
M_OWNER_LO, M_OWNER_HI, M_NEXT, M_PREV, M_FILL, M_WRITER, M_FREE = range(7)


@dataclass(frozen=True)
class Component:
    """One part of an arena: header words set at construction, and its sections.

    Attributes
    ----------
    name : str
        Unique within the arena.
    words : mapping of int to int
        Header words and their start values.
    sections : sequence of (int, int)
        For each section the header word that holds its offset (in `int32` elements of the buffer) and its length.
    """

    name: str
    words: Mapping[int, int]
    sections: Sequence[tuple[int, int]]


class Arena:
    """A buffer carved into component headers and `int32` sections.

    Parameters
    ----------
    components : sequence of Component
        In the order in which they lie in the buffer.
    digest : int
        63-bit digest of the configuration; `attach` refuses a buffer with another one.
    buffer : uint8[nbytes], optional
        An existing state to attach to (validated); None allocates a fresh one.

    Raises
    ------
    SnapshotError
        The buffer does not hold a state of this layout and configuration.
    CapacityError
        The system does not give so much memory.
    """

    def __init__(self, components: Sequence[Component], digest: int, buffer: NDArray[np.uint8] | None = None) -> None:
        self.nbytes = arena_nbytes(components)
        self._components = tuple(components)
        self._digest = digest
        fresh = buffer is None
        self.buffer: NDArray[np.uint8] = _zeros(self.nbytes) if buffer is None else buffer
        if not fresh:
            self._validate()
        self.mem: NDArray[np.int32] = self.buffer.view(np.int32)
        self._headers = self.buffer[: 8 * WORDS * (1 + len(components))].view(np.int64).reshape(-1, WORDS)
        if fresh:
            self._format()

    def header(self, name: str) -> NDArray[np.int64]:
        """Header of a component, int64[64], a view that kernels read and write."""
        names = [component.name for component in self._components]
        header: NDArray[np.int64] = self._headers[names.index(name) + 1]
        return header

    def section(self, name: str, word: int) -> NDArray[np.int32]:
        """One section of a component, int32[length], a view."""
        offset = int(self.header(name)[word])
        component = next(c for c in self._components if c.name == name)
        return self.mem[offset : offset + dict(component.sections)[word]]

    def clear(self) -> None:
        """Back to the state of a fresh arena; modifies."""
        self.buffer[:] = 0
        self._format()

    def digest(self) -> str:
        """Hex digest of all bytes; equal states have equal digests."""
        return hashlib.blake2b(self.buffer.data, digest_size=16).hexdigest()

    def _format(self) -> None:
        head = self._headers[0]
        head[A_MAGIC], head[A_VERSION], head[A_NBYTES] = MAGIC, LAYOUT_VERSION, self.nbytes
        head[A_DIGEST], head[A_COMPONENTS] = self._digest, len(self._components)
        offset = 2 * WORDS * (1 + len(self._components))
        for i, component in enumerate(self._components):
            head[A_NAMES + i] = digest63(component.name.encode())
            for word, value in component.words.items():
                self._headers[i + 1, word] = value
            for word, length in component.sections:
                self._headers[i + 1, word] = offset
                offset += _aligned(length)

    def _validate(self) -> None:
        """Check everything that kernels rely on before trusting a single offset."""
        buffer, nbytes = self.buffer, self.nbytes
        if not isinstance(buffer, np.ndarray):
            raise SnapshotError(f"buffer: got {type(buffer).__name__}, must be a uint8 array")
        if buffer.dtype != np.uint8 or buffer.ndim != 1 or not buffer.flags.c_contiguous or not buffer.flags.writeable:
            raise SnapshotError("buffer: must be a writable, contiguous uint8 array of one dimension")
        if len(buffer) != nbytes or buffer.ctypes.data % 8:
            raise SnapshotError(
                f"buffer: got {len(buffer)} bytes, this configuration needs {nbytes}, aligned to 8: "
                "attach with the configuration that made it"
            )
        n = len(self._components)
        headers = buffer[: 8 * WORDS * (1 + n)].view(np.int64).reshape(-1, WORDS)
        head = headers[0]
        for what, got, want in (
            ("magic", head[A_MAGIC], MAGIC),
            ("layout version", head[A_VERSION], LAYOUT_VERSION),
            ("size in bytes", head[A_NBYTES], nbytes),
            ("configuration digest", head[A_DIGEST], self._digest),
            ("number of components", head[A_COMPONENTS], n),
        ):
            if int(got) != want:
                raise SnapshotError(f"buffer: {what} is {int(got)}, must be {want}: it holds another state")
        offset = 2 * WORDS * (1 + n)
        for i, component in enumerate(self._components):
            if int(head[A_NAMES + i]) != digest63(component.name.encode()):
                raise SnapshotError(f"buffer: component {i} is not {component.name!r}")
            for word, length in component.sections:
                if int(headers[i + 1, word]) != offset:
                    raise SnapshotError(f"buffer: offset in word {word} of {component.name!r} is wrong")
                offset += _aligned(length)


def _zeros(nbytes: int) -> NDArray[np.uint8]:
    try:
        return np.zeros(nbytes, np.uint8)
    except MemoryError:
        raise CapacityError(
            f"the state needs {nbytes} bytes, which this system does not give: lower max_bytes or capacity_tokens"
        ) from None


def arena_nbytes(components: Sequence[Component]) -> int:
    """Bytes of an arena with these components, known before anything is allocated."""
    words = 2 * WORDS * (1 + len(components))
    return 4 * (words + sum(_aligned(length) for c in components for _, length in c.sections))


def digest63(data: bytes) -> int:
    """63-bit blake2b digest of `data`, a non-negative int64."""
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") >> 1


def _aligned(length: int) -> int:
    return (length + 15) & ~15  # sections start on a cache line


def requests_component(n_rows: int, vocab_size: int, eos_ids: Sequence[int]) -> Component:
    """Table of running requests and idle sessions."""
    if len(eos_ids) > MAX_EOS:
        raise ConfigError(f"eos_ids: got {len(eos_ids)} ids, at most {MAX_EOS} are allowed")
    words = {R_ROWS: n_rows, R_VOCAB: vocab_size, R_N_EOS: len(eos_ids)}
    words |= {R_EOS0 + i: int(eos) for i, eos in enumerate(eos_ids)}
    return Component("requests", words, [(R_OFF, n_rows * ROW)])


def store_component(name: str, n_blocks: int, orders: Sequence[int], hops: int, top: int) -> Component:
    """Text in blocks; with `orders`, chains at these context lengths too.

    Parameters
    ----------
    name : str
        Of the component.
    n_blocks : int
        Blocks of `BLOCK` tokens.
    orders : sequence of int
        Context lengths, ascending; empty for text alone.
    hops : int
        Positions visited an order and look-up.
    top : int
        Tokens compared to tell longer matches from shorter ones.
    """
    n_positions = n_blocks * BLOCK
    words = {S_BLOCKS: n_blocks, S_HEADS: n_positions, S_ORDERS: len(orders), S_HOPS: hops, S_TOP: top}
    words |= {S_ORDER0 + i: order for i, order in enumerate(orders)}
    sections = [(S_TEXT, n_positions), (S_META, n_blocks * META)]
    if orders:
        sections += [(S_LINKS, n_positions * (1 + len(orders))), (S_HEAD, n_positions * len(orders))]
    return Component(name, words, sections)


def store_block_nbytes(n_orders: int) -> int:
    """Bytes that one more block of a store costs."""
    return 4 * (BLOCK * (1 + (1 + 2 * n_orders if n_orders else 0)) + META)


# Suffix trie: counted contexts of own and shared text, see `kernels/trie.py`.
NODE = 8  # int32 fields a node; node 0 is none, node i lies at offset (i - 1) * NODE
C_TOKEN, C_PARENT, C_COUNT, C_CHILD, C_NEWER, C_OLDER, C_SUFFIX, C_USE = range(8)
OWN_ROOT, SHARED_ROOT = -1, -2  # in the place of a root's token
(X_NODES, X_DEPTH, X_FOLLOWERS, X_BITS, X_EDGES, X_NODE, X_VERSION, X_EDGE, X_PLACE, X_BUMP, X_FREE, X_N_FREE, X_WASTE,
 X_HAND, X_CREATED, X_FREED, X_EVICTED) = range(17)  # fmt: skip
PLACE = 16  # int32 fields a row: where its text ends in the trie
(P_ROOT, P_ROOT_VERSION, P_OWN, P_OWN_VERSION, P_OWN_LENGTH, P_SHARED, P_SHARED_VERSION, P_SHARED_LENGTH, P_SEEN,
 P_COUNTED) = range(10)  # fmt: skip
EDGES_PER_NODE = 2  # slots of the edge table
TRIE_NODE_NBYTES = 4 * (NODE + 1 + EDGES_PER_NODE)  # with its version and its part of the edge table


def trie_component(n_nodes: int, n_rows: int, depth: int, max_followers: int) -> Component:
    """Trie: nodes, their versions, the edge table, and a place a row.

    Parameters
    ----------
    n_nodes : int
        Most nodes.
    n_rows : int
        Rows of the request table.
    depth : int
        Tokens of a context and its follower together.
    max_followers : int
        Followers that a draft looks at.
    """
    words = {X_NODES: n_nodes, X_DEPTH: depth, X_FOLLOWERS: max_followers, X_BITS: n_nodes.bit_length()}
    words |= {X_EDGES: EDGES_PER_NODE * n_nodes}
    sections = [(X_NODE, n_nodes * NODE), (X_VERSION, n_nodes), (X_EDGE, EDGES_PER_NODE * n_nodes)]
    return Component("trie", words, [*sections, (X_PLACE, n_rows * PLACE)])


# Counts: one row a counted context, see `kernels/counts.py`.
K_ROWS, K_OFF, K_TOKENS = range(3)
COUNT_ROW = 16  # int32 fields a row
# Mixer: adaptive tables and weights, see `kernels/mixer.py`.
B_TABLES, B_NODE, B_TOKEN, B_GROUP, B_FINAL = range(5)
MIXER_SIZES = (28 * 128, 169 * 32, 1024 * 32, 169 * 32, 4096 * 24)  # `int32` elements of each, in this order
# Offers: the candidates behind each row's last draft, kept until the outcome is known; see `kernels/drafter.py`.
F_OFF = 0
OFFER_ROW = 928  # int32 fields a row


def counts_component(n_rows: int) -> Component:
    """Table of counted contexts, 64 bytes each."""
    return Component("counts", {K_ROWS: n_rows}, [(K_OFF, COUNT_ROW * n_rows)])


def mixer_component() -> Component:
    """Tables and weights of the mixer."""
    return Component("mixer", {}, list(zip(range(B_TABLES, B_FINAL + 1), MIXER_SIZES, strict=True)))


def offers_component(n_rows: int) -> Component:
    """One offer a row of the request table."""
    return Component("offers", {}, [(F_OFF, n_rows * OFFER_ROW)])


#: Header and buffer of a store without text, for drafters without a frozen corpus.
NO_TEXT = (np.zeros(WORDS, np.int64), np.zeros(1, np.int32))
