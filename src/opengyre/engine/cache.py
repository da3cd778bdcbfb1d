"""Which KV blocks are free, held or remembered: a prefix tree of full blocks.

Invariant: every block is free, private to one sequence, or in the tree, exactly once. A tree node's
`users` counts the sequences that hold it; who holds a node holds its ancestors. Nodes without users
are idle, least recently used first and children before parents, so the first idle node is a leaf.
All nodes were computed by one weight version: clear() comes with each new one.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Key = tuple[int, ...]


@dataclass(slots=True, eq=False)
class Node:
    """A full block whose tokens follow those of its ancestors."""

    parent: "Node | None"
    key: Key
    block: int
    users: int = 0
    children: "dict[Key, Node]" = field(default_factory=dict)


class BlockCache:
    """Hands out blocks and remembers full ones by their token prefix."""

    def __init__(self, blocks: int, block_tokens: int) -> None:
        self.blocks = blocks
        self.block_tokens = block_tokens
        self.evictions = 0
        self.clear()

    def clear(self) -> None:
        """Forget everything; no sequence may hold a block."""
        self.root = Node(None, (), -1)
        self._free = list(range(self.blocks - 1, -1, -1))
        self._idle: OrderedDict[Node, None] = OrderedDict()

    @property
    def available(self) -> int:
        """Blocks that allocate() can give."""
        return len(self._free) + len(self._idle)

    def key(self, tokens: Sequence[int], index: int) -> Key:
        """Key of block `index` of a token list; shorter than a block at the list's end."""
        return tuple(tokens[index * self.block_tokens : (index + 1) * self.block_tokens])

    def match(self, tokens: Sequence[int]) -> list[Node]:
        """The longest remembered prefix that leaves at least the last token to compute."""
        node, found = self.root, list[Node]()
        for index in range((len(tokens) - 1) // self.block_tokens):
            child = node.children.get(self.key(tokens, index))
            if child is None:
                break
            found.append(child)
            node = child
        return found

    def hold(self, nodes: Iterable[Node]) -> None:
        """Add a user to each node."""
        for node in nodes:
            if node.users == 0:
                del self._idle[node]
            node.users += 1

    def allocate(self, count: int) -> list[int] | None:
        """Private blocks, evicting idle nodes where needed; None (and no change) if too few."""
        if count > self.available:
            return None
        while len(self._free) < count:
            node, _ = self._idle.popitem(last=False)
            assert node.parent is not None
            assert not node.children
            del node.parent.children[node.key]
            self._free.append(node.block)
            self.evictions += 1
        return [self._free.pop() for _ in range(count)]

    def remember(self, parent: Node, key: Key, block: int) -> Node:
        """Turn a full private block into a held node; an equal one that is there is held instead."""
        node = parent.children.get(key)
        if node is None:
            node = parent.children[key] = Node(parent, key, block, users=1)
        else:
            self._free.append(block)
            self.hold([node])
        return node

    def release(self, nodes: Sequence[Node], private: Iterable[int]) -> None:
        """Give back what a sequence holds: its path of nodes, root side first, and its own blocks."""
        for node in reversed(nodes):
            node.users -= 1
            if node.users == 0:
                self._idle[node] = None
        self._free.extend(private)

    def check(self, held: Sequence[tuple[Sequence[Node], Sequence[int]]]) -> None:
        """Assert the invariant, given what every sequence holds (nodes, private blocks)."""
        nodes = list(self._walk())
        private = [block for _, blocks in held for block in blocks]
        everywhere = [*self._free, *private, *(node.block for node in nodes)]
        assert sorted(everywhere) == list(range(self.blocks)), "a block leaked or is shared"
        users = {id(node): 0 for node in nodes}
        for path, _ in held:
            for parent, node in zip([self.root, *path], path, strict=False):
                assert node.parent is parent
                users[id(node)] += 1
        assert all(users[id(node)] == node.users for node in nodes), "wrong count of users"
        assert set(self._idle) == {node for node in nodes if node.users == 0}
        age = {node: i for i, node in enumerate(self._idle)}
        assert all(age[n] < age[n.parent] for n in self._idle if n.parent in age), "parent first"

    def _walk(self) -> Iterable[Node]:
        stack = [self.root]
        while stack:
            node = stack.pop()
            for key, child in node.children.items():
                assert child.parent is node
                assert child.key == key
                assert len(key) == self.block_tokens
            stack.extend(node.children.values())
            if node is not self.root:
                yield node
