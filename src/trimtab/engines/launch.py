"""Checks of a launch before an engine acts on it: nodes, command, amounts, and what each node can hold."""

import math
import signal
from collections.abc import Collection, Mapping

from trimtab.core import BadInputError, Launch, Node, NotFoundError, did_you_mean, format_bytes


def check_launch(launch: Launch, nodes: Collection[str]) -> None:
    """Raise if the launch has no key or command, an impossible amount, or an unknown node."""
    name = launch.workload.name
    if not launch.key:
        raise BadInputError(f'the launch of "{name}" has no key; give it one, so that it cannot start twice')
    if not launch.workload.command or not launch.workload.command[0]:
        raise BadInputError(f'the workload "{name}" has no command; name the program to start')
    for unit, value in (("CPUs", launch.cpus), ("bytes of memory", launch.memory), ("GPUs", launch.gpus)):
        if not 0 <= value < math.inf:
            raise BadInputError(f'"{name}" cannot have {value:g} {unit} per worker; give a number from 0')
    if not launch.parts or any(count < 1 for _, count in launch.parts):
        raise BadInputError(
            f'the launch of "{name}" has no node, or a node without a worker; name at least one of each'
        )
    for node, _ in launch.parts:
        if node not in nodes:
            shown = ", ".join(sorted(nodes)[:5]) + (", …" if len(nodes) > 5 else "")
            hint = did_you_mean(node, nodes)
            raise NotFoundError(f'there is no node "{node}"{hint}; the nodes are {shown or "none"}')


def signal_number(name: str) -> int:
    """The number of a signal such as "USR1" or "SIGUSR1"."""
    full = name if name.startswith("SIG") else f"SIG{name}"
    try:
        return signal.Signals[full].value
    except KeyError:
        raise BadInputError(f'"{name}" is not a signal; use USR1, USR2, TERM, INT or HUP') from None


def check_capacity(launch: Launch, nodes: Mapping[str, Node]) -> None:
    """Raise if a node could not hold its workers even if it were empty."""
    for name, count in launch.parts:
        node = nodes[name]
        for unit, need, most in (
            ("CPUs", launch.cpus, node.cpus),
            ("accelerators", launch.gpus, node.gpus),
            ("bytes of memory", launch.memory, node.memory),
        ):
            if need * count > most:
                needed, has = amount(need, unit), amount(most, unit)
                raise BadInputError(
                    f"{count} workers with {needed} each do not fit on the node {name}; it has {has}"
                )


def amount(value: float, unit: str) -> str:
    """A number with its unit, such as "2 CPUs"; bytes as in "512 MiB of memory"."""
    return f"{format_bytes(value)} of memory" if unit == "bytes of memory" else f"{value:g} {unit}"
