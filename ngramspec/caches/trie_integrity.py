"""Slow checks of what the trie's kernels rely on."""

from __future__ import annotations

import numpy as np

from ..arena import (
    C_CHILD,
    C_COUNT,
    C_NEWER,
    C_OLDER,
    C_PARENT,
    C_SUFFIX,
    C_TOKEN,
    C_USE,
    LIVE,
    NODE,
    OWN_ROOT,
    P_COUNTED,
    P_OWN,
    P_OWN_LENGTH,
    P_OWN_VERSION,
    P_ROOT,
    P_ROOT_VERSION,
    P_SHARED,
    P_SHARED_LENGTH,
    P_SHARED_VERSION,
    PLACE,
    R_OFF,
    ROW,
    SHARED_ROOT,
    T_LENGTH,
    T_STATE,
    T_TENANT_HI,
    T_TENANT_LO,
    X_BITS,
    X_BUMP,
    X_DEPTH,
    X_EDGE,
    X_EDGES,
    X_FREE,
    X_N_FREE,
    X_NODE,
    X_NODES,
    X_PLACE,
    X_VERSION,
    X_WASTE,
    Arena,
)
from ..errors import SnapshotError
from ..kernels.trie import edge_hash, home, root_hash


class TrieCheck:
    """One pass over a trie; each method checks one kind of invariant and raises `SnapshotError`.

    Parameters
    ----------
    arena : Arena
        Holds the components "requests" and "trie". Not modified.
    """

    def __init__(self, arena: Arena) -> None:
        self.head = arena.header("trie")
        self.m = arena.mem
        self.n_nodes, self.bump = int(self.head[X_NODES]), int(self.head[X_BUMP])
        none = np.zeros((1, NODE), np.int32)  # so that node i is row i
        nodes = arena.section("trie", X_NODE).reshape(self.n_nodes, NODE)
        self.unused = nodes[self.bump :]
        self.nodes = np.concatenate([none, nodes[: self.bump]]).tolist()
        self.versions = arena.section("trie", X_VERSION)
        self.edges = arena.section("trie", X_EDGE)[: int(self.head[X_EDGES])]
        self.places = arena.section("trie", X_PLACE).reshape(-1, PLACE)
        first = int(arena.header("requests")[R_OFF])
        self.rows = arena.mem[first : first + len(self.places) * ROW].reshape(-1, ROW)

    def run(self) -> None:
        """Check everything."""
        self.check_free_list()
        self.check_waste()
        self.check_links()
        self.check_lists()
        self.check_edges()
        self.check_places()

    def fail(self, what: str, where: object) -> None:
        """Raise."""
        raise SnapshotError(f"trie: {what} at {where}")

    def check_free_list(self) -> None:
        """Free nodes are empty and on the list once; those beyond the highest ever used are untouched."""
        if not 0 <= self.bump <= self.n_nodes or self.unused.any():
            self.fail("a node beyond the highest in use is not empty", self.bump)
        self.free: set[int] = set()
        node = int(self.head[X_FREE])
        while node:
            if node > self.bump or node in self.free or any(self.nodes[node][:C_OLDER] + self.nodes[node][C_SUFFIX:]):
                self.fail("free list is broken", node)
            self.free.add(node)
            node = self.nodes[node][C_OLDER]
        if len(self.free) != int(self.head[X_N_FREE]):
            self.fail("free counter differs from the list", (len(self.free), int(self.head[X_N_FREE])))
        self.used = [i for i in range(1, self.bump + 1) if i not in self.free]

    def check_waste(self) -> None:
        """Abandoned trees hang together: from the node where clearing goes on up to each root, and on to the next."""
        roots, node = set(), int(self.head[X_WASTE])
        while node:
            if node in self.free or node in roots:
                self.fail("abandoned trees are not linked", node)
            while self.nodes[node][C_TOKEN] > 0:
                node = self.nodes[node][C_PARENT]
            roots.add(node)
            node = self.nodes[node][C_SUFFIX]
        self.root_of: dict[int, int] = {}
        self.paths: dict[int, tuple[int, ...]] = {}
        for node in self.used:
            path: list[int] = []
            up = node
            while self.nodes[up][C_TOKEN] > 0 and len(path) <= int(self.head[X_DEPTH]):
                path.append(self.nodes[up][C_TOKEN])
                up = self.nodes[up][C_PARENT]
            if self.nodes[up][C_TOKEN] not in (OWN_ROOT, SHARED_ROOT) or len(path) > int(self.head[X_DEPTH]):
                self.fail("a node leads to no root", node)
            self.root_of[node], self.paths[node] = up, tuple(path[::-1])
        self.live = [node for node in self.used if self.root_of[node] not in roots]
        self.wasted = roots

    def check_links(self) -> None:
        """Suffixes are true; references are counted; own counts are at least the sum of what followed."""
        uses = dict.fromkeys(self.live, 0)
        below = dict.fromkeys(self.live, 0)
        for node in self.live:
            fields, path = self.nodes[node], self.paths[node]
            if not path:
                if fields[C_PARENT] or fields[C_SUFFIX]:
                    self.fail("a root has a parent or suffix", node)
                continue
            suffix = fields[C_SUFFIX]
            if self.root_of.get(suffix) != self.root_of[node] or self.paths[suffix] != path[1:]:
                self.fail("a suffix is wrong", node)
            uses[suffix] += 1
            uses[fields[C_PARENT]] += 1
            below[fields[C_PARENT]] += fields[C_COUNT]
        for node in self.live:
            fields = self.nodes[node]
            if fields[C_USE] >> 1 != uses[node]:
                self.fail("a node's references are miscounted", (node, fields[C_USE], uses[node]))
            if self.nodes[self.root_of[node]][C_TOKEN] == OWN_ROOT and (
                fields[C_COUNT] < max(below[node], 1 if self.paths[node] else 0)
            ):
                self.fail("an own context occurred less often than what followed it", node)

    def check_lists(self) -> None:
        """Each list holds the followers that were counted, linked both ways."""
        listed = set()
        for parent in self.used:
            newer, node = 0, self.nodes[parent][C_CHILD]
            while node:
                fields = self.nodes[node]
                intact = self.root_of[node] not in self.wasted  # of an abandoned tree the first are gone
                if node in listed or fields[C_PARENT] != parent or (intact and fields[C_NEWER] != newer):
                    self.fail("a list of followers is broken", node)
                listed.add(node)
                newer, node = node, fields[C_OLDER]
        counted = {node for node in self.used if self.paths[node] and self.nodes[node][C_COUNT] > 0}
        if listed != counted:
            self.fail("counted nodes and lists differ", sorted(listed ^ counted)[:8])
        for node in self.used:
            fields = self.nodes[node]
            if self.paths[node] and node not in listed and (fields[C_NEWER] or fields[C_OLDER]):
                self.fail("a node in no list has neighbours", node)

    def check_edges(self) -> None:
        """The edge table finds every node but own roots, and nothing else."""
        mask, n = (1 << int(self.head[X_BITS])) - 1, len(self.edges)
        slots = np.flatnonzero(self.edges)
        entries = [int(entry) & mask for entry in self.edges[slots]]
        if sorted(entries) != [node for node in self.used if self.nodes[node][C_TOKEN] != OWN_ROOT]:
            self.fail("entries of the edge table and nodes differ", len(entries))
        taken = self.edges != 0
        for slot, node in zip(slots.tolist(), entries, strict=True):
            fields = self.nodes[node]
            if fields[C_TOKEN] == SHARED_ROOT:
                h = int(root_hash(fields[C_NEWER], fields[C_OLDER]))
            else:
                h = int(edge_hash(fields[C_PARENT], fields[C_TOKEN]))
            if int(self.edges[slot]) != node | ((h << int(self.head[X_BITS])) & 0x7FFFFFFF):
                self.fail("an entry's piece of the hash is wrong", slot)
            start = int(home(self.head, self.m, node))
            passed = taken[start : slot + 1] if start <= slot else np.append(taken[start:], taken[: slot + 1])
            if not passed.all() or start >= n:
                self.fail("an entry cannot be found", slot)

    def check_places(self) -> None:
        """Rows stand where their places say, as far as the versions there are still the nodes'."""
        roots = {}
        for row, place in enumerate(self.places.tolist()):
            state, lo, hi = (int(self.rows[row, i]) for i in (T_STATE, T_TENANT_LO, T_TENANT_HI))
            root = self.alive(place[P_ROOT], place[P_ROOT_VERSION])
            if root:
                roots[root] = row
                if self.nodes[root][C_TOKEN] != OWN_ROOT or root in self.wasted:
                    self.fail("a row's own root is none, or abandoned", row)
            own = self.alive(place[P_OWN], place[P_OWN_VERSION])
            if own and (self.root_of[own] != root or len(self.paths[own]) != place[P_OWN_LENGTH]):
                self.fail("a row's own place is not in its own tree, or of another length", row)
            shared = self.alive(place[P_SHARED], place[P_SHARED_VERSION])
            if shared and state == LIVE:
                tenant = self.nodes[self.root_of[shared]]
                if (tenant[C_TOKEN], tenant[C_NEWER], tenant[C_OLDER]) != (SHARED_ROOT, lo, hi):
                    self.fail("a row's shared place is not in its tenant's tree", row)
                if len(self.paths[shared]) != place[P_SHARED_LENGTH]:
                    self.fail("a row's shared place is of another length", row)
            if state == LIVE and place[P_COUNTED] != self.rows[row, T_LENGTH]:
                self.fail("a running row's counted and kept tokens differ", row)
        for node in self.live:
            if self.nodes[node][C_TOKEN] == OWN_ROOT and node not in roots:
                self.fail("an own root belongs to no row", node)

    def alive(self, node: int, version: int) -> int:
        """`node` if it is still the one that was written down, else 0."""
        return node if node and self.versions[node - 1] == version else 0


def check_trie(arena: Arena) -> None:
    """Raise `SnapshotError` at the first broken invariant of a trie: nodes, links, lists, edges, places."""
    TrieCheck(arena).run()
