"""A plan in the form of other tools: Accelerate's device map, and a script for torchrun."""

from collections import defaultdict
from pathlib import Path

from trimtab.core import BadInputError
from trimtab.partition.devices import Devices
from trimtab.partition.graph import Graph
from trimtab.partition.plan import NodePlacement, Plan, PlanForecast, Recipe
from trimtab.partition.plan_file import plan_json


def device_map(plan: Plan, graph: Graph, devices: Devices | None = None) -> dict[str, int | str]:
    """The device of each module, of the largest modules possible: {"transformer.h.0": 0, …}.

    Devices are numbered as in the plan; those of kind "cpu" are called so. Of several replicas it is the
    first. Accelerate moves the inputs of a module to its device, but not those of an operation between
    modules. So a block that the plan cuts in two, and that combines both parts itself, moves to the device
    that holds more of it. Refuses a module with own weights on two devices, and a model that combines
    tensors of several devices outside of such blocks.
    """
    if plan.tensor > 1:
        raise BadInputError(
            "a device map holds whole modules, but this plan splits every product over "
            f"{plan.tensor} devices; plan with --max-tensor 1"
        )
    stage_of = plan.stage_of(len(graph))
    device_of = [plan.stages[stage].ranks[0][0] for stage in stage_of]
    _check_leaves(graph, device_of)
    while (mixed := _mixed_inputs(graph, device_of)) is not None:
        _move_block(graph, device_of, *mixed)
    return _named(graph, device_of, devices)


def placement_map(placed: NodePlacement) -> dict[str, int | str]:
    """The device of each module of a placement; no block is moved, so that branches still overlap."""
    graph, device_of = placed.graph, list(placed.device_of)
    _check_leaves(graph, device_of)
    mixed = _mixed_inputs(graph, device_of)
    if mixed is not None:
        raise BadInputError(
            f"{_takes(graph, *mixed)}; join the branches in a module with weights, or leave out"
            " --objective latency"
        )
    return _named(graph, device_of, placed.devices)


def _named(graph: Graph, device_of: list[int], devices: Devices | None) -> dict[str, int | str]:
    return {
        module: "cpu" if devices is not None and devices[device].kind == "cpu" else device
        for module, device in _covered(graph, device_of).items()
    }


def _check_leaves(graph: Graph, device_of: list[int]) -> None:
    """Refuse a module whose own weights are on several devices."""
    homes: dict[str, set[int]] = defaultdict(set)
    for node, block in enumerate(graph.blocks):
        if _holds(graph, node):
            homes[block].add(device_of[node])
    for block, where in homes.items():
        if len(where) > 1:
            raise BadInputError(
                f'the module "{block}" is split over devices {_listed(where)}; '
                "Accelerate can only place whole modules: cut the model between modules"
            )


def _covered(graph: Graph, device_of: list[int]) -> dict[str, int]:
    """The largest modules that are on one device each, and that hold all weights together."""
    homes = {block: device_of[n] for n, block in enumerate(graph.blocks) if _holds(graph, n)}
    covered: dict[str, int] = {}

    def cover(path: str) -> None:
        below = {block: device for block, device in homes.items() if _within(block, path)}
        if len(set(below.values())) == 1:
            covered[path] = next(iter(below.values()))
            return
        if path in homes:
            raise BadInputError(
                f'the module "{path}" holds weights itself, and modules in it are on other devices; '
                "Accelerate needs them in one place"
            )
        depth = path.count(".") + 1 if path else 0
        for child in dict.fromkeys(".".join(block.split(".")[: depth + 1]) for block in below):
            cover(child)

    cover("")
    return covered


def _mixed_inputs(graph: Graph, device_of: list[int]) -> tuple[int, set[int]] | None:
    """The first operation outside of placed modules with inputs on several devices, and those devices."""
    covered = _covered(graph, device_of)
    sources, targets, _ = graph.edges
    needs: dict[int, set[int]] = defaultdict(set)
    for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
        if graph.kinds[source] != "input" and graph.kinds[target] != "output":
            needs[target].add(device_of[source])
    for node in sorted(needs):
        if len(needs[node]) > 1 and not any(_within(graph.blocks[node], module) for module in covered):
            return node, needs[node]
    return None


