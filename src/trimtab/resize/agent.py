"""The agent of one node: sets limits every 100 ms, and grants memory as soon as a container runs out."""

import contextlib
import logging
import os
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.core import (
    Answer,
    Clock,
    Decision,
    RealClock,
    TrimtabError,
    format_bytes,
    format_duration,
)
from trimtab.kernel import (
    BackgroundWriter,
    DeadManSwitch,
    Hierarchy,
    LimitJournal,
    ReleaseHelper,
    journal_folder,
    mounted,
    restore_orphans,
)
from trimtab.resize.allocation import Indices, MemorySettings
from trimtab.resize.controller import Controller, SlotLimits
from trimtab.resize.discovery import Discovery
from trimtab.resize.member import GLANCES, PERIOD, ManagedContainer
from trimtab.resize.node import NodeMembers
from trimtab.resize.policies.policy import CpuPolicy
from trimtab.resize.pool import Container, Pool

_ROOM = 2.0**20  # bytes above its use, for a container that uses more than its first share
Find = Callable[[], Sequence[Container]]
Finder = Callable[[Hierarchy, Sequence[Pool]], AbstractContextManager[Find]]
_SWITCHES = 2  # dead-man switches
TRAP_LOOK = 0.2  # s within which the memory thread notices that it should end

log = logging.getLogger(__name__)
_RULE = "rule:grant from the pool"


def restore_former_limits() -> None:
    """Restore limits that an agent changed before it was killed together with its dead-man switches."""
    restored = restore_orphans(journal_folder())
    if restored.paths:
        log.warning("an agent was killed; %d groups have their former limits again", len(restored.paths))
    for path, reason in restored.failures.items():
        log.warning("former limits are not restored: %s: %s", path, reason)


