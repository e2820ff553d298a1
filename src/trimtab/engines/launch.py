"""Checks of a launch before an engine acts on it: nodes, command, amounts, and what each node can hold."""

import math
import signal
from collections.abc import Collection, Mapping

from trimtab.core import BadInputError, Launch, Node, NotFoundError, did_you_mean, format_bytes


def check_launch(launch: Launch, nodes: Collection[str]) -> None:
    """Whether it makes sense on these nodes; raises with a sentence where it does not."""
    name = launch.workload.name
    if not launch.key:
        raise BadInputError(f'the launch of "{name}" has no key; without, it could start twice')
    if not launch.workload.command or not launch.workload.command[0]:
        raise BadInputError(f'the workload "{name}" has no command; there is nothing to start')
    for what, value in (("CPUs", launch.cpus), ("bytes of memory", launch.memory), ("GPUs", launch.gpus)):
        if not 0 <= value < math.inf:
            raise BadInputError(f'{value:g} {what} for each worker of "{name}" cannot be given')
    if not launch.parts or any(count < 1 for _, count in launch.parts):
        raise BadInputError(f'the launch of "{name}" has a node without a worker, or none at all')
    for node, _ in launch.parts:
        if node not in nodes:
            shown = ", ".join(sorted(nodes)[:5]) + (", …" if len(nodes) > 5 else "")
            hint = did_you_mean(node, nodes)
            raise NotFoundError(f'there is no node "{node}" here{hint}; there are {shown or "none"}')


def signal_number(name: str) -> int:
    """The number of a signal such as "USR1" or "SIGUSR1"."""
    full = name if name.startswith("SIG") else f"SIG{name}"
    try:
        return signal.Signals[full].value
    except KeyError:
        raise BadInputError(f'"{name}" is not a signal; say USR1, USR2, TERM, INT or HUP') from None


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
                wanted, has = amount(each, what), amount(most, what)
                raise BadInputError(
                    f"{count} workers with {wanted} each do not fit on the node {name}; it has {has}"
                )


def amount(value: float, what: str) -> str:
    """So many CPUs or accelerators, or bytes in a unit people read."""
    return f"{format_bytes(value)} of memory" if what == "bytes of memory" else f"{value:g} {what}"
