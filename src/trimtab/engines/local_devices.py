"""Who gets which accelerator of a node: whole ones to one worker, or shares of one to several."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from trimtab.core import BadInputError, Launch, Node, NotFoundError
from trimtab.engines.local_run import Given

_ROUNDING = 1e-9


def give(launch: Launch, nodes: Mapping[str, Node], taken: Iterable[Given]) -> tuple[Given, ...]:
    """What each worker of the launch gets, by rank, beside what others have `taken`."""
    loads = {name: [0.0] * node.gpus for name, node in nodes.items()}
    for given in taken:
        _add(loads.get(given.node, []), given)
    all_given = []
    for name, count in launch.parts:
        for _ in range(count):
            given = Given(name, *_choose(launch, nodes[name], loads[name]))
            _add(loads[name], given)
            all_given.append(given)
    return tuple(all_given)


def environments(launch: Launch, given: Sequence[Given], port: int) -> Iterator[dict[str, str]]:
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


def _add(loads: list[float], given: Given) -> None:
    for device in given.devices:
        if device < len(loads):
            loads[device] += given.share
