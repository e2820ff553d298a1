"""A plan as the device map that Hugging Face Accelerate dispatches a model by, for inference."""

from collections import defaultdict

from trimtab.core import BadInputError
from trimtab.partition.devices import Devices
from trimtab.partition.graph import Graph
from trimtab.partition.plan import Plan


def device_map(plan: Plan, graph: Graph, devices: Devices | None = None) -> dict[str, int | str]:
    """Modules and the device of each, no finer than needed: {"transformer.h.0": 0, …}.

    Devices are numbered as in the plan; those of kind "cpu" are called so. Of several replicas it is the
    first. Refuses what Accelerate cannot do: a module with weights on two devices, and an operation outside
    of such modules whose inputs are on two devices.
    """
    if plan.tensor > 1:
        raise BadInputError(
            "a device map holds whole modules, but this plan splits every product over "
            f"{plan.tensor} devices; plan with --max-tensor 1"
        )
    stage_of = plan.stage_of(len(graph))
    device_of = [plan.stages[stage].ranks[0][0] for stage in stage_of]
    named = {device: _name(device, devices) for device in device_of}
    homes = _homes(graph, device_of, named)
    found: dict[str, int] = {}
    _cover("", homes, found)
    _check_inputs(graph, device_of, found, named)
    return {module: named[device] for module, device in found.items()}


def _name(device: int, devices: Devices | None) -> int | str:
    return "cpu" if devices is not None and devices[device].kind == "cpu" else device


def _homes(graph: Graph, device_of: list[int], named: dict[int, int | str]) -> dict[str, int]:
    """The device of every module that holds weights or buffers itself."""
    found: dict[str, set[int]] = defaultdict(set)
    for node, block in enumerate(graph.blocks):
        if graph.parameters[node] or graph.buffers[node]:
            found[block].add(device_of[node])
    for block, where in found.items():
        if len(where) > 1:
            listed = " and ".join(str(named[device]) for device in sorted(where))
            raise BadInputError(
                f'the module "{block}" is split over devices {listed}; '
                "Accelerate can only place whole modules: cut the model between modules"
            )
    return {block: next(iter(where)) for block, where in found.items()}


def _cover(path: str, homes: dict[str, int], found: dict[str, int]) -> None:
    """Place a module as one where everything in it is on one device, else its children."""
    below = {block: device for block, device in homes.items() if _within(block, path)}
    where = set(below.values())
    if len(where) <= 1:
        found.update(dict.fromkeys([path] if where else [], next(iter(where), 0)))
        return
    if path in homes:
        raise BadInputError(
            f'the module "{path}" holds weights itself, and modules in it are on other devices; '
            "Accelerate needs them in one place"
        )
    depth = path.count(".") + 1 if path else 0
    for child in dict.fromkeys(".".join(block.split(".")[: depth + 1]) for block in below):
        _cover(child, homes, found)


def _within(block: str, path: str) -> bool:
    return not path or block == path or block.startswith(path + ".")


def _check_inputs(
    graph: Graph, device_of: list[int], found: dict[str, int], named: dict[int, int | str]
) -> None:
    """Accelerate moves the inputs of modules it places; between those, all inputs must be in one place."""
    sources, targets, _ = graph.edges
    needs: dict[int, set[int]] = defaultdict(set)
    for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
        if graph.kinds[source] != "input":
            needs[target].add(device_of[source])
    for node, where in needs.items():
        placed = any(_within(graph.blocks[node], module) for module in found)
        if len(where) > 1 and not placed and graph.kinds[node] != "output":
            listed = " and ".join(str(named[device]) for device in sorted(where))
            raise BadInputError(
                f'"{graph.names[node]}" in "{graph.blocks[node] or graph.name}" takes tensors from devices '
                f"{listed}; Accelerate cannot bring them together there: cut the model elsewhere"
            )
