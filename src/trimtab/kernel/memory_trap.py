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
from trimtab.kernel.cgroup import V1, V2
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
            self._add_v2(container)
            return
        event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        try:
            control = self._opened(container, V1.oom_control)
        except TrimtabError:
            os.close(event)
            raise
        self._watch(container, (event, control), select.EPOLLIN)
        try:
            container.write_text(V1.event_control, f"{event} {control}")
            container.write_text(V1.oom_control, "1")
        except TrimtabError:
            self._forget(container)
            raise

    def _add_v2(self, container: ContainerGroup) -> None:
        """A file that was never read counts as changed, so it is read once: only what happens now tells."""
        file = self._opened(container, V2.memory_events_local)
        self._watch(container, (file,), select.EPOLLPRI)
        try:
            _read_events(file)
            limit_high(container, container.memory_limit())
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
            if container.version == 2:
                _read_events(file)
                if not _is_short(container):
                    continue
            else:
                with contextlib.suppress(OSError):
                    os.read(file, 8)
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
            raise container.as_error(error, "watched for memory") from None

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
        container.write_text(V2.memory_high, "max")
    else:
        container.write_text(V1.oom_control, "0")


def least_limit(slowed: float) -> float:
    """In version 2, the limit of a trapped container that is slowed down from so many bytes on."""
    return max(slowed + _LEAST_GAP, slowed / (1 - _GAP))


def limit_high(container: ContainerGroup, limit: float | None) -> None:
    """In version 2, where a trapped container with that limit is slowed down."""
    text = "max" if limit is None else str(max(0, int(limit - _gap(limit))))
    container.write_text(V2.memory_high, text)


def _gap(limit: float) -> float:
    return max(_LEAST_GAP, _GAP * limit)


def _is_short(container: ContainerGroup) -> bool:
    """Whether it still is about to be slowed down: the kernel may tell late, when it has more already."""
    try:
        limit = container.memory_limit()
        return limit is not None and container.memory() > limit - 2 * _gap(limit)
    except TrimtabError:
        return False  # it is gone


def _read_events(file: int) -> None:
    with contextlib.suppress(OSError):  # the group may be gone
        os.pread(file, 512, 0)
