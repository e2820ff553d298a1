"""A node's containers while somebody answers for them, and a dead man's switch for when nobody can."""

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from trimtab.core import Clock, TrimtabError
from trimtab.kernel import DeadManSwitch, Hierarchy, SafeLimits, mounted
from trimtab.resize.controller import Controller, Limits
from trimtab.resize.discovery import Discovery
from trimtab.resize.member import Member
from trimtab.resize.node import Node
from trimtab.resize.period import GLANCES, PERIOD
from trimtab.resize.pool import Container, Pool
from trimtab.resize.sharing import Indices

_ROOM = 2.0**20  # bytes above its use, for a container that uses more than its first share

log = logging.getLogger(__name__)

Find = Callable[[], Sequence[Container]]
Finder = Callable[[Hierarchy, Sequence[Pool]], AbstractContextManager[Find]]


class Keeper:
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
        self.node = Node(controller, found, find)
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

    def look(self) -> tuple[float, list[Member]]:
        """What happened in the seconds since the last look, for the controller; and who is new."""
        now = self._clock.monotonic()
        seconds, self._looked = max(now - self._looked, 1e-3), now
        self._beat()
        self._hold(self._unheld)
        self.node.sample(seconds)
        new = self.node.rescan()
        self._guard()  # before anything is set
        return seconds, new

    def set_cpus(self, limits: Limits) -> Limits:
        """Set limits of CPU; those that are in force."""
        done = self.node.set_cpus(limits)
        self.controller.confirm(done)
        return done

    def set_memory(self, limits: Limits) -> Limits:
        """Set limits of memory; those that are in force."""
        done = self.node.set_memory(limits)
        self.controller.confirm_memory(done)
        return done

    def set_first_memory(self, limits: Limits) -> None:
        """The same for new ones. Who uses more than that keeps what it uses, which then is what it has."""
        done = self.set_memory(limits)
        self._hold(np.setdiff1d(limits.slots, done.slots))

    def of(self, slot: int, column: str) -> float:
        """What the controller knows of one container."""
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
            self.controller.confirm_memory(Limits(there, used))
            there = np.setdiff1d(there, self.set_memory(Limits(there, used)).slots)
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
