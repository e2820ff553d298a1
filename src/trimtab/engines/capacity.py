"""Whether a launch could ever fit on the nodes it names."""

from collections.abc import Mapping

from trimtab.core import BadInputError, Launch, Node, format_bytes


def check_capacity(launch: Launch, nodes: Mapping[str, Node]) -> None:
    """Refuse with a sentence what a node could not hold if it held nothing else."""
    for name, count in launch.parts:
        node = nodes[name]
        for what, each, most in (
            ("CPUs", launch.cpus, node.cpus),
            ("accelerators", launch.gpus, node.gpus),
            ("bytes of memory", launch.memory, node.memory),
        ):
            if each * count > most:
                asked, has = amount(each, what), amount(most, what)
                raise BadInputError(
                    f"{count} workers with {asked} each do not fit on the node {name}; it has {has}"
                )


def amount(value: float, what: str) -> str:
    """So many CPUs or accelerators, or bytes in a unit people read."""
    return f"{format_bytes(value)} of memory" if what == "bytes of memory" else f"{value:g} {what}"
