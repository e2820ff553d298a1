"""Containers that stand still instead of being killed when they run out of memory, until they get more.

Version 1 can switch a group's killer off (`memory.oom_control`): who needs memory then sleeps, and an eventfd
tells. Raising the limit wakes it. Version 2 has no such switch; there `memory.high`, a little below the
limit, slows a group down so much that it all but stands still, and `memory.events.local` changes.

Whoever takes the killer away must give it back: without anyone to raise its limit, a trapped container sleeps
for ever. `close` does so, and so should a second process that outlives this one.
"""

import contextlib
import os
import select
from typing import Self

from trimtab.core import TrimtabError
from trimtab.kernel.container import ContainerGroup

_GAP = 0.03  # of a limit, in version 2: where the slowing down begins
_LEAST_GAP = 2**20  # bytes


class MemoryTraps:
    """The containers that are trapped instead of killed. `wait` in a thread of its own."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._by_file: dict[int, ContainerGroup] = {}
        self._files: dict[int, tuple[int, ...]] = {}  # by the container's identity; the first one is polled

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def add(self, container: ContainerGroup) -> None:
        """From now on the container stands still when it runs out."""
        if container.version == 2:
            file = self._opened(container, "memory.events.local")
            self._watch(container, (file,), select.EPOLLPRI)
            limit_high(container, container.memory_limit())
            return
        event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            control = self._opened(container, "memory.oom_control")
        except TrimtabError:
            os.close(event)
            raise
        self._watch(container, (event, control), select.EPOLLIN)
        try:
            container.write_text("cgroup.event_control", f"{event} {control}", "memory")
            container.write_text("memory.oom_control", "1")
        except TrimtabError:
            self._forget(container)
            raise

    def remove(self, container: ContainerGroup) -> None:
        """Killed again as usual when it runs out. Who stands still now dies: raise its limit first."""
        if id(container) in self._files:
            self._forget(container)
            with contextlib.suppress(TrimtabError):  # it may be gone
                untrap(container)

    def wait(self, seconds: float) -> list[ContainerGroup]:
        """Containers that have run out since the last call; waits for the first, at most so long."""
        found = []
        for file, _ in self._poll.poll(seconds):
            container = self._by_file.get(file)
            if container is None:
                continue
            with contextlib.suppress(OSError):
                os.read(file, 8) if container.version == 1 else os.pread(file, 512, 0)
            found.append(container)
        return found

    def close(self) -> None:
        """Give the killer back everywhere."""
        for container in list(self._by_file.values()):
            self.remove(container)
        self._poll.close()

    def _opened(self, container: ContainerGroup, name: str) -> int:
        try:
            return os.open(container.file(name), os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise container.said(error, "watched for memory") from None

    def _watch(self, container: ContainerGroup, files: tuple[int, ...], events: int) -> None:
        self._files[id(container)] = files
        self._by_file[files[0]] = container
        self._poll.register(files[0], events)

    def _forget(self, container: ContainerGroup) -> None:
        files = self._files.pop(id(container), ())
        for file in files:
            if self._by_file.pop(file, None) is not None:
                self._poll.unregister(file)
            os.close(file)


def untrap(container: ContainerGroup) -> None:
    """The kernel's own way when memory runs out."""
    if container.version == 2:
        container.write_text("memory.high", "max")
    else:
        container.write_text("memory.oom_control", "0")


def limit_high(container: ContainerGroup, limit: float | None) -> None:
    """In version 2, where a trapped container with that limit is slowed down."""
    gap = 0.0 if limit is None else max(_LEAST_GAP, _GAP * limit)
    container.write_text("memory.high", "max" if limit is None else str(max(0, int(limit - gap))))
