"""A plan as files to train with: the plan, a script, and the commands that start it on every machine."""

from collections.abc import Sequence
from pathlib import Path
from shlex import quote

from trimtab.partition.devices import Devices
from trimtab.partition.exports.plan_file import plan_json
from trimtab.partition.graph import Graph
from trimtab.partition.plan import Forecast, Plan, Recipe

PORT = 29500
"""Where the processes meet on the first machine."""

_SCRIPT = '''"""Trains {model} as planned in plan.json. Needs PyTorch, Trimtab and {target} on every machine.

Start it with the commands in launch.sh, one on each machine; --help says what can be set.
"""

import argparse
from pathlib import Path

from trimtab.partition import Training, train_launched

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--steps", type=int, default=100, help="how many steps to train")
parser.add_argument("--seed", type=int, default=0, help="of the weights and of made-up samples")
parser.add_argument("--rate", type=float, default=1e-3, help="learning rate")
parser.add_argument("--save", type=Path, default=None, help="folder to keep the trained weights in")
chosen = parser.parse_args()

plan = Path(__file__).with_name("plan.json")
train_launched(plan, Training({target!r}, chosen.steps, chosen.seed, chosen.rate, chosen.save))
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
    forecast: Forecast | None = None,
) -> dict[str, str]:
    """The files by name: `plan.json`, `train.py`, `launch.sh`. `target` builds the model."""
    return {
        "plan.json": plan_json(plan, graph, devices, recipe, forecast, target),
        "train.py": _SCRIPT.format(model=graph.name, target=_from_anywhere(target)),
        "launch.sh": _launch(commands(plan, devices)),
    }


def _from_anywhere(target: str) -> str:
    """A builder whose file is found from every folder."""
    place, colon, function = target.partition(":")
    return f"{Path(place).resolve()}{colon}{function}" if place.endswith(".py") else target


def commands(plan: Plan, devices: Devices) -> tuple[str, ...]:
    """What starts the script on each machine that the plan uses, in the order of their numbers."""
    used = sorted({device for device, _, _ in plan.devices()})
    machines = sorted({devices[device].machine for device in used})
    counts = [sum(devices[device].machine == machine for device in used) for machine in machines]
    return tuple(_command(number, counts) for number in range(len(counts)))


def _command(number: int, counts: Sequence[int]) -> str:
    words = [
        "torchrun",
        f"--nnodes={len(counts)}",
        f"--node-rank={number}",
        f"--nproc-per-node={counts[number]}",
    ]
    meeting = f'--master-addr="${{MASTER_ADDR:-127.0.0.1}}" --master-port="${{MASTER_PORT:-{PORT}}}"'
    return " ".join([*(quote(word) for word in words), meeting, "train.py"])


def _launch(lines: Sequence[str]) -> str:
    cases = "\n".join(f'{number}) exec {line} "$@" ;;' for number, line in enumerate(lines))
    return _LAUNCH.format(cases=cases, last=len(lines) - 1)
