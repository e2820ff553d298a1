"""An engine's nodes as groups of equal ones, which is how policies see them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from trimtab.core import Node
from trimtab.schedule.cluster import Group
from trimtab.schedule.kinds import kind_of


@dataclass(frozen=True)
class Fleet:
    """Groups, and the names of each one's nodes."""

    groups: tuple[Group, ...] = ()
    nodes: tuple[tuple[str, ...], ...] = ()

    @staticmethod
    def of(nodes: Sequence[Node], prices: Mapping[str, float] | None = None) -> "Fleet":
        """Nodes with the same accelerators, CPUs, memory and zone are one group.

        `prices` are dollars per second of one accelerator of a kind, or of a node without any under "".
        """
        alike: dict[tuple[str, int, float, float, str], list[str]] = defaultdict(list)
        for node in nodes:
            kind = kind_of(node.accelerator) if node.gpus else ""
            alike[kind, node.gpus, node.cpus, node.memory, node.zone].append(node.name)
        groups, names, taken = [], [], set[str]()
        for (kind, gpus, cpus, memory, zone), members in sorted(alike.items()):
            price = (prices or {}).get(kind, 0.0) * max(1, gpus)
            name = _free_name(kind, gpus, zone, taken)
            groups.append(Group(name, kind, len(members), gpus, cpus, memory, price, zone=zone))
            names.append(tuple(sorted(members)))
        return Fleet(tuple(groups), tuple(names))

    @cached_property
    def places(self) -> Mapping[str, tuple[int, int]]:
        """Of each node: its group, and its number there."""
        return {
            name: (group, number)
            for group, names in enumerate(self.nodes)
            for number, name in enumerate(names)
        }

    def named(self, name: str) -> Group | None:
        """The group of that name; None where it is gone."""
        return next((group for group in self.groups if group.name == name), None)


def _free_name(kind: str, gpus: int, zone: str, taken: set[str]) -> str:
    name = f"{gpus}x{kind}" if gpus else "cpu"
    name += f"@{zone}" if zone else ""
    chosen, number = name, 1
    while chosen in taken:
        number += 1
        chosen = f"{name}.{number}"
    taken.add(chosen)
    return chosen
