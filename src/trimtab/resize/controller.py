"""Limits of all containers of all pools, decided together in columns; no I/O.

Whoever runs the controller tells it what containers did (`observe`), asks what is to be taken and what can be
given (`takes`, then `gives`), and tells it what the kernel now enforces (`confirm`). What has not been
confirmed counts with its old limit, so a cap holds even while messages are under way.
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
from trimtab.resize.policies import POLICIES, CpuPeriod, CpuPolicy, Wishes
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
    """The containers of some pools, and what each is entitled to."""

    def __init__(
        self,
        pools: Sequence[Pool],
        memory: MemorySettings | None = None,
        policies: Mapping[str, CpuPolicy] | None = None,
    ) -> None:
        """`policies` are used instead of new ones of that name: some have a history already."""
        self.pools = tuple(pools)
        self.settings = memory or MemorySettings()
        self._cpu_cap = np.array([pool.cpu for pool in pools])
        self._memory_cap = np.array([pool.memory for pool in pools])
        self._cpu_floor = np.array([pool.cpu_floor for pool in pools])
        self._memory_floor = np.array([pool.memory_floor for pool in pools])
        given = policies or {}
        self._policies = {pool.policy: given.get(pool.policy) or _policy(pool.policy) for pool in pools}
        self._trapping = np.array([self._policies[pool.policy].traps for pool in pools], dtype=bool)
        self._of_policy = {
            name: np.array([pool.policy == name for pool in pools], dtype=bool) for name in self._policies
        }
        self._alive = np.zeros(0, dtype=bool)
        self._columns = {name: np.zeros(0) for name in _COLUMNS}

    @property
    def slots(self) -> Indices:
        """Everyone who is there."""
        return np.flatnonzero(self._alive)

    def column(self, name: str) -> Array:
        """Values of all `slots` in a column: cpus, used, throttled, memory, memory_used and so on."""
        return np.asarray(self._columns[name][self._alive])

    def traps(self, pool: int) -> bool:
        """Whether this pool's containers stand still until they get more memory instead of being killed."""
        return bool(self._trapping[pool])

    def saves(self, pool: int) -> bool:
        """Whether this pool's containers may use later what they leave unused, within their limits."""
        return self._policies[self.pools[pool].policy].saves

    def join(self, pool: int, cpus: float = 0.0, memory: float = 0.0, memory_used: float = 0.0) -> int:
        """A container is there, with limits that are in force already or none; its slot."""
        if self._alive.all():
            self._grow(max(8, len(self._alive)))
        slot = int(self._alive.argmin())  # the first that is free
        self._alive[slot] = True
        given = {"pool": pool, "cpus": cpus, "memory": memory, "memory_used": memory_used}
        given["fresh"] = float(cpus == 0)
        for name, column in self._columns.items():
            column[slot] = given.get(name, 0.0)
        return slot

    def leave(self, slots: Indices) -> None:
        """These containers are gone, and what they had is free."""
        self._alive[slots] = False
        for column in self._columns.values():
            column[slots] = 0.0
        for policy in self._policies.values():
            policy.forget(slots)

    def observe(self, slots: Indices, used: Array, throttled: NDArray[np.bool_]) -> None:
        """CPUs that these used in the period that ends now, and whom the limit held back."""
        self._columns["used"][slots] = used
        self._columns["throttled"][slots] = throttled

    def observe_memory(self, slots: Indices, used: Array) -> None:
        """Bytes that these use now."""
        self._columns["memory_used"][slots] = used

    def decide(self, seconds: float) -> None:
        """Set everyone's target for the next period, after a period of so many seconds."""
        everyone = self.slots
        if not len(everyone):
            return
        pool = self._pool(everyone)
        floor = floors_within(self._cpu_floor[pool], pool, self._cpu_cap)
        wanted, need = np.zeros(len(everyone)), np.zeros(len(everyone))
        for name, policy in self._policies.items():
            mine = self._of_policy[name][pool]
            wishes = Wishes.of(policy.wanted(self._period(everyone[mine], floor[mine], seconds)))
            wanted[mine], need[mine] = wishes.cpus, np.minimum(wishes.need, wishes.cpus)
        fresh = self._columns["fresh"][everyone] > 0
        first = [each.first_cpu(count) for each, count in zip(self.pools, self._counts(), strict=True)]
        share = np.array(first)[pool]
        wanted, need = np.where(fresh, share, wanted), np.where(fresh, share, need)
        self._columns["fresh"][everyone] = 0.0
        held_back = self._columns["throttled"][everyone] > 0
        sure = fair_limits(need, floor, pool, self._cpu_cap)
        sure = fair_limits(np.where(held_back, wanted, sure), sure, pool, self._cpu_cap)
        self._columns["target"][everyone] = fair_limits(wanted, sure, pool, self._cpu_cap)

    def takes(self) -> SlotLimits:
        """Whoever is to have less, and how much that is."""
        everyone = self.slots
        target, cpus = self._columns["target"][everyone], self._columns["cpus"][everyone]
        less = target < cpus - _LEAST_CHANGE
        return SlotLimits(everyone[less], target[less])

    def gives(self) -> SlotLimits:
        """Whoever can have more out of what is free now."""
        everyone = self.slots
        target, cpus = self._columns["target"][everyone], self._columns["cpus"][everyone]
        value = grown(np.maximum(target, cpus), cpus, self._pool(everyone), self._cpu_cap)
        more = (value > cpus + _LEAST_CHANGE) | ((cpus == 0) & (value > 0))
        return SlotLimits(everyone[more], value[more])

    def confirm(self, limits: SlotLimits) -> None:
        """The kernel enforces these limits of CPU now."""
        self._columns["cpus"][limits.slots] = limits.values

    def confirm_memory(self, limits: SlotLimits) -> None:
        """The kernel enforces these limits of memory now."""
        self._columns["memory"][limits.slots] = limits.values

    def first_memory(self, slots: Indices) -> SlotLimits:
        """Memory for containers that have no limit yet: their first share, what they use, or what is left."""
        pool = self._pool(slots)
        first = [each.first_memory(count) for each, count in zip(self.pools, self._counts(), strict=True)]
        wish = np.maximum(
            np.maximum(np.array(first)[pool], self._memory_floor[pool]), self._columns["memory_used"][slots]
        )
        free = np.maximum(self._memory_free(), 0.0)
        wished = np.bincount(pool, wish, len(free))
        part = np.minimum(np.divide(free, wished, out=np.ones_like(free), where=wished > 0), 1.0)
        return SlotLimits(slots, wish * part[pool])

    def grants(self, slots: Indices) -> tuple[SlotLimits, Array]:
        """More memory for containers that ran out; and by pool what is missing."""
        everyone = self.slots
        asks = np.searchsorted(everyone, slots)
        limit, missing = granted(
            asks, self._columns["memory"][everyone], self._pool(everyone), self._memory_cap, self.settings
        )
        return SlotLimits(slots, limit), missing

    def memory_takes(self) -> SlotLimits:
        """Limits to lower in the regular round of reclaiming: everything far above use."""
        everyone = self.slots
        limit, used = self._columns["memory"][everyone], self._columns["memory_used"][everyone]
        pool = self._pool(everyone)
        value = reclaimed(limit, used, self._memory_floor[pool], self.settings.margin)
        return self._lower(everyone, np.where(self._trapping[pool], value, limit))

    def urgent_memory_takes(self, missing: Array) -> SlotLimits:
        """Limits to lower at once because a container waits for memory."""
        everyone = self.slots
        pool = self._pool(everyone)
        limit, used = self._columns["memory"][everyone], self._columns["memory_used"][everyone]
        value = urgently_reclaimed(missing, limit, used, self._memory_floor[pool], pool, self.settings)
        return self._lower(everyone, value)

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
        """Containers in each pool; one where there is none, who would have all of it."""
        there = np.bincount(self._pool(self.slots), minlength=len(self.pools))
        return [max(1, count) for count in there.tolist()]

    def _memory_free(self) -> Array:
        pool = self._pool(self.slots)
        return np.asarray(self._memory_cap - np.bincount(pool, self.column("memory"), len(self.pools)))

    def _pool(self, slots: Indices) -> Indices:
        return self._columns["pool"][slots].astype(np.intp)

    def _grow(self, more: int) -> None:
        self._alive = np.concatenate([self._alive, np.zeros(more, dtype=bool)])
        for name in _COLUMNS:
            self._columns[name] = np.concatenate([self._columns[name], np.zeros(more)])


def _policy(name: str) -> CpuPolicy:
    if name not in POLICIES:
        raise NotFoundError(f'no sizing policy is called "{name}"; there are {", ".join(POLICIES)}')
    return POLICIES[name]()
