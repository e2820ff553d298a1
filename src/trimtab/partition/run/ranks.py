"""Which process is which: one per device of a plan, numbered in the order of the devices."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.core import BadInputError
from trimtab.partition.devices import Devices
from trimtab.partition.plan import Plan


@dataclass(frozen=True, slots=True)
class Place:
    """One process's part of a plan: its stage, its replica, and which part of every product it computes."""

    rank: int
    device: int
    stage: int
    replica: int
    part: int


def places(plan: Plan, order: Sequence[int] = ()) -> tuple[Place, ...]:
    """The part of every process, by rank; refuses a plan in which a device runs several stages.

    Ranks follow the numbers of devices, or `order`, where one is given.
    """
    found: dict[int, tuple[int, int]] = {}
    for device, stage, replica in plan.devices():
        if device in found:
            raise BadInputError(
                f"device {device} runs stages {found[device][0]} and {stage}; "
                "a plan can be run only where every device runs one stage of one replica"
            )
        found[device] = (stage, replica)
    parts: Counter[tuple[int, int]] = Counter()
    placed: list[Place] = []
    for rank, device in enumerate(order or sorted(found)):
        placed.append(Place(rank, device, *found[device], parts[found[device]]))
        parts[found[device]] += 1
    return tuple(placed)


def by_machine(plan: Plan, devices: Devices) -> tuple[int, ...]:
    """The plan's devices in the order of ranks where machine after machine starts its processes."""
    used = {device for device, _, _ in plan.devices()}
    return tuple(sorted(used, key=lambda device: (devices[device].machine, device)))


def rank_at(ranks: tuple[Place, ...], stage: int, replica: int, part: int) -> int:
    """The rank that runs one part of one replica of one stage."""
    return next(p.rank for p in ranks if (p.stage, p.replica, p.part) == (stage, replica, part))
