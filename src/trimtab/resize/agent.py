"""The agent of one node on its own: every 100 ms look, decide, take, give; at once when memory runs out."""

import contextlib
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.core import Clock, RealClock
from trimtab.kernel import Hierarchy
from trimtab.resize.controller import Controller
from trimtab.resize.keeper import Find, Keeper
from trimtab.resize.member import Member
from trimtab.resize.memory import MemorySettings
from trimtab.resize.period import PERIOD
from trimtab.resize.policies import CpuPolicy
from trimtab.resize.pool import Pool

TRAP_LOOK = 0.2  # s in which the thread for memory notices that it should end

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
        find: Find | None = None,
        memory: MemorySettings | None = None,
        notice: Notice = lambda grant: None,
        clock: Clock | None = None,
        policies: Mapping[str, CpuPolicy] | None = None,
    ) -> None:
        self._controller = Controller(pools, memory, policies)
        self._clock = clock or RealClock()
        finder = None if find is None else lambda hierarchy, pools: contextlib.nullcontext(find)
        self._keeper = Keeper(self._controller, hierarchy, finder, self._clock)
        self._node = self._keeper.node
        self._notice = notice
        self.lock = self._keeper.lock
        self._ended = threading.Event()
        self._reclaimed = self._clock.monotonic()
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

    def run(self, seconds: float | None = None) -> None:
        """Work until `stop`, or for so many seconds; then leave everyone with safe limits."""
        periods = None if seconds is None else max(1, round(seconds / PERIOD))
        self._keeper.watch()
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
        self._keeper.close()

    def step(self) -> None:
        """One period."""
        with self.lock:
            seconds, new = self._keeper.look()
            self._take_in(new)
            self._controller.decide(seconds)
            self._keeper.set_cpus(self._controller.takes())
            self._keeper.set_cpus(self._controller.gives())
            now = self._clock.monotonic()
            if now - self._reclaimed >= self._controller.settings.every:
                self._reclaimed = now
                self._node.sample_memory()
                self._keeper.set_memory(self._controller.memory_takes())

    def _take_in(self, members: Sequence[Member]) -> None:
        """First limits of memory for new ones, where memory is ours."""
        slots = [member.slot for member in members if self._controller.traps(member.pool)]
        if slots:
            self._keeper.set_first_memory(self._controller.first_memory(np.array(slots)))

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

    def _grant(self, member: Member) -> None:
        """More memory from the pool; from others' unused memory if it has none; or the kernel's killer."""
        start = self._clock.monotonic()
        slots = np.array([member.slot])
        before = self._keeper.of(member.slot, "memory")
        limits, missing = self._controller.grants(slots)
        if missing.any():
            self._node.sample_memory()
            self._keeper.set_memory(self._controller.urgent_memory_takes(missing))
            limits, _ = self._controller.grants(slots)
        more = limits.values[0] > before and len(self._keeper.set_memory(limits))
        if more:
            member.traps += 1
        else:
            member.refusals += 1
            self._node.let_kill(member)
        after = float(limits.values[0]) if more else before
        pool = self._controller.pools[member.pool].name
        self._notice(Grant(member.container.cgroup, pool, before, after, self._clock.monotonic() - start))
