"""The agent of one node: every 100 ms sample, decide, take, give; memory as soon as a container runs out."""

import contextlib
import logging
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from trimtab.core import Answer, Clock, Decision, RealClock, TrimtabError, format_bytes, format_duration
from trimtab.kernel import BackgroundWriter, DeadManSwitch, Hierarchy, SafeLimits, mounted
from trimtab.resize.allocation import Indices, MemorySettings
from trimtab.resize.controller import Controller, SlotLimits
from trimtab.resize.discovery import Discovery
from trimtab.resize.member import GLANCES, PERIOD, ManagedContainer
from trimtab.resize.node import NodeMembers
from trimtab.resize.policies import CpuPolicy
from trimtab.resize.pool import Container, Pool

_ROOM = 2.0**20  # bytes above its use, for a container that uses more than its first share


Find = Callable[[], Sequence[Container]]
Finder = Callable[[Hierarchy, Sequence[Pool]], AbstractContextManager[Find]]
TRAP_LOOK = 0.2  # s in which the thread for memory notices that it should end

log = logging.getLogger(__name__)
_RULE = "rule:grant from the pool"


class ManagedNode:
    """Looks, sets limits and tells the controller what is in force; `close` puts everything back."""

    def __init__(
        self,
        controller: Controller,
        hierarchy: Hierarchy | None,
        finder: Finder | None,
        clock: Clock,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        """`finder` finds the pools' containers; by default by control groups and what runtimes keep."""
        found = hierarchy or mounted()
        if found is None:
            raise TrimtabError("no control groups are mounted on this machine; nothing can be sized")
        self.controller = controller
        self.lock = lock or threading.RLock()
        self._hierarchy = found
        self._clock = clock
        self._closing = contextlib.ExitStack()
        find = self._closing.enter_context((finder or Discovery)(found, controller.pools))
        self.node = NodeMembers(controller, found, find)
        self._switch: DeadManSwitch | None = None
        self._guarded: dict[str, SafeLimits] = {}
        self._unheld = np.empty(0, np.intp)  # slots of those who grew too fast to be given a limit yet
        self._looked = clock.monotonic()
        self._ended = threading.Event()
        self._glances = threading.Thread(target=self._glance, name="glances", daemon=True)

    def watch(self) -> None:
        """From now on a second process sets everyone free when this one dies or hangs; and a thread looks
        several times in every period who is about to be held back."""
        self._switch = DeadManSwitch(self._hierarchy)
        self._glances.start()

    def look(self) -> tuple[float, list[ManagedContainer]]:
        """Sample all containers for the controller; seconds since the last call, and new containers."""
        now = self._clock.monotonic()
        seconds, self._looked = max(now - self._looked, 1e-3), now
        self._beat()
        self._hold(self._unheld)
        self.node.sample(seconds)
        new = self.node.rescan()
        self._guard()  # before anything is set
        return seconds, new

    def set_cpus(self, limits: SlotLimits) -> SlotLimits:
        """Set limits of CPU; those that are in force."""
        done = self.node.set_cpus(limits)
        self.controller.confirm(done)
        return done

    def set_memory(self, limits: SlotLimits) -> SlotLimits:
        """Set limits of memory; those that are in force."""
        done = self.node.set_memory(limits)
        self.controller.confirm_memory(done)
        return done

    def set_first_memory(self, limits: SlotLimits) -> None:
        """First limits of new containers; one that uses more is limited to what it uses."""
        done = self.set_memory(limits)
        self._hold(np.setdiff1d(limits.slots, done.slots))

    def of(self, slot: int, column: str) -> float:
        """One container's value in a column of the controller."""
        return float(self.controller.column(column)[np.searchsorted(self.controller.slots, slot)])

    def close(self) -> None:
        """Put safe limits and the killer back."""
        self._ended.set()
        if self._glances.is_alive():
            self._glances.join()
        with self.lock:
            self.node.release()
            self._closing.close()
            if self._switch is not None:
                self._switch.end()

    def _hold(self, slots: Indices) -> None:
        """Limit these to what they use now; who has grown meanwhile is tried again at the next look."""
        there = np.intersect1d(slots, self.controller.slots)
        if len(there):
            self.node.sample_memory()
            used = np.array([self.of(int(slot), "memory_used") for slot in there]) + _ROOM
            self.controller.confirm_memory(SlotLimits(there, used))
            there = np.setdiff1d(there, self.set_memory(SlotLimits(there, used)).slots)
        self._unheld = there

    def _glance(self) -> None:
        while not self._ended.wait(PERIOD / GLANCES):
            with self.lock:
                self.node.glance(self._clock.monotonic())

    def _guard(self) -> None:
        """Tell the dead man's switch whom to care for, and whom no more."""
        if self._switch is None:
            return
        safe = self.node.safe
        for path in self._guarded.keys() - safe.keys():
            self._switch.gone(path)
        for path, limits in safe.items():
            if self._guarded.get(path) is not limits:
                self._switch.guard(limits)
        self._guarded = safe

    def _beat(self) -> None:
        """A sign of life. Who does not listen may have set everyone free: then all is set again."""
        if self._switch is None or self._switch.beat():
            return
        log.warning("limits have been put back while this agent was not heard of; they are set again")
        if not self._switch.alive:
            self._switch = DeadManSwitch(self._hierarchy)
            self._guarded.clear()
        self.node.set_again()


@dataclass(frozen=True, slots=True)
class Grant:
    """A container ran out of memory: what it has now; as before where there was nothing to give."""

    path: str
    pool: str
    before: float  # bytes
    after: float  # bytes
    seconds: float  # from noticing to the new limit


Notice = Callable[[Grant], None]


class NodeAgent:
    """Pools on one node, without a controller elsewhere."""

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
        self._controller = Controller(pools, memory, policies)
        self._clock = clock or RealClock()
        finder = None if find is None else lambda hierarchy, pools: contextlib.nullcontext(find)
        self._managed = ManagedNode(self._controller, hierarchy, finder, self._clock)
        self._node = self._managed.node
        self._notice = notice
        self.lock = self._managed.lock
        self._ended = threading.Event()
        self._reclaimed = self._clock.monotonic()
        self.late = 0  # periods that began when the one after should have

    @property
    def members(self) -> list[ManagedContainer]:
        """Containers under management now."""
        with self.lock:
            return list(self._node.members.values())

    @property
    def controller(self) -> Controller:
        """Their samples and limits."""
        return self._controller

    def run(self, seconds: float | None = None) -> None:
        """Work until `stop`, or for so many seconds; then leave everyone with safe limits."""
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
        """Put safe limits and the killer back."""
        self._managed.close()

    def step(self) -> None:
        """One period."""
        with self.lock:
            seconds, new = self._managed.look()
            self._take_in(new)
            self._controller.decide(seconds)
            self._managed.set_cpus(self._controller.takes())
            self._managed.set_cpus(self._controller.gives())
            now = self._clock.monotonic()
            if now - self._reclaimed >= self._controller.settings.every:
                self._reclaimed = now
                self._node.sample_memory()
                self._managed.set_memory(self._controller.memory_takes())

    def _take_in(self, members: Sequence[ManagedContainer]) -> None:
        """First limits of memory for new ones, where memory is ours."""
        slots = [member.slot for member in members if self._controller.traps(member.pool)]
        if slots:
            self._managed.set_first_memory(self._controller.first_memory(np.array(slots)))

    def _serve_memory(self) -> None:
        """Without it trapped containers would sleep for ever: if it fails, the agent ends and frees them."""
        try:
            while not self._ended.is_set():
                for member in self._node.trapped(TRAP_LOOK):
                    with self.lock:
                        if member.container.cgroup in self._node.members:
                            self._grant(member)
        except Exception:
            log.exception("memory can no longer be granted; the agent ends and leaves safe limits")
            self._ended.set()

    def _grant(self, member: ManagedContainer) -> None:
        """More memory from the pool; from others' unused memory if it has none; or the kernel's killer."""
        start = self._clock.monotonic()
        slots = np.array([member.slot])
        before = self._managed.of(member.slot, "memory")
        limits, missing = self._controller.grants(slots)
        if missing.any():
            self._node.sample_memory()
            self._managed.set_memory(self._controller.urgent_memory_takes(missing))
            limits, _ = self._controller.grants(slots)
        more = limits.values[0] > before and len(self._managed.set_memory(limits))
        if more:
            member.traps += 1
        else:
            member.refusals += 1
            self._node.let_kill(member)
        after = float(limits.values[0]) if more else before
        pool = self._controller.pools[member.pool].name
        self._notice(Grant(member.container.cgroup, pool, before, after, self._clock.monotonic() - start))


class GrantJournal:
    """Give it to an agent as `notice`; everything is recorded when the context ends."""

    def __init__(self, record: Callable[[Decision], None], clock: Clock | None = None) -> None:
        self._clock = clock or RealClock()
        self._writer = BackgroundWriter(record, "a grant is not in the ledger")

    def __call__(self, grant: Grant) -> None:
        """Remember a grant."""
        self._writer.put(decision(grant, self._clock.now()))

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._writer.__exit__(*raised)


def decision(grant: Grant, now: float) -> Decision:
    """A container ran out of memory: what was done about it."""
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
