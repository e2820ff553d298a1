"""One node: the pools' containers that run here, looked at and set through their control groups.

A controller decides; the node only samples and sets. A container that vanishes
between a look and a write is forgotten; one that cannot be set keeps its old limit, which then counts. When
somebody else sets a limit, it becomes the one that the container is left with, and ours is set again.
"""

import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from trimtab.core import BadInputError, TrimtabError
from trimtab.kernel import (
    ContainerGroup,
    CpuRefusedError,
    GroupBusyError,
    GroupGoneError,
    Hierarchy,
    MemoryTraps,
    SafeLimits,
    allow_many_files,
    untrap,
)
from trimtab.resize.above import GroupsAbove
from trimtab.resize.controller import Controller, SlotLimits
from trimtab.resize.member import ManagedContainer, mean_that_stays
from trimtab.resize.pool import Container, Pool, owner

log = logging.getLogger(__name__)

_YOUNG = 20  # looks after which nobody is expected to set a container's first limits any more
_TURN = 20  # looks in which everyone's limits are compared once with what was set


class NodeMembers:
    """The members here, by their group's path."""

    def __init__(
        self, controller: Controller, hierarchy: Hierarchy, find: Callable[[], Sequence[Container]]
    ) -> None:
        self._controller = controller
        self._hierarchy = hierarchy
        self._find = find
        self.traps = MemoryTraps()
        self.members: dict[str, ManagedContainer] = {}
        self._by_slot: dict[int, ManagedContainer] = {}
        self._logged: set[str] = set()
        self._at_mercy: list[ManagedContainer] = []  # whom the kernel may kill until the next look
        self._untrapped: list[ManagedContainer] = []  # new ones
        self._above = GroupsAbove(hierarchy, self._warn_once)
        self._looks = 0
        self._young: list[tuple[int, ManagedContainer]] = []  # with the look after which they no longer are
        allow_many_files()

    @property
    def safe(self) -> dict[str, SafeLimits]:
        """Limits that containers here, and pods around them, are left with at the end; by path."""
        return self._above.safe | {path: member.safe for path, member in self.members.items()}

    def rescan(self) -> list[ManagedContainer]:
        """Leave who is gone or no longer ours, take in who is new; the new ones, with nothing set yet."""
        there = {container.cgroup: container for container in self._find()}
        for path, member in list(self.members.items()):
            if not self._is_still_ours(member, there.get(path)):
                self._leave(member)
        new = [self._adopt(container) for path, container in there.items() if path not in self.members]
        return [member for member in new if member is not None]

    def sample(self, seconds: float) -> None:
        """Look at everyone and tell the controller what happened in the `seconds` since the last look."""
        self._set_traps_again()
        self._heed_others()
        slots, used, throttled = list[int](), list[float](), list[bool]()
        stays = mean_that_stays(seconds)
        for member in list(self.members.values()):
            try:
                now = member.group.cpu()
            except GroupGoneError:
                self.forget(member)
                continue
            before, member.counters = member.counters, now
            cpus, held_back = 0.0, False
            if now is not before:  # it ran
                cpus, held_back = max(0.0, now.used - before.used) / seconds, now.throttled > before.throttled
                member.throttles += now.throttled - before.throttled
            member.saw(cpus, held_back, stays)
            slots.append(member.slot)
            used.append(cpus)
            throttled.append(held_back)
        self._controller.observe(
            np.array(slots, dtype=np.intp), np.array(used), np.array(throttled, dtype=bool)
        )

    def sample_memory(self) -> None:
        """Sample the memory in use of all containers for the controller."""
        slots, used = list[int](), list[float]()
        for member in list(self.members.values()):
            with contextlib.suppress(GroupGoneError):  # the next look at its CPU forgets it
                used.append(float(member.group.memory()))
                slots.append(member.slot)
        self._controller.observe_memory(np.array(slots, dtype=np.intp), np.array(used))

    def set_cpus(self, limits: SlotLimits) -> SlotLimits:
        """Set limits of CPU; those that are in force now."""
        self.trim()  # what is lent may be taken now
        return self._set(limits, self._limit_cpus)

    def trim(self) -> None:
        """Set quotas anew within limits that stay, where policies save."""
        self._each(ManagedContainer.trim)

    def glance(self, now: float) -> None:
        """Between two looks: whoever is about to be held back borrows what others in its pool, on this node,
        may use and do not. All of them together never have more than their limits."""
        members = [member for member in self.members.values() if member.saves]
        spare = defaultdict[int, float](float)
        for member in members:
            spare[member.pool] += member.cpus - member.committed

        def borrow(member: ManagedContainer) -> None:
            spare[member.pool] = member.glance(now, spare[member.pool])

        self._each(borrow)

    def _each(self, act: Callable[[ManagedContainer], None]) -> None:
        for member in list(self.members.values()):
            try:
                act(member)
            except GroupGoneError:
                self.forget(member)
            except TrimtabError as error:
                self._warn_once(str(error))

    def set_memory(self, limits: SlotLimits) -> SlotLimits:
        """Set limits of memory; those that are in force now. Nobody is squeezed below what it uses."""
        return self._set(limits, self._limit_memory)

    def forget(self, member: ManagedContainer) -> None:
        """It is gone, or no longer ours."""
        self.traps.remove(member.group)
        member.group.close()
        self.members.pop(member.container.cgroup, None)
        self._by_slot.pop(member.slot, None)
        self._above.leave(member.container.cgroup)
        self._controller.leave(np.array([member.slot]))

    def trapped(self, seconds: float) -> list[ManagedContainer]:
        """Containers that ran out of memory since the last call; waits so long for the first.

        The kernel also tells of groups that are removed, whose members are forgotten at the next look.
        """
        groups = [group for group in self.traps.wait(seconds) if group.exists()]
        return [member for member in list(self.members.values()) if member.group in groups]

    def let_kill(self, member: ManagedContainer) -> None:
        """There is nothing to give: the kernel kills as usual, and afterwards the trap is set again."""
        self.traps.remove(member.group)
        self._at_mercy.append(member)

    def set_again(self) -> None:
        """Set everyone's limits and traps once more, as the controller knows them."""
        for member in list(self.members.values()):
            if self._controller.traps(member.pool):
                self.let_kill(member)
        self._set_traps_again()
        self._above.widen_again()
        slots = self._controller.slots
        for name, set_limits in (("cpus", self.set_cpus), ("memory", self.set_memory)):
            values = self._controller.column(name)
            set_limits(SlotLimits(slots[values > 0], values[values > 0]))

    def release(self) -> None:
        """Leave everyone with limits that are safe without us, and with the kernel's own killer."""
        for member in list(self.members.values()):
            self._leave(member)
        self.traps.close()

    def _is_still_ours(self, member: ManagedContainer, now: Container | None) -> bool:
        """Whether the same pool selects it, by its labels and namespace now."""
        if now is None or now is member.container or now == member.container:
            return now is not None
        member.container = now
        owners = [pool for pool in self._controller.pools if pool.owns(now)]
        return owners == [self._controller.pools[member.pool]]

    def _adopt(self, container: Container) -> ManagedContainer | None:
        with contextlib.ExitStack() as stack:
            try:
                pool = owner(container, self._controller.pools)
                if pool is None:
                    return None
                group = stack.enter_context(ContainerGroup(self._hierarchy, container.cgroup))
                member = self._member(container, group, pool)
            except GroupGoneError:
                return None
            except (BadInputError, TrimtabError) as error:
                self._warn_once(str(error))
                return None
            stack.pop_all()  # its files stay open
        self.members[container.cgroup] = member
        self._by_slot[member.slot] = member
        self._above.enter(container.cgroup, pool)
        self._young.append((self._looks + _YOUNG, member))
        if self._controller.traps(member.pool):
            self._untrapped.append(member)
        return member

    def _member(self, container: Container, group: ContainerGroup, pool: Pool) -> ManagedContainer:
        number = self._controller.pools.index(pool)
        safe = SafeLimits(container.cgroup, group.cpu_limit(), group.memory_limit())
        used, counters = float(group.memory()), group.cpu()
        if self._controller.traps(number):
            slot = self._controller.join(number, memory_used=used)
        else:
            slot = self._controller.join(number, safe.cpus or 0.0, safe.memory or 0.0, used)
        saves = self._controller.saves(number)
        return ManagedContainer(
            container, group, slot, number, safe, counters, saves=saves, floor=pool.cpu_floor
        )

    def _leave(self, member: ManagedContainer) -> None:
        """Safe limits first, so that nobody is killed for one that is too small, then the kernel's killer."""
        with contextlib.suppress(TrimtabError):
            member.group.limit_cpus(member.safe.cpus)
        if self._controller.traps(member.pool):
            with contextlib.suppress(TrimtabError):
                member.limit_memory(member.safe.memory)
            with contextlib.suppress(TrimtabError):
                untrap(member.group)  # one at the kernel's mercy, too
        self.forget(member)

    def _set_traps_again(self) -> None:
        spared, self._at_mercy = self._at_mercy, []
        for member in spared:
            self._trap(member)

    def _trap(self, member: ManagedContainer) -> None:
        if self.members.get(member.container.cgroup) is member:
            try:
                self.traps.add(member.group)
            except GroupGoneError:
                pass  # the next look forgets it
            except TrimtabError as error:
                self._warn_once(str(error))

    def _set(self, limits: SlotLimits, write: Callable[[ManagedContainer, float], float]) -> SlotLimits:
        """`write` sets one limit and says which is in force then."""
        self._above.widen()
        while self._untrapped:
            self._trap(self._untrapped.pop())
        slots, values = list[int](), list[float]()
        for slot, value in zip(limits.slots.tolist(), limits.values.tolist(), strict=True):
            member = self._by_slot.get(slot)
            if member is None:
                continue
            try:
                values.append(write(member, value))
                slots.append(slot)
            except GroupGoneError:
                self.forget(member)
            except GroupBusyError:
                pass  # it keeps what it has
            except TrimtabError as error:
                self._warn_once(str(error))
        return SlotLimits(np.array(slots, dtype=np.intp), np.array(values))

    def _limit_cpus(self, member: ManagedContainer, value: float) -> float:
        """At most what the groups above allow."""
        value = min(value, member.most_cpus)
        try:
            member.limit_cpus(value)
        except CpuRefusedError:
            most = self._above.most_cpus(member.container.cgroup)
            if most is None or most >= value:
                raise
            member.limit_cpus(most)
            member.most_cpus = value = most
        return value

    def _limit_memory(self, member: ManagedContainer, value: float) -> float:
        value = member.left_with(value)
        member.limit_memory(value)
        return value

    def _heed_others(self) -> None:
        """Look at limits that somebody else may have set: of new ones every time, of all others in turn."""
        self._looks += 1
        self._young = [(until, member) for until, member in self._young if until > self._looks]
        in_turn = list(self.members.values())[self._looks % _TURN :: _TURN]
        for member in [*(member for _, member in self._young), *in_turn]:
            if self.members.get(member.container.cgroup) is member:
                try:
                    member.heed_others()
                except GroupGoneError:
                    pass  # the next look at its CPU forgets it
                except TrimtabError as error:
                    self._warn_once(str(error))

    def _warn_once(self, sentence: str) -> None:
        if sentence not in self._logged:
            self._logged.add(sentence)
            log.warning(sentence)