def _move_block(graph: Graph, device_of: list[int], node: int, needed: set[int]) -> None:
    """Move the block of an operation to the device that holds most of the block's weights."""
    block = graph.blocks[node]
    inside = [n for n, path in enumerate(graph.blocks) if _within(path, block)]
    weights: dict[int, float] = defaultdict(float)
    for n in inside:
        if _holds(graph, n):
            weights[device_of[n]] += float(graph.parameters[n])
    if len(weights) < 2 or sum(weights.values()) > graph.parameters.sum() / 2:
        raise BadInputError(
            f"{_takes(graph, node, needed)}; --torchrun hands such tensors on from stage to stage"
        )
    home = max(weights, key=lambda device: weights[device])
    for n in inside:
        device_of[n] = home


def _takes(graph: Graph, node: int, needed: set[int]) -> str:
    return (
        f'"{graph.names[node]}" in "{graph.blocks[node] or graph.name}" takes tensors from devices '
        f"{_listed(needed)}, which Accelerate cannot bring together there"
    )


def _holds(graph: Graph, node: int) -> bool:
    return bool(graph.parameters[node] or graph.buffers[node])


def _within(block: str, path: str) -> bool:
    return not path or block == path or block.startswith(path + ".")


def _listed(devices: set[int]) -> str:
    return " and ".join(str(device) for device in sorted(devices))


PORT = 29500
"""Port of the first machine on which the processes meet."""

_SCRIPT = '''"""Trains {model} as planned in plan.json. Needs PyTorch, Trimtab and {target} on every machine.

Start it with the commands in launch.sh, one on each machine; --help says what can be set.
"""

import argparse
from pathlib import Path

from trimtab.partition import Training, leave_at_once, train_launched

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=100, help="how many steps to train")
parser.add_argument("--seed", type=int, default=0, help="of the weights and of made-up samples")
parser.add_argument("--rate", type=float, default=1e-3, help="learning rate")
parser.add_argument("--save", type=Path, default=None, help="folder to keep the trained weights in")
chosen = parser.parse_args()

plan = Path(__file__).with_name("plan.json")
train_launched(plan, Training({target!r}, chosen.steps, chosen.seed, chosen.rate, chosen.save))
leave_at_once()
'''

_LAUNCH = """#!/bin/sh
# Starts train.py on one machine: sh launch.sh 0 on the first, sh launch.sh 1 on the next, and so on.
# MASTER_ADDR is the address of the first machine. What follows the number goes to train.py.
set -eu
machine=${{1:-0}}
[ $# -gt 0 ] && shift
cd "$(dirname "$0")"
case "$machine" in
{cases}
*) echo "there are machines 0 to {last}" >&2; exit 2 ;;
esac
"""


def torchrun_script(
    plan: Plan,
    graph: Graph,
    devices: Devices,
    recipe: Recipe,
    target: str,
    forecast: PlanForecast | None = None,
) -> dict[str, str]:
    """The files by name: `plan.json`, `train.py`, `launch.sh`. `target` builds the model."""
    place, colon, function = target.partition(":")
    absolute = f"{Path(place).resolve()}{colon}{function}" if place.endswith(".py") else target
    lines = commands(plan, devices)
    cases = "\n".join(f'{number}) exec {line} "$@" ;;' for number, line in enumerate(lines))
    return {
        "plan.json": plan_json(plan, graph, devices, recipe, forecast, target),
        "train.py": _SCRIPT.format(model=graph.name, target=absolute),
        "launch.sh": _LAUNCH.format(cases=cases, last=len(lines) - 1),
    }


def commands(plan: Plan, devices: Devices) -> tuple[str, ...]:
    """Command that starts the script on each machine of the plan, in the order of their numbers."""
    used = sorted({device for device, _, _ in plan.devices()})
    machines = sorted({devices[device].machine for device in used})
    counts = [sum(devices[device].machine == machine for device in used) for machine in machines]
    meeting = f'--master-addr="${{MASTER_ADDR:-127.0.0.1}}" --master-port="${{MASTER_PORT:-{PORT}}}"'
    return tuple(
        f"torchrun --nnodes={len(counts)} --node-rank={number} --nproc-per-node={count} {meeting} train.py"
        for number, count in enumerate(counts)
    )
