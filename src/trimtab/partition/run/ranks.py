"""Ranks of a plan's processes, and the process groups they communicate in."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch.distributed as dist

from trimtab.core import BadInputError
from trimtab.partition.devices import Devices
from trimtab.partition.plan import Plan


@dataclass(frozen=True, slots=True)
class RankPlace:
    """One process's place in a plan: its stage, its replica, and its part of every product."""

    rank: int
    device: int
    stage: int
    replica: int
    part: int


def places(plan: Plan, order: Sequence[int] = ()) -> tuple[RankPlace, ...]:
    """The place of every process, by rank; refuses a plan in which a device runs several stages.

    Ranks follow the numbers of devices, or `order` if given.
    """
    roles: dict[int, tuple[int, int]] = {}
    for device, stage, replica in plan.devices():
        if device in roles:
            raise BadInputError(
                f"device {device} runs stages {roles[device][0]} and {stage}; "
                "a plan can be run only where every device runs one stage of one replica"
            )
        roles[device] = (stage, replica)
    parts: Counter[tuple[int, int]] = Counter()
    placed: list[RankPlace] = []
    for rank, device in enumerate(order or sorted(roles)):
        placed.append(RankPlace(rank, device, *roles[device], parts[roles[device]]))
        parts[roles[device]] += 1
    return tuple(placed)


def by_machine(plan: Plan, devices: Devices) -> tuple[int, ...]:
    """The plan's devices in the order of ranks when each machine in turn starts its processes."""
    used = {device for device, _, _ in plan.devices()}
    return tuple(sorted(used, key=lambda device: (devices[device].machine, device)))


def rank_at(ranks: tuple[RankPlace, ...], stage: int, replica: int, part: int) -> int:
    """The rank that runs one part of one replica of one stage."""
    return next(p.rank for p in ranks if (p.stage, p.replica, p.part) == (stage, replica, part))


Ties = tuple[tuple[tuple[int, ...], tuple[str, ...]], ...]
"""Sets of stages, each with the weights that exactly those stages share."""


@dataclass(frozen=True, slots=True)
class Groups:
    """This process's groups: its pipeline, its replicas, its tensor parallelism, and its ties.

    `stages` gives, for each stage, the rank of its process in the pipeline's group.
    """

    pipeline: Any
    stages: dict[int, int]
    replicas: Any
    parts: Any
    ties: tuple[tuple[Any, tuple[str, ...]], ...]


def make_groups(plan: Plan, ranks: tuple[RankPlace, ...], place: RankPlace, ties: Ties) -> Groups:
    """This process's groups; every process creates all groups of the plan in the same order.

    Groups number their processes by rank, and so does sharding: processes that share weights over stages must
    have the same place among their stage's replicas, to hold the same shard.
    """
    stages, replicas, parts = range(len(plan.stages)), range(plan.replicas), range(plan.tensor)

    def among(members: list[int]) -> Any:
        group = dist.new_group(members)
        return group if place.rank in members else None

    pipelines = [among([rank_at(ranks, s, r, t) for s in stages]) for r, t in product(replicas, parts)]
    copies = [among([rank_at(ranks, s, r, t) for r in replicas]) for s, t in product(stages, parts)]
    shares = [among([rank_at(ranks, s, r, t) for t in parts]) for s, r in product(stages, replicas)]
    tied = [
        (among([sorted(rank_at(ranks, s, r, t) for r in replicas)[nth] for s in holders]), names)
        for holders, names in ties
        for nth, t in product(replicas, parts)
    ]
    pipeline = next(group for group in pipelines if group is not None)
    own = [rank_at(ranks, s, place.replica, place.part) for s in stages]
    return Groups(
        pipeline=pipeline,
        stages={stage: dist.get_group_rank(pipeline, rank) for stage, rank in enumerate(own)},
        replicas=next(group for group in copies if group is not None),
        parts=next(group for group in shares if group is not None),
        ties=tuple((group, names) for group, names in tied if group is not None),
    )


def shared_weights(weights: Sequence[Sequence[str]]) -> Ties:
    """The ties of stages, given the names of each stage's weights."""
    holders: dict[str, list[int]] = {}
    for stage, names in enumerate(weights):
        for name in names:
            holders.setdefault(name, []).append(stage)
    sets: dict[tuple[int, ...], list[str]] = {}
    for name, stages in holders.items():
        if len(stages) > 1:
            sets.setdefault(tuple(stages), []).append(name)
    return tuple((stages, tuple(names)) for stages, names in sorted(sets.items()))
