"""The nodes of this machine (one, or several pretended ones), and which worker gets which accelerator."""

import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from urllib.parse import parse_qsl

from trimtab.core import BadInputError, Launch, Node, NotFoundError, parse_bytes, refuse_unknown
from trimtab.engines.local.keeper import WorkerDevices
from trimtab.kernel import cpu_limit, memory_limit

_MOST_NODES = 10_000


def machine() -> tuple[float, float]:
    """CPUs and bytes of memory there are for runs."""
    cpus = float(len(os.sched_getaffinity(0)))
    memory = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(cpus, cpu_limit() or cpus), min(memory, memory_limit() or memory)


def nodes_at(address: str) -> tuple[Node, ...]:
    """Nodes of an address: this machine if it is empty, else pretended ones as in `?nodes=3&gpus=4`."""
    if not address:
        return (_this_machine(),)
    if not address.startswith("?"):
        raise BadInputError(
            f'after local:// comes nothing, or something like ?nodes=3&gpus=4, not "{address}"'
        )
    options = dict(parse_qsl(address[1:], keep_blank_values=True))
    refuse_unknown(f"local://{address}", options, tuple(_KINDS))
    given = {name: _value(name, text) for name, text in options.items()}
    return _pretended(given, options.get("accelerator", ""))


def _this_machine() -> Node:
    from trimtab.catalog import find_accelerator
    from trimtab.observe import Gpus

    gpus = Gpus()
    names = gpus.names()
    gpus.close()
    cpus, memory = machine()
    known = find_accelerator(names[0]) if names else None
    kind = known.name if known else "".join(names[:1])
    return Node("local", cpus, memory, kind, len(names))


def _pretended(given: Mapping[str, float], accelerator: str) -> tuple[Node, ...]:
    cpus, memory = machine()
    gpus = int(given.get("gpus", 1 if accelerator else 0))
    if gpus and not accelerator:
        accelerator = "gpu"
    return tuple(
        Node(f"local-{number}", given.get("cpus", cpus), given.get("memory", memory), accelerator, gpus)
        for number in range(1, int(given.get("nodes", 1)) + 1)
    )


def _whole(least: int) -> Callable[[str], float]:
    def parse(text: str) -> float:
        if not text.isdecimal() or not least <= int(text) <= _MOST_NODES:
            raise ValueError(f"a whole number from {least} to {_MOST_NODES}")
        return int(text)

    return parse


def _cpus(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ValueError("a number above 0")
    return value


def _memory(text: str) -> float:
    value = parse_bytes(text)
    if value <= 0:
        raise ValueError("a size such as 4GiB")
    return value


_KINDS: Mapping[str, Callable[[str], float]] = {
    "nodes": _whole(1),
    "cpus": _cpus,
    "memory": _memory,
    "gpus": _whole(0),
    "accelerator": lambda text: 0.0,
}


def _value(name: str, text: str) -> float:
    try:
        return _KINDS[name](text)
    except ValueError as error:
        raise BadInputError(f'local://?{name}= takes {error}, not "{text}"') from None


_ROUNDING = 1e-9


def give(
    launch: Launch, nodes: Mapping[str, Node], taken: Iterable[WorkerDevices]
) -> tuple[WorkerDevices, ...]:
    """Accelerators of each worker of a launch, by rank, given what other runs have `taken`."""
    loads = {name: [0.0] * node.gpus for name, node in nodes.items()}
    for given in taken:
        _add(loads.get(given.node, []), given)
    all_given = []
    for name, count in launch.parts:
        for _ in range(count):
            given = WorkerDevices(name, *_choose(launch, nodes[name], loads[name]))
            _add(loads[name], given)
            all_given.append(given)
    return tuple(all_given)


def environments(launch: Launch, given: Sequence[WorkerDevices], port: int) -> Iterator[dict[str, str]]:
    """The variables of each worker, by rank.

    Whole accelerators of a run on a node are seen by all its workers there, in order of their local ranks,
    because programs choose theirs by local rank; of a shared one, only that one is seen.
    """
    workers: dict[str, int] = {}
    for rank, mine in enumerate(given):
        local_rank = workers.get(mine.node, 0)
        workers[mine.node] = local_rank + 1
        variables = {
            **launch.environment,
            "RANK": str(rank),
            "WORLD_SIZE": str(len(given)),
            "LOCAL_RANK": str(local_rank),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        if mine.devices:
            beside = [mine] if mine.share < 1 else [other for other in given if other.node == mine.node]
            seen = [str(device) for other in beside for device in other.devices]
            # NVIDIA's management library counts by bus, its compute library by speed unless told so.
            variables |= {"CUDA_VISIBLE_DEVICES": ",".join(seen), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        yield variables


def _choose(launch: Launch, node: Node, loads: Sequence[float]) -> tuple[tuple[int, ...], float]:
    gpus = launch.gpus
    if gpus == 0:
        return (), 0.0
    if gpus > 1 and gpus != int(gpus):
        raise BadInputError(
            f"{gpus:g} accelerators per worker cannot be given; say whole ones, or a share of one"
        )
    share, count = (gpus, 1) if gpus < 1 else (1.0, int(gpus))
    fit = [device for device, load in enumerate(loads) if load + share <= 1 + _ROUNDING]
    if count > node.gpus:
        raise BadInputError(f"the node {node.name} has {node.gpus} accelerators; {count} cannot be given")
    if len(fit) < count:
        shown = ", ".join(f"{1 - load:.3g}" for load in loads)
        raise NotFoundError(
            f"the node {node.name} has no room now for {gpus:g} accelerators per worker; free are {shown}"
        )
    fullest_first = sorted(fit, key=lambda device: (-loads[device], device))
    return tuple(sorted(fullest_first[:count])), share


def _add(loads: list[float], given: WorkerDevices) -> None:
    for device in given.devices:
        if device < len(loads):
            loads[device] += given.share
