"""The nodes of this machine (one, or several simulated ones), and the accelerators of each worker."""

import itertools
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated
from urllib.parse import parse_qsl

from pydantic import Field

from trimtab.core import (
    BadInputError,
    Bytes,
    Launch,
    Node,
    NotFoundError,
    StrictModel,
    quantity,
    validate,
)
from trimtab.engines.local.supervisor import WorkerDevices
from trimtab.kernel import cpu_limit, memory_limit

_MOST_NODES = 10_000


def machine() -> tuple[float, float]:
    """CPUs and bytes of memory for runs."""
    cpus = float(len(os.sched_getaffinity(0)))
    memory = float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(cpus, cpu_limit() or cpus), min(memory, memory_limit() or memory)


class _AddressOptions(StrictModel):
    """The options of an address such as `?nodes=3&gpus=4`."""

    nodes: Annotated[int, Field(ge=1, le=_MOST_NODES)] = 1
    cpus: Annotated[float, quantity(float, "a number above 0"), Field(gt=0)] | None = None
    memory: Annotated[Bytes, Field(gt=0)] | None = None
    gpus: Annotated[int, Field(ge=0, le=_MOST_NODES)] | None = None
    accelerator: str = ""


def nodes_at(address: str) -> tuple[Node, ...]:
    """Nodes of an address: this machine if it is empty, else simulated ones as in `?nodes=3&gpus=4`."""
    cpus, memory = machine()
    if not address:
        from trimtab.catalog import find_accelerator
        from trimtab.observe import Gpus

        gpus = Gpus()
        names = gpus.names()
        gpus.close()
        accelerator = find_accelerator(names[0]) if names else None
        kind = accelerator.name if accelerator else "".join(names[:1])
        return (Node("local", cpus, memory, kind, len(names)),)
    if not address.startswith("?"):
        raise BadInputError(
            f'"local://{address}" is not the address of an engine; write local://, or as in local://?nodes=3&gpus=4'
        )
    options = validate(
        _AddressOptions, dict(parse_qsl(address[1:], keep_blank_values=True)), f"local://{address}"
    )
    count = (1 if options.accelerator else 0) if options.gpus is None else options.gpus
    kind = options.accelerator or ("gpu" if count else "")
    return tuple(
        Node(f"local-{number}", options.cpus or cpus, options.memory or memory, kind, count)
        for number in range(1, options.nodes + 1)
    )


_ROUNDING = 1e-9


def assign_devices(
    launch: Launch, nodes: Mapping[str, Node], used: Iterable[WorkerDevices]
) -> tuple[WorkerDevices, ...]:
    """Accelerators for each worker of a launch, by rank, where other runs use those in `used`."""
    loads = {name: [0.0] * node.gpus for name, node in nodes.items()}
    for worker in used:
        _add(loads.get(worker.node, []), worker)
    workers = []
    for name, count in launch.parts:
        for _ in range(count):
            worker = WorkerDevices(name, *_choose(launch, nodes[name], loads[name]))
            _add(loads[name], worker)
            workers.append(worker)
    return tuple(workers)


def environments(launch: Launch, workers: Sequence[WorkerDevices], port: int) -> Iterator[dict[str, str]]:
    """The variables of each worker, by rank.

    All workers of a run on a node see its whole accelerators there, in order of local ranks, because programs
    choose theirs by local rank; a worker with a share of one sees only that one.
    """
    local_ranks = defaultdict[str, Iterator[int]](itertools.count)
    for rank, worker in enumerate(workers):
        variables = {
            **launch.environment,
            "RANK": str(rank),
            "WORLD_SIZE": str(len(workers)),
            "LOCAL_RANK": str(next(local_ranks[worker.node])),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
        if worker.devices:
            same_node = [other for other in workers if other.node == worker.node]
            visible = [worker] if worker.share < 1 else same_node
            devices = [str(device) for other in visible for device in other.devices]
            # NVIDIA's management library numbers devices by bus, CUDA by speed unless this is set.
            variables |= {"CUDA_VISIBLE_DEVICES": ",".join(devices), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        yield variables


def _choose(launch: Launch, node: Node, loads: Sequence[float]) -> tuple[tuple[int, ...], float]:
    gpus = launch.gpus
    if gpus == 0:
        return (), 0.0
    if gpus > 1 and gpus != int(gpus):
        raise BadInputError(
            f"{gpus:g} accelerators per worker are not possible; "
            "ask for a whole number, or for a share of one"
        )
    share, count = (gpus, 1) if gpus < 1 else (1.0, int(gpus))
    fit = [device for device, load in enumerate(loads) if load + share <= 1 + _ROUNDING]
    if count > node.gpus:
        raise BadInputError(
            f"the node {node.name} has {node.gpus} accelerators; a worker cannot have {count}"
        )
    if len(fit) < count:
        shown = ", ".join(f"{1 - load:.3g}" for load in loads)
        raise NotFoundError(
            f"the node {node.name} has too few free accelerators for workers with {gpus:g} each; "
            f"the free shares of its accelerators are {shown}"
        )
    fullest_first = sorted(fit, key=lambda device: (-loads[device], device))
    return tuple(sorted(fullest_first[:count])), share


def _add(loads: list[float], worker: WorkerDevices) -> None:
    for device in worker.devices:
        if device < len(loads):
            loads[device] += worker.share
