"""One node per real operation: views, constants and bookkeeping go with what they belong to."""

from collections.abc import Mapping

from torch.fx import Node

from trimtab.partition.capture.in_place import Overwritten
from trimtab.partition.capture.interpret import Measured

_OWN_KINDS = ("conv", "matmul", "attention", "rnn", "embedding")


class Groups:
    """Which nodes of a trace go together. A group is known by its leader, and is in the leaders' order.

    What costs nothing (a view, an item of a tuple) goes with the last of those it reads, and so runs no
    earlier than they. What reads no input of the model (a mask, positions, a weight's other form) goes with
    its only reader, or stands alone where several read it. Both keep groups after the groups that they need.
    """

    def __init__(self, nodes: list[Node], inputs: set[Node], measured: Measured, also: Overwritten) -> None:
        self.place = {node: number for number, node in enumerate(nodes)}
        self._measured = measured
        self._also = also
        self._inputs = inputs
        self._skipped = {n for n in nodes if n.op in ("placeholder", "get_attr") and n not in inputs}
        self.leader: dict[Node, Node] = {}
        self._constants = self._constant_nodes(nodes)
        for node in nodes:
            if node not in self._skipped and node not in self._constants:
                self.leader[node] = self._leader_of(node)
        self._readers = self._readers_of(nodes)
        for node in reversed(nodes):
            if node in self._constants:
                self._place_constant(node)
        self._place_unread(nodes)

    def reads(self, node: Node) -> list[Node]:
        """What a node needs of others, weights left out, and what must have been overwritten before."""
        wanted = (*node.all_input_nodes, *self._also.get(node, ()))
        return [source for source in dict.fromkeys(wanted) if source not in self._skipped]

    def members(self) -> dict[Node, list[Node]]:
        """The nodes of each group, groups and nodes in running order."""
        result: dict[Node, list[Node]] = {}
        for leader in sorted(set(self.leader.values()), key=self.place.__getitem__):
            result[leader] = []
        for node in sorted(self.leader, key=self.place.__getitem__):
            result[self.leader[node]].append(node)
        return result

    def _constant_nodes(self, nodes: list[Node]) -> set[Node]:
        """Those that compute cheap things from nothing, or from other such things."""
        constant: set[Node] = set()
        for node in nodes:
            if node in self._skipped or node in self._inputs or node.op == "output":
                continue
            work = self._measured.works.get(node)
            cheap = work is None or (work.flop == 0 and work.kind not in _OWN_KINDS)
            if cheap and all(source in constant for source in self.reads(node)):
                constant.add(node)
        return constant

    def _readers_of(self, nodes: list[Node]) -> dict[Node, list[Node]]:
        readers: dict[Node, list[Node]] = {}
        for node in nodes:
            for source in self.reads(node):
                readers.setdefault(source, []).append(node)
        return readers

    def _leader_of(self, node: Node) -> Node:
        work = self._measured.works.get(node)
        leaders = [self.leader[source] for source in self.reads(node) if source not in self._constants]
        if node in self._inputs or node.op == "output" or not leaders or (work is not None and work.calls):
            return node
        return max(leaders, key=self.place.__getitem__)

    def _place_constant(self, node: Node) -> None:
        readers = {self.leader[user] for user in self._readers.get(node, ()) if user in self.leader}
        if readers:
            only = next(iter(readers))
            self.leader[node] = node if len(readers) > 1 or only.op == "output" else only

    def _place_unread(self, nodes: list[Node]) -> None:
        """Bookkeeping that nobody reads (a counter of batches) goes with its module, else with the last."""
        of_module: dict[str, Node] = {}
        for node in nodes:
            if node in self.leader and node not in self._inputs and node.op != "output":
                of_module.setdefault(block_of(node), self.leader[node])
        before = None
        for node in nodes:
            if node in self.leader:
                before = self.leader[node]
            elif node in self._constants:
                read = [self.leader[source] for source in self.reads(node)]
                latest = max(read, key=self.place.__getitem__, default=None)
                self.leader[node] = latest or of_module.get(block_of(node)) or before or node


def block_of(node: Node) -> str:
    """The path of the innermost module that a traced node runs in; empty for the model itself."""
    stack: Mapping[str, tuple[str, object]] = node.meta.get("nn_module_stack") or {}
    path = [*stack.values()][-1][0] if stack else ""
    return path.split("@")[0]
