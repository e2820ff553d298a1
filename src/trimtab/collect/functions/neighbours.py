"""Neighbours that never rest: the other containers of a full host."""

import contextlib
import functools
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass

from trimtab.collect.functions.child import child
from trimtab.kernel import LimitedGroup


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Processes in a group of their own, stopped until they are woken."""

    group: LimitedGroup
    pids: tuple[int, ...]

    def wake(self) -> None:
        """Keep the CPUs busy from now on."""
        self._signal(signal.SIGCONT)

    def rest(self) -> None:
        """Use nothing from now on."""
        self._signal(signal.SIGSTOP)

    def _signal(self, number: int) -> None:
        for pid in self.pids:
            os.kill(pid, number)


@contextlib.contextmanager
def neighbours_on(cpus: tuple[int, ...]) -> Iterator[Neighbours]:
    """One neighbour for each of the CPUs; they end with the context, or with this process."""
    with LimitedGroup.create() as group, contextlib.ExitStack() as stack:
        pids = [stack.enter_context(child(functools.partial(_spin, cpu))) for cpu in cpus]
        for pid in pids:
            group.add(pid)
            os.waitpid(pid, os.WUNTRACED)  # until it has stopped itself
        yield Neighbours(group, tuple(pids))


def _spin(cpu: int) -> None:
    os.sched_setaffinity(0, {cpu})
    os.kill(os.getpid(), signal.SIGSTOP)
    while True:
        sum(range(10_000))
