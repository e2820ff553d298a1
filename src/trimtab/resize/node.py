"""One node: samples the pools' containers that run here, and sets their limits, through control groups.

A controller decides. Safe limits are recorded before anything is set. A container that ends between a look
and a write is forgotten; one whose limit cannot be set keeps its old one, which then counts. A limit that
another program sets becomes the container's safe limit, and the managed one is set again.
"""

import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from trimtab.core import TrimtabError
from trimtab.kernel import (
    ContainerGroup,
    CpuRefusedError,
    GroupBusyError,
    GroupGoneError,
    GroupRefusedError,
    Hierarchy,
    MemoryTraps,
    SafeLimits,
    allow_many_files,
    untrap,
)
from trimtab.resize.above import GroupsAbove
from trimtab.resize.controller import Controller, SlotLimits
from trimtab.resize.member import ManagedContainer, mean_decay
from trimtab.resize.pool import Container, Pool, owner

log = logging.getLogger(__name__)

_YOUNG = 20  # looks after which a runtime has set a container's first limits
_TURN = 20  # looks in which all limits are compared once with those that were set
_GROUP, _JOURNAL, _CPU, _MEMORY, _TRAP = "group", "journal", "CPU", "memory", "trap"  # what cannot be done


class NodeMembers:
    """The managed containers of this node, by their group's path."""

    def __init__(
        self,
        controller: Controller,
        hierarchy: Hierarchy,
        find: Callable[[], Sequence[Container]],
        record: Callable[[Mapping[str, SafeLimits]], None] = lambda safe: None,
    ) -> None:
        """`record` writes safe limits to disk, all of them at every change."""
        self._controller = controller
        self._hierarchy = hierarchy
        self._find = find
        self._record = record
        self._recorded: dict[str, SafeLimits] = {}
        self.traps = MemoryTraps()
        self.members: dict[str, ManagedContainer] = {}
        self._by_slot: dict[int, ManagedContainer] = {}
        self._logged: set[object] = set()
        self._problems: dict[tuple[str, str], str] = {}  # reason, by path and what cannot be done
        self._killable: list[ManagedContainer] = []  # until the next look
        self._untrapped: list[ManagedContainer] = []  # new ones
        self._above = GroupsAbove(hierarchy, lambda message: self._warn_once(message, message))
        self._looks = 0
        self._young: list[tuple[int, ManagedContainer]] = []  # with the look until which they are young
        allow_many_files()

    @property
    def safe(self) -> dict[str, SafeLimits]:
        """Safe limits of containers here and of pods around them, by path."""
        return self._above.safe | {path: member.safe for path, member in self.members.items()}

    @property
    def unmanaged(self) -> dict[str, str]:
        """Groups of the pools that cannot be managed, or not in every way, by path; with the reasons."""
        reasons = defaultdict[str, list[str]](list)
        for (path, _), reason in sorted(self._problems.items()):
            if reason not in reasons[path]:
                reasons[path].append(reason)
        return {path: "; ".join(texts) for path, texts in reasons.items()}

    def rescan(self) -> list[ManagedContainer]:
        """Remove containers that have ended or left their pool, add new ones; returns the new ones."""
        present = {container.cgroup: container for container in self._find()}
        for path, member in list(self.members.items()):
            if not self._is_still_selected(member, present.get(path)):
                self._leave(member)
        if self._problems:
            self._problems = {key: reason for key, reason in self._problems.items() if key[0] in present}
        new = [self._adopt(container) for path, container in present.items() if path not in self.members]
        return self._keep_recorded([member for member in new if member is not None])

    def sample(self, seconds: float) -> None:
        """Sample all containers for the controller, `seconds` after the last time."""
        self._set_traps_again()
        self._accept_foreign_limits()
        slots, used, throttled = list[int](), list[float](), list[bool]()
        decay = mean_decay(seconds)
        for member in list(self.members.values()):
            try:
                now = member.group.cpu()
            except GroupGoneError:
                self.forget(member)
                continue
            before, member.counters = member.counters, now
            cpus, is_throttled = 0.0, False
            if now is not before:  # it ran
                cpus = max(0.0, now.used - before.used) / seconds
                is_throttled = now.throttled > before.throttled
                member.throttles += now.throttled - before.throttled
            member.observe(cpus, is_throttled, decay)
            slots.append(member.slot)
            used.append(cpus)
            throttled.append(is_throttled)
        self._controller.observe(
            np.array(slots, dtype=np.intp), np.array(used), np.array(throttled, dtype=bool)
        )

    def sample_memory(self) -> None:
        """Sample the memory of all containers for the controller."""
        slots, used = list[int](), list[float]()
        for member in list(self.members.values()):
            with contextlib.suppress(GroupGoneError):  # the next look at its CPU forgets it
                used.append(float(member.group.memory()))
                slots.append(member.slot)
        self._controller.observe_memory(np.array(slots, dtype=np.intp), np.array(used))

    def set_cpus(self, limits: SlotLimits) -> SlotLimits:
        """Set CPU limits; returns those in force now."""
        self.trim()  # lent quota may be taken now
        return self._set(limits, self._limit_cpus, _CPU)

    def trim(self) -> None:
        """Set quotas again within limits that stay, where policies save."""
        self._for_all(ManagedContainer.trim)

    def glance(self, now: float) -> None:
        """Between two looks, let containers that are about to be throttled borrow what others in their pool,
        on this node, leave unused. All together never have more than their limits."""
        members = [member for member in self.members.values() if member.saves]
        spare = defaultdict[int, float](float)
        for member in members:
            spare[member.pool] += member.cpus - member.committed

        def borrow(member: ManagedContainer) -> None:
            spare[member.pool] = member.glance(now, spare[member.pool])

        self._for_all(borrow)

    def _for_all(self, act: Callable[[ManagedContainer], None]) -> None:
        for member in list(self.members.values()):
            try:
                act(member)
            except GroupGoneError:
                self.forget(member)
            except TrimtabError as error:
                self._report(member.container.cgroup, _CPU, error)

    def set_memory(self, limits: SlotLimits) -> SlotLimits:
        """Set memory limits, none below use; returns those in force now."""
        return self._set(limits, self._limit_memory, _MEMORY)

    def forget(self, member: ManagedContainer) -> None:
        """Remove a container without setting anything."""
        self.traps.remove(member.group)
        member.group.close()
        self.members.pop(member.container.cgroup, None)
        self._by_slot.pop(member.slot, None)
        self._above.leave(member.container.cgroup)
        self._controller.leave(np.array([member.slot]))

    def trapped(self, seconds: float) -> list[ManagedContainer]:
        """Containers that ran out of memory since the last call; waits so long for the first.

        The kernel also reports removed groups, whose containers are forgotten at the next look.
        """
        groups = [group for group in self.traps.wait(seconds) if group.exists()]
        return [member for member in list(self.members.values()) if member.group in groups]

    def let_kill(self, member: ManagedContainer) -> None:
        """Let the kernel kill as usual; at the next look the trap is set again."""
        self.traps.remove(member.group)
        self._killable.append(member)

    def set_again(self) -> None:
        """Set all limits and traps again, as the controller has them."""
        self._set_traps_again()
        for member in list(self.members.values()):
            with contextlib.suppress(TrimtabError):  # it has ended, or its memory cannot be limited
                self.traps.set_again(member.group)
        self._above.widen(again=True)
        slots = self._controller.slots
        for name, set_limits in (("cpus", self.set_cpus), ("memory", self.set_memory)):
            values = self._controller.column(name)
            set_limits(SlotLimits(slots[values > 0], values[values > 0]))

    def release(self) -> None:
        """Restore safe limits and the OOM killer for all containers."""
        for member in list(self.members.values()):
            self._leave(member)
        self.traps.close()

    def _is_still_selected(self, member: ManagedContainer, now: Container | None) -> bool:
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
                self._report_partial(container.cgroup)
                return None
            except TrimtabError as error:
                self._report(container.cgroup, _GROUP, error)
                return None
            stack.pop_all()  # its files stay open
        self._problems.pop((container.cgroup, _GROUP), None)
        self.members[container.cgroup] = member
        self._by_slot[member.slot] = member
        self._above.enter(container.cgroup, pool)
        self._young.append((self._looks + _YOUNG, member))
        if self._controller.traps(member.pool):
            self._untrapped.append(member)
        return member

    def _member(self, container: Container, group: ContainerGroup, pool: Pool) -> ManagedContainer:
        number = self._controller.pools.index(pool)
        safe = SafeLimits(container.cgroup, group.cpu_limit(), group.memory_limit(), group.inode)
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
        """Restore safe limits, so that no process is killed for too small a limit, then the OOM killer."""
        with contextlib.suppress(TrimtabError):
            member.group.limit_cpus(member.safe.cpus)
        if self._controller.traps(member.pool):
            with contextlib.suppress(TrimtabError):
                member.limit_memory(member.safe.memory)
            with contextlib.suppress(TrimtabError):
                untrap(member.group)  # a killable one, too
        self.forget(member)

    def _set_traps_again(self) -> None:
        killable, self._killable = self._killable, []
        for member in killable:
            self._trap(member)

    def _trap(self, member: ManagedContainer) -> None:
        if self.members.get(member.container.cgroup) is member:
            try:
                self.traps.add(member.group)
            except GroupGoneError:
                pass  # the next look forgets it
            except TrimtabError as error:
                self._report(member.container.cgroup, _TRAP, error)

    def _set(
        self, limits: SlotLimits, write: Callable[[ManagedContainer, float], float], action: str
    ) -> SlotLimits:
        """`write` sets one limit and returns the one in force."""
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
                if self._problems:
                    self._problems.pop((member.container.cgroup, action), None)
            except GroupGoneError:
                self.forget(member)
            except GroupBusyError:
                pass  # it keeps its limit
            except TrimtabError as error:
                self._report(member.container.cgroup, action, error)
        return SlotLimits(np.array(slots, dtype=np.intp), np.array(values))

    def _limit_cpus(self, member: ManagedContainer, value: float) -> float:
        """Set a CPU limit, at most what the groups above allow."""
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
        value = member.limit_for(value)
        member.limit_memory(value)
        return value

    def _accept_foreign_limits(self) -> None:
        """Check limits that other programs may have set: of new containers every time, of others in turn."""
        self._looks += 1
        self._young = [(until, member) for until, member in self._young if until > self._looks]
        in_turn = list(self.members.values())[self._looks % _TURN :: _TURN]
        for member in [*(member for _, member in self._young), *in_turn]:
            if self.members.get(member.container.cgroup) is member:
                try:
                    member.accept_foreign_limits()
                except GroupGoneError:
                    pass  # the next look at its CPU forgets it
                except TrimtabError as error:
                    self._report(member.container.cgroup, _CPU, error)

    def _keep_recorded(self, new: list[ManagedContainer]) -> list[ManagedContainer]:
        """Record safe limits if they have changed. New containers whose limits cannot be recorded are left
        alone until the next look."""
        safe = self.safe
        if safe == self._recorded:
            return new
        try:
            self._record(safe)
        except TrimtabError as error:
            self._warn_once(str(error), str(error))
            for member in new:
                self._report(member.container.cgroup, _JOURNAL, error)
                self.forget(member)
            return []
        self._recorded = safe
        for member in new:
            self._problems.pop((member.container.cgroup, _JOURNAL), None)
        return new

    def _report_partial(self, path: str) -> None:
        """Report a group that exists for some controllers only; one that exists for none has ended."""
        folders = {name: root / path.lstrip("/") for name, root in self._hierarchy.folders.items()}
        missing = [name for name, folder in folders.items() if not folder.is_dir()]
        if 0 < len(missing) < len(folders):
            reason = f"the group {path} does not exist for the controllers {', '.join(missing)}"
            self._report(path, _GROUP, GroupGoneError(f"{reason}; create it there and add its processes"))

    def _report(self, path: str, action: str, error: TrimtabError) -> None:
        """Keep the reason why a group cannot be managed, and log it once; one that holds for all, once."""
        self._problems[path, action] = str(error)
        if isinstance(error, GroupRefusedError):
            self._warn_once(str(error), str(error))
        else:
            self._warn_once(str(error), (path, action, type(error)))

    def _warn_once(self, message: str, key: object) -> None:
        if key not in self._logged:
            self._logged.add(key)
            log.warning("%s", message)
