"""The agent of one node on its own: every 100 ms look, decide, take, give; at once when memory runs out."""

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.core import Clock, RealClock, TrimtabError
from trimtab.kernel import DeadManSwitch, Hierarchy, SafeLimits, mounted
from trimtab.resize.controller import Controller, Limits
from trimtab.resize.discovery import Discovery
from trimtab.resize.memory import MemorySettings
from trimtab.resize.node import Member, Node
from trimtab.resize.policies import CpuPolicy
from trimtab.resize.pool import Container, Pool

PERIOD = 0.1  # s
_TRAP_LOOK = 0.2  # s in which the thread for memory notices that it should end

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Grant:
    """A container ran out of memory: what it has now; as before where there was nothing to give."""

    path: str
    pool: str
    before: float  # bytes
    after: float  # bytes
    seconds: float  # from noticing to the new limit


Notice = Callable[[Grant], None]


class Agent:
    """Pools on one node, without a controller elsewhere."""

    def __init__(
        self,
        pools: Sequence[Pool],
        hierarchy: Hierarchy | None = None,
        find: Callable[[], Sequence[Container]] | None = None,
        memory: MemorySettings | None = None,
        notice: Notice = lambda grant: None,
        clock: Clock | None = None,
        policies: Mapping[str, CpuPolicy] | None = None,
    ) -> None:
        found = hierarchy or mounted()
        if found is None:
            raise TrimtabError("no control groups are mounted on this machine; nothing can be sized")
        self._hierarchy = found
        self._pools = tuple(pools)
        self._controller = Controller(pools, memory, policies)
        self._closing = contextlib.ExitStack()
        find = find or self._closing.enter_context(Discovery(found, self._pools))
        self._node = Node(self._controller, found, find)
        self._notice = notice
        self._clock = clock or RealClock()
        self.lock = threading.RLock()
        self._ended = threading.Event()
        self._switch: DeadManSwitch | None = None
        self._guarded = set[str]()
        self._looked = self._clock.monotonic()
        self._reclaimed = self._looked
        self.late = 0  # periods that began when the one after should have

    @property
    def members(self) -> list[Member]:
        """Who is managed now."""
        with self.lock:
            return list(self._node.members.values())

    @property
    def controller(self) -> Controller:
        """What is known and decided of them."""
        return self._controller

    def run(self, periods: int | None = None) -> None:
        """Work until `stop`, or for so many periods; then leave everyone with safe limits."""
        self._switch = DeadManSwitch(self._hierarchy)
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
        with self.lock:
            self._node.release()
            self._closing.close()
            if self._switch is not None:
                self._switch.end()

    def step(self) -> None:
        """One period."""
        with self.lock:
            now = self._clock.monotonic()
            seconds, self._looked = max(now - self._looked, 1e-3), now
            self._beat()
            self._node.sample(seconds)
            new = self._node.rescan()
            self._guard()  # before anything is set
            self._take_in(new)
            self._controller.decide(seconds)
            self._controller.confirm(self._node.set_cpus(self._controller.takes()))
            self._controller.confirm(self._node.set_cpus(self._controller.gives()))
            if now - self._reclaimed >= self._controller.settings.every:
                self._reclaimed = now
                self._node.sample_memory()
                self._set_memory(self._controller.memory_takes())

    def _take_in(self, members: Sequence[Member]) -> None:
        """First limits of memory for new ones, where memory is ours."""
        members = [member for member in members if self._controller.traps(member.pool)]
        if not members:
            return
        slots = np.array([member.slot for member in members])
        wished = self._controller.first_memory(slots)
        done = self._set_memory(wished)
        for member in members:
            if member.slot not in done.slots:  # it uses more than that: what it uses is what it has
                used = max(1.0, float(self._controller.column("memory_used")[self._at(member.slot)]))
                self._controller.confirm_memory(Limits(np.array([member.slot]), np.array([used])))

    def _guard(self) -> None:
        """Tell the dead man's switch whom to care for, and whom no more."""
        if self._switch is None:
            return
        members = self._node.members
        for path in self._guarded - members.keys():
            self._switch.gone(path)
        for path in members.keys() - self._guarded:
            self._switch.guard(SafeLimits(path, members[path].safe_cpus, members[path].safe_memory))
        self._guarded = set(members)

    def _beat(self) -> None:
        """A sign of life. Who does not listen may have set everyone free: then all is set again."""
        if self._switch is None or self._switch.beat():
            return
        log.warning("limits have been put back while this agent was not heard of; they are set again")
        if not self._switch.alive:
            self._switch = DeadManSwitch(self._hierarchy)
            self._guarded.clear()
        self._node.set_again()

    def _serve_memory(self) -> None:
        """Without it trapped containers would sleep for ever: if it fails, the agent ends and frees them."""
        try:
            while not self._ended.is_set():
                for member in self._node.trapped(_TRAP_LOOK):
                    with self.lock:
                        if member.container.cgroup in self._node.members:
                            self._grant(member)
        except Exception:
            log.exception("memory can no longer be granted; the agent ends and leaves safe limits")
            self._ended.set()

    def _grant(self, member: Member) -> None:
        """More memory from the pool; from others' unused memory if it has none; or the kernel's killer."""
        start = self._clock.monotonic()
        slots = np.array([member.slot])
        before = float(self._controller.column("memory")[self._at(member.slot)])
        limits, missing = self._controller.grants(slots)
        if missing.any():
            self._node.sample_memory()
            self._set_memory(self._controller.urgent_memory_takes(missing))
            limits, _ = self._controller.grants(slots)
        more = limits.values[0] > before and len(self._set_memory(limits))
        if more:
            member.traps += 1
        else:
            member.refusals += 1
            self._node.let_kill(member)
        after = float(limits.values[0]) if more else before
        pool = self._pools[member.pool].name
        self._notice(Grant(member.container.cgroup, pool, before, after, self._clock.monotonic() - start))

    def _set_memory(self, limits: Limits) -> Limits:
        done = self._node.set_memory(limits)
        self._controller.confirm_memory(done)
        return done

    def _at(self, slot: int) -> int:
        return int(np.searchsorted(self._controller.slots, slot))
