"""Decides the limits of all containers of all pools together, in columns; no I/O.

The caller reports use (`observe`), asks which limits shrink and which can grow (`takes`, then `gives`), and
reports the limits that the kernel now enforces (`confirm`). An unconfirmed limit counts with its old value,
so a cap holds even while messages are in flight.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trimtab.core import NotFoundError
from trimtab.resize.allocation import (
    Array,
    Indices,
    MemorySettings,
    fair_limits,
    floors_within,
    granted,
    grown,
    reclaimed,
    urgently_reclaimed,
)
from trimtab.resize.policies import POLICIES
from trimtab.resize.policies.policy import CpuPeriod, CpuPolicy, Wishes
from trimtab.resize.pool import Pool

_LEAST_CHANGE = 0.001  # CPUs; less is not worth a write
_COLUMNS = ("pool", "cpus", "target", "used", "throttled", "fresh", "memory", "memory_used")


@dataclass(frozen=True, slots=True, eq=False)
class SlotLimits:
    """New limits of some containers, by slot: CPUs, or bytes."""

    slots: Indices
    values: Array

    def __len__(self) -> int:
        return len(self.slots)


class Controller:
    """The containers of some pools, with their use and limits."""

    def __init__(
        self,
        pools: Sequence[Pool],
        memory: MemorySettings | None = None,
        policies: Mapping[str, CpuPolicy] | None = None,
    ) -> None:
        """`policies` replace new ones of that name, for example with a history."""
        self.pools = tuple(pools)
        self.settings = memory or MemorySettings()
        self._cpu_cap = np.array([pool.cpu for pool in pools])
        self._memory_cap = np.array([pool.memory for pool in pools])
        self._cpu_floor = np.array([pool.cpu_floor for pool in pools])
        self._memory_floor = np.array([pool.memory_floor for pool in pools])
        existing = policies or {}
        self._policies = {pool.policy: existing.get(pool.policy) or _policy(pool.policy) for pool in pools}
        self._trapping = np.array([self._policies[pool.policy].traps for pool in pools], dtype=bool)
        self._of_policy = {
            name: np.array([pool.policy == name for pool in pools], dtype=bool) for name in self._policies
        }
        self._alive = np.zeros(0, dtype=bool)
        self._columns = {name: np.zeros(0) for name in _COLUMNS}

    @property
    def slots(self) -> Indices:
        """Slots of all containers."""
        return np.flatnonzero(self._alive)

    def column(self, name: str) -> Array:
        """Values of all `slots` in a column: cpus, used, throttled, memory, memory_used and so on."""
        return np.asarray(self._columns[name][self._alive])

    def traps(self, pool: int) -> bool:
        """Whether this pool's containers pause until they get more memory instead of being killed."""
        return bool(self._trapping[pool])

    def saves(self, pool: int) -> bool:
        """Whether this pool's containers may use unused quota later, within their limits."""
        return self._policies[self.pools[pool].policy].saves

    def join(self, pool: int, cpus: float = 0.0, memory: float = 0.0, memory_used: float = 0.0) -> int:
        """Add a container, with limits that are in force already or none; returns its slot."""
        if self._alive.all():
            more = max(8, len(self._alive))
            self._alive = np.concatenate([self._alive, np.zeros(more, dtype=bool)])
            for name in _COLUMNS:
                self._columns[name] = np.concatenate([self._columns[name], np.zeros(more)])
        slot = int(self._alive.argmin())  # the first that is free
        self._alive[slot] = True
        values = {"pool": pool, "cpus": cpus, "memory": memory, "memory_used": memory_used}
        values["fresh"] = float(cpus == 0)
        for name, column in self._columns.items():
            column[slot] = values.get(name, 0.0)
        return slot

    def leave(self, slots: Indices) -> None:
        """Remove containers; their limits are free."""
        self._alive[slots] = False
        for column in self._columns.values():
            column[slots] = 0.0
        for policy in self._policies.values():
            policy.forget(slots)

    def observe(self, slots: Indices, used: Array, throttled: NDArray[np.bool_]) -> None:
        """Report CPUs used in the period that ends now, and which containers were throttled."""
        self._columns["used"][slots] = used
        self._columns["throttled"][slots] = throttled

    def observe_memory(self, slots: Indices, used: Array) -> None:
        """Report bytes in use now."""
        self._columns["memory_used"][slots] = used

    def decide(self, seconds: float) -> None:
        """Set all targets for the next period, after a period of so many seconds."""
        slots = self.slots
        if not len(slots):
            return
        pool = self._pool(slots)
        floor = floors_within(self._cpu_floor[pool], pool, self._cpu_cap)
        target, need = np.zeros(len(slots)), np.zeros(len(slots))
        for name, policy in self._policies.items():
            mine = self._of_policy[name][pool]
            wishes = Wishes.of(policy.target(self._period(slots[mine], floor[mine], seconds)))
            target[mine], need[mine] = wishes.cpus, np.minimum(wishes.need, wishes.cpus)
        fresh = self._columns["fresh"][slots] > 0
        first = [owner.first_cpu(count) for owner, count in zip(self.pools, self._counts(), strict=True)]
        share = np.array(first)[pool]
        target, need = np.where(fresh, share, target), np.where(fresh, share, need)
        self._columns["fresh"][slots] = 0.0
        throttled = self._columns["throttled"][slots] > 0
        # Needs come first, then throttled containers' targets, then the other targets.
        served = fair_limits(need, floor, pool, self._cpu_cap)
        served = fair_limits(np.where(throttled, target, served), served, pool, self._cpu_cap)
        self._columns["target"][slots] = fair_limits(target, served, pool, self._cpu_cap)

    def takes(self) -> SlotLimits:
        """CPU limits to lower."""
        slots = self.slots
        target, cpus = self._columns["target"][slots], self._columns["cpus"][slots]
        less = target < cpus - _LEAST_CHANGE
        return SlotLimits(slots[less], target[less])

    def gives(self) -> SlotLimits:
        """CPU limits that can be raised out of what is free now."""
        slots = self.slots
        target, cpus = self._columns["target"][slots], self._columns["cpus"][slots]
        value = grown(np.maximum(target, cpus), cpus, self._pool(slots), self._cpu_cap)
        more = (value > cpus + _LEAST_CHANGE) | ((cpus == 0) & (value > 0))
        return SlotLimits(slots[more], value[more])

    def confirm(self, limits: SlotLimits) -> None:
        """The kernel enforces these CPU limits now."""
        self._columns["cpus"][limits.slots] = limits.values

    def confirm_memory(self, limits: SlotLimits) -> None:
        """The kernel enforces these memory limits now."""
        self._columns["memory"][limits.slots] = limits.values

    def first_memory(self, slots: Indices) -> SlotLimits:
        """Memory for containers without a limit: their first share, their use, or what is free."""
        pool = self._pool(slots)
        first = [owner.first_memory(count) for owner, count in zip(self.pools, self._counts(), strict=True)]
        wish = np.maximum(
            np.maximum(np.array(first)[pool], self._memory_floor[pool]), self._columns["memory_used"][slots]
        )
        in_force = np.bincount(self._pool(self.slots), self.column("memory"), len(self.pools))
        free = np.maximum(self._memory_cap - in_force, 0.0)
        wished = np.bincount(pool, wish, len(free))
        part = np.minimum(np.divide(free, wished, out=np.ones_like(free), where=wished > 0), 1.0)
        return SlotLimits(slots, wish * part[pool])

    def grants(self, slots: Indices) -> tuple[SlotLimits, Array]:
        """More memory for containers that ran out, and the bytes missing by pool."""
        asks, pool = np.searchsorted(self.slots, slots), self._pool(self.slots)
        limit, missing = granted(asks, self.column("memory"), pool, self._memory_cap, self.settings)
        return SlotLimits(slots, limit), missing

    def memory_takes(self) -> SlotLimits:
        """Memory limits to lower in the regular round of reclaiming: those far above use."""
        slots = self.slots
        limit, used = self._columns["memory"][slots], self._columns["memory_used"][slots]
        pool = self._pool(slots)
        value = reclaimed(limit, used, self._memory_floor[pool], self.settings.margin)
        return self._lower(slots, np.where(self._trapping[pool], value, limit))

    def urgent_memory_takes(self, missing: Array) -> SlotLimits:
        """Memory limits to lower at once because a container waits for memory."""
        slots = self.slots
        pool = self._pool(slots)
        limit, used = self._columns["memory"][slots], self._columns["memory_used"][slots]
        value = urgently_reclaimed(missing, limit, used, self._memory_floor[pool], pool, self.settings)
        return self._lower(slots, value)

    def _lower(self, slots: Indices, value: Array) -> SlotLimits:
        less = (value < self._columns["memory"][slots]) & (self._columns["memory"][slots] > 0)
        return SlotLimits(slots[less], value[less])

    def _period(self, slots: Indices, floor: Array, seconds: float) -> CpuPeriod:
        return CpuPeriod(
            seconds,
            slots,
            self._pool(slots),
            self._columns["cpus"][slots],
            self._columns["used"][slots],
            self._columns["throttled"][slots] > 0,
            floor,
            self._cpu_cap,
        )

    def _counts(self) -> list[int]:
        """Containers in each pool, at least 1."""
        counts = np.bincount(self._pool(self.slots), minlength=len(self.pools))
        return [max(1, count) for count in counts.tolist()]

    def _pool(self, slots: Indices) -> Indices:
        return self._columns["pool"][slots].astype(np.intp)


def _policy(name: str) -> CpuPolicy:
    if name not in POLICIES:
        raise NotFoundError(f'no sizing policy is called "{name}"; there are {", ".join(POLICIES)}')
    return POLICIES[name]()
