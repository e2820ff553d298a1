"""One node: the pools' containers that run here, looked at and set through their control groups.

Everything about them is asked of, and told to, a controller; the node only acts. A container that vanishes
between a look and a write is forgotten; one that cannot be set keeps its old limit, which then counts.
"""

import contextlib
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.core import BadInputError, TrimtabError
from trimtab.kernel import ContainerGroup, CpuCounters, GroupGoneError, Hierarchy, MemoryTraps, limit_high
from trimtab.resize.controller import Controller, Limits
from trimtab.resize.pool import Container, owner

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Member:
    """A container under management. `safe_*` are the limits it is left with at the end; None is no limit."""

    container: Container
    group: ContainerGroup
    slot: int
    pool: int
    safe_cpus: float | None
    safe_memory: float | None
    counters: CpuCounters
    throttles: int = 0  # periods
    traps: int = 0  # times it ran out of memory and got more
    refusals: int = 0  # times there was nothing to give


class Node:
    """The members here, by their group's path."""

    def __init__(
        self, controller: Controller, hierarchy: Hierarchy, find: Callable[[], Sequence[Container]]
    ) -> None:
        self._controller = controller
        self._hierarchy = hierarchy
        self._find = find
        self.traps = MemoryTraps()
        self.members: dict[str, Member] = {}
        self._by_slot: dict[int, Member] = {}
        self._said: set[str] = set()
        self._at_mercy: list[Member] = []  # whom the kernel may kill until the next look

    def rescan(self) -> list[Member]:
        """Forget who is gone, take in who is new; the new ones."""
        there = {container.cgroup: container for container in self._find()}
        for path in [path for path in self.members if path not in there]:
            self.forget(self.members[path])
        return [
            member
            for path, container in there.items()
            if path not in self.members and (member := self._adopt(container)) is not None
        ]

    def sample(self, seconds: float) -> None:
        """Look at everyone and tell the controller what happened in the `seconds` since the last look."""
        self._set_traps_again()
        slots, used, throttled = list[int](), list[float](), list[bool]()
        for member in list(self.members.values()):
            try:
                now = member.group.cpu()
            except GroupGoneError:
                self.forget(member)
                continue
            before, member.counters = member.counters, now
            held_back = now.throttled > before.throttled
            member.throttles += now.throttled - before.throttled
            slots.append(member.slot)
            used.append(max(0.0, now.used - before.used) / seconds)
            throttled.append(held_back)
        self._controller.observe(
            np.array(slots, dtype=np.intp), np.array(used), np.array(throttled, dtype=bool)
        )

    def sample_memory(self) -> None:
        """The same for memory."""
        slots, used = list[int](), list[float]()
        for member in list(self.members.values()):
            with contextlib.suppress(GroupGoneError):  # the next look at its CPU forgets it
                used.append(float(member.group.memory()))
                slots.append(member.slot)
        self._controller.observe_memory(np.array(slots, dtype=np.intp), np.array(used))

    def set_cpus(self, limits: Limits) -> Limits:
        """Set limits of CPU; those that are in force now."""
        steady = dict(zip(limits.slots.tolist(), (limits.steady if limits.steady is not None else limits.values).tolist(), strict=True))
        return self._set(limits, lambda member, value: member.group.limit_cpus(steady[member.slot], value - steady[member.slot]))

    def set_memory(self, limits: Limits) -> Limits:
        """Set limits of memory; those that are in force now. Nobody is squeezed below what it uses."""
        return self._set(limits, _limit_memory)

    def forget(self, member: Member) -> None:
        """It is gone, or no longer ours."""
        self.traps.remove(member.group)
        member.group.close()
        self.members.pop(member.container.cgroup, None)
        self._by_slot.pop(member.slot, None)
        self._controller.leave(np.array([member.slot]))

    def trapped(self, seconds: float) -> list[Member]:
        """Who has run out of memory since the last call; waits so long for the first."""
        groups = self.traps.wait(seconds)
        return [member for member in list(self.members.values()) if member.group in groups]

    def let_kill(self, member: Member) -> None:
        """There is nothing to give: the kernel kills as usual, and afterwards the trap is set again."""
        self.traps.remove(member.group)
        self._at_mercy.append(member)

    def set_again(self) -> None:
        """Set everyone's limits and traps once more, as the controller knows them."""
        for member in list(self.members.values()):
            if self._controller.traps(member.pool):
                self.let_kill(member)
        self._set_traps_again()
        slots = self._controller.slots
        self.set_cpus(Limits(slots, self._controller.column("cpus")))
        self.set_memory(Limits(slots, self._controller.column("memory")))

    def release(self) -> None:
        """Leave everyone with limits that are safe without us, and with the kernel's own killer."""
        for member in list(self.members.values()):
            with contextlib.suppress(TrimtabError):
                member.group.limit_cpus(member.safe_cpus)
            if self._controller.traps(member.pool):
                with contextlib.suppress(TrimtabError):
                    _limit_memory(member, member.safe_memory)
            self.forget(member)
        self.traps.close()

    def _adopt(self, container: Container) -> Member | None:
        try:
            pool = owner(container, self._controller.pools)
            if pool is None:
                return None
            group = ContainerGroup(self._hierarchy, container.cgroup)
        except GroupGoneError:
            return None
        except (BadInputError, TrimtabError) as error:
            self._say_once(str(error))
            return None
        number = self._controller.pools.index(pool)
        try:
            safe = group.cpu_limit(), group.memory_limit()
            traps = self._controller.traps(number)
            cpus, memory = (0.0, 0.0) if traps else (safe[0] or 0.0, safe[1] or 0.0)
            slot = self._controller.join(number, cpus, memory, float(group.memory()))
            member = Member(container, group, slot, number, *safe, group.cpu())
            self.members[container.cgroup] = member
            self._by_slot[slot] = member
            if traps:
                self.traps.add(group)
        except TrimtabError as error:
            self._say_once(str(error))
        return self.members.get(container.cgroup)

    def _set_traps_again(self) -> None:
        spared, self._at_mercy = self._at_mercy, []
        for member in spared:
            if member.container.cgroup in self.members:
                with contextlib.suppress(TrimtabError):
                    self.traps.add(member.group)

    def _set(self, limits: Limits, write: Callable[[Member, float], None]) -> Limits:
        done = np.zeros(len(limits), dtype=bool)
        for at, (slot, value) in enumerate(zip(limits.slots.tolist(), limits.values.tolist(), strict=True)):
            member = self._by_slot.get(slot)
            if member is None:
                continue
            try:
                write(member, value)
                done[at] = True
            except GroupGoneError:
                self.forget(member)
            except TrimtabError as error:
                self._say_once(str(error))
        return Limits(limits.slots[done], limits.values[done], None if limits.steady is None else limits.steady[done])

    def _say_once(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            log.warning(sentence)


def _limit_memory(member: Member, value: float | None) -> None:
    """Set the limit, and in version 2 where slowing down begins; raising and lowering in the safe order."""
    before = member.group.memory_limit()
    raising = value is None or (before is not None and value > before)
    if member.group.version == 2 and not raising:
        limit_high(member.group, value)
    member.group.limit_memory(value if value is None else math.floor(value))
    if member.group.version == 2 and raising:
        limit_high(member.group, value)
