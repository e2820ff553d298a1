"""Neighbours that never rest: the other containers of a full host."""

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from trimtab.kernel import LimitedGroup, die_with_parent


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
    with LimitedGroup.create() as group:
        pids = list[int]()
        try:
            for cpu in cpus:
                pid = os.fork()
                if pid == 0:
                    _spin(cpu)
                pids.append(pid)
                group.add(pid)
                os.waitpid(pid, os.WUNTRACED)  # until it has stopped itself
            yield Neighbours(group, tuple(pids))
        finally:
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)


def _spin(cpu: int) -> NoReturn:
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        die_with_parent(signal.SIGKILL)
        os.sched_setaffinity(0, {cpu})
        os.kill(os.getpid(), signal.SIGSTOP)
        while True:
            sum(range(10_000))
    finally:
        os._exit(1)