class ManagedNode:
    """Samples, sets limits and confirms them to the controller; `close` restores safe limits."""

    def __init__(
        self,
        controller: Controller,
        hierarchy: Hierarchy | None,
        finder: Finder | None,
        clock: Clock,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        """`finder` finds the pools' containers; by default from control groups and runtimes' files."""
        hierarchy = hierarchy or mounted()
        if hierarchy is None:
            raise TrimtabError("no control groups are mounted on this machine; no container can be sized")
        self.controller = controller
        self.lock = lock or threading.RLock()
        self._hierarchy = hierarchy
        self._clock = clock
        restore_former_limits()  # before they are taken for the containers' own
        self._journal = LimitJournal(journal_folder(), hierarchy)
        self._closing = contextlib.ExitStack()
        find = self._closing.enter_context((finder or Discovery)(hierarchy, controller.pools))
        self.node = NodeMembers(controller, hierarchy, find, self._journal.write)
        self._switches: list[DeadManSwitch] = []
        self._helper: ReleaseHelper | None = None
        self._unheld = np.empty(0, np.intp)  # slots of containers that grew too fast to get a limit yet
        self._looked = clock.monotonic()
        self._ended = threading.Event()
        self._glances = threading.Thread(target=self._glance, name="glances", daemon=True)

    def watch(self) -> None:
        """Start the dead-man switches, and a thread that looks several times per period for containers that
        are about to be throttled."""
        self._helper = ReleaseHelper.create(self._journal.path)
        if self._helper is None:
            log.info("the kernel restores no limits if the agent and both its switches are killed together")
        self._start_switches()
        self._glances.start()

    def look(self) -> tuple[float, list[ManagedContainer]]:
        """Sample all containers; returns seconds since the last call, and new containers."""
        now = self._clock.monotonic()
        seconds, self._looked = max(now - self._looked, 1e-3), now
        self._beat()
        self._hold(self._unheld)
        self.node.sample(seconds)
        return seconds, self.node.rescan()

    def set_cpus(self, limits: SlotLimits) -> SlotLimits:
        """Set CPU limits; returns those in force."""
        done = self.node.set_cpus(limits)
        self.controller.confirm(done)
        return done

    def set_memory(self, limits: SlotLimits) -> SlotLimits:
        """Set memory limits; returns those in force."""
        done = self.node.set_memory(limits)
        self.controller.confirm_memory(done)
        return done

    def set_first_memory(self, limits: SlotLimits) -> None:
        """Set first limits of new containers; one that uses more is limited to its use."""
        done = self.set_memory(limits)
        self._hold(np.setdiff1d(limits.slots, done.slots))

    def of(self, slot: int, column: str) -> float:
        """One container's value in a column of the controller."""
        return float(self.controller.column(column)[np.searchsorted(self.controller.slots, slot)])

    def close(self) -> None:
        """Restore safe limits and the OOM killer."""
        self._ended.set()
        if self._glances.is_alive():
            self._glances.join()
        with self.lock:
            self.node.release()
            self._journal.remove()
            self._closing.close()
        if self._helper is not None:
            self._helper.close()
            self._helper = None
        for switch in self._switches:
            switch.end()

    def _hold(self, slots: Indices) -> None:
        """Limit these to their use now; one that has grown meanwhile is tried again at the next look."""
        present = np.intersect1d(slots, self.controller.slots)
        if len(present):
            self.node.sample_memory()
            used = np.array([self.of(int(slot), "memory_used") for slot in present]) + _ROOM
            self.controller.confirm_memory(SlotLimits(present, used))
            present = np.setdiff1d(present, self.set_memory(SlotLimits(present, used)).slots)
        self._unheld = present

    def _glance(self) -> None:
        while not self._ended.wait(PERIOD / GLANCES):
            with self.lock:
                self.node.glance(self._clock.monotonic())

    @property
    def processes(self) -> dict[str, list[int]]:
        """Process ids of the agent and of its dead-man switches."""
        return {"agent": [os.getpid()], "switches": [switch.pid for switch in self._switches]}

    def _start_switches(self) -> None:
        while len(self._switches) < _SWITCHES:
            switch = DeadManSwitch(self._journal.path)
            self._switches.append(switch)
            if self._helper is not None:
                self._helper.add(switch.pid)

    def _beat(self) -> None:
        """Send heartbeats, and start switches again that have ended. If limits were restored, set them again.

        If all switches have ended, the kernel's helper may have restored limits in the meantime.
        """
        if not self._switches:
            return
        were_restored = [not switch.beat() for switch in self._switches]
        alive = [switch for switch in self._switches if switch.alive]
        if len(alive) < len(self._switches):
            log.warning("a dead-man switch has ended; another is started")
            is_unguarded, self._switches = not alive, alive
            self._start_switches()
            were_restored.append(is_unguarded)
        if any(were_restored):
            log.warning(
                "safe limits were restored while this agent was unguarded or silent; it sets them again"
            )
            self.node.set_again()


@dataclass(frozen=True, slots=True)
class Grant:
    """A grant to a container that ran out of memory; `after` equals `before` if nothing was left."""

    path: str
    pool: str
    before: float  # bytes
    after: float  # bytes
    seconds: float  # from noticing to the new limit


Notice = Callable[[Grant], None]


class NodeAgent:
    """Manages pools on one node, without a remote controller."""

    def __init__(
        self,
        pools: Sequence[Pool],
        hierarchy: Hierarchy | None = None,
        find: Find | None = None,
        memory: MemorySettings | None = None,
        notice: Notice = lambda grant: None,
        clock: Clock | None = None,
        policies: Mapping[str, CpuPolicy] | None = None,
    ) -> None:
        self.controller = Controller(pools, memory, policies)
        self._clock = clock or RealClock()
        finder = None if find is None else lambda hierarchy, pools: contextlib.nullcontext(find)
        self._managed = ManagedNode(self.controller, hierarchy, finder, self._clock)
        self._node = self._managed.node
        self._notice = notice
        self.lock = self._managed.lock
        self._ended = threading.Event()
        self._reclaimed = self._clock.monotonic()
        self.late = 0  # periods that began after the next one was due

    @property
    def members(self) -> list[ManagedContainer]:
        """Containers under management now."""
        with self.lock:
            return list(self._node.members.values())

    @property
    def unmanaged(self) -> dict[str, str]:
        """Reasons why groups cannot be managed, by path."""
        with self.lock:
            return self._node.unmanaged

    @property
    def processes(self) -> dict[str, list[int]]:
        """Process ids of the agent and of its dead-man switches."""
        return self._managed.processes

    def run(self, seconds: float | None = None) -> None:
        """Work until `stop`, or for so many seconds; then restore safe limits."""
        periods = None if seconds is None else max(1, round(seconds / PERIOD))
        self._managed.watch()
        thread = threading.Thread(target=self._serve_memory, name="memory", daemon=True)
        thread.start()
        try:
            due = self._clock.monotonic()
            while not self._ended.is_set() and periods != 0:
                self.step()
                periods = None if periods is None else periods - 1
                due += PERIOD
                left = due - self._clock.monotonic()
                if left < 0:
                    self.late += int(-left / PERIOD) + 1
                    due = self._clock.monotonic()
                else:
                    self._clock.sleep(left)
        finally:
            self._ended.set()
            thread.join()
            self.close()

    def stop(self) -> None:
        """End `run` at the next period."""
        self._ended.set()

    def close(self) -> None:
        """Restore safe limits and the OOM killer."""
        self._managed.close()

    def step(self) -> None:
        """One period."""
        with self.lock:
            seconds, new = self._managed.look()
            slots = [member.slot for member in new if self.controller.traps(member.pool)]
            if slots:
                self._managed.set_first_memory(self.controller.first_memory(np.array(slots)))
            self.controller.decide(seconds)
            self._managed.set_cpus(self.controller.takes())
            self._managed.set_cpus(self.controller.gives())
            now = self._clock.monotonic()
            if now - self._reclaimed >= self.controller.settings.every:
                self._reclaimed = now
                self._node.sample_memory()
                self._managed.set_memory(self.controller.memory_takes())

    def _serve_memory(self) -> None:
        """Grant memory to trapped containers. If this fails they would sleep for ever, so the agent ends."""
        try:
            while not self._ended.is_set():
                for member in self._node.trapped(TRAP_LOOK):
                    with self.lock:
                        if member.container.cgroup in self._node.members:
                            self._grant(member)
        except Exception:
            log.exception("memory can no longer be granted; the agent ends and restores safe limits")
            self._ended.set()

    def _grant(self, member: ManagedContainer) -> None:
        """Grant memory from the pool, or from others' unused memory; if there is none, the kernel kills."""
        start = self._clock.monotonic()
        slots = np.array([member.slot])
        before = self._managed.of(member.slot, "memory")
        limits, missing = self.controller.grants(slots)
        if missing.any():
            self._node.sample_memory()
            self._managed.set_memory(self.controller.urgent_memory_takes(missing))
            limits, _ = self.controller.grants(slots)
        more = limits.values[0] > before and len(self._managed.set_memory(limits))
        if more:
            member.traps += 1
        else:
            member.refusals += 1
            self._node.let_kill(member)
        after = float(limits.values[0]) if more else before
        pool = self.controller.pools[member.pool].name
        self._notice(Grant(member.container.cgroup, pool, before, after, self._clock.monotonic() - start))


class GrantJournal(BackgroundWriter[Decision]):
    """Pass it to an agent as `notice`; all grants are recorded when the context ends."""

    def __init__(self, record: Callable[[Decision], None], clock: Clock | None = None) -> None:
        super().__init__(record, "a grant is not in the ledger")
        self._clock = clock or RealClock()

    def __call__(self, grant: Grant) -> None:
        self.put(decision(grant, self._clock.now()))


def decision(grant: Grant, now: float) -> Decision:
    """The decision for the ledger about a container that ran out of memory."""
    killed = grant.after <= grant.before
    done = "none was left, so the kernel killed" if killed else f"{format_bytes(grant.after)} since then"
    answer = Answer(_RULE, {"memory_bytes": round(grant.after), "killed": killed})
    return Decision(
        id=uuid.uuid4().hex[:12],
        created=now,
        kind="resize",
        subject=grant.path,
        action=answer.action,
        estimates={},
        chosen_by=_RULE,
        rule=answer,
        model=None,
        alternatives=(),
        reason=f"ran out of {format_bytes(grant.before)} in the pool {grant.pool}: {done}, "
        f"after {format_duration(grant.seconds)}",
    )
