"""Memory traps: a container that runs out of memory pauses until it gets more, instead of being killed.

Version 1 can switch a group's OOM killer off (`memory.oom_control`): a process that needs memory then sleeps,
and an eventfd is notified. Raising the limit wakes it. Version 2 has no such switch; there `memory.high`, a
little below the limit, slows a group down until it all but pauses, and `memory.events.local` changes.

A program that switches the killer off must switch it on again: with nothing to raise its limit, a trapped
container sleeps for ever. `close` does so, and so should a second process that outlives this one.
"""

import contextlib
import os
import select

from trimtab.core import TrimtabError
from trimtab.kernel.cgroup import V1, V2
from trimtab.kernel.closing import Closing
from trimtab.kernel.container import ContainerGroup

_GAP = 0.03  # of a limit, in version 2: between `memory.high` and the limit
_LEAST_GAP = 2**20  # bytes


class MemoryTraps(Closing):
    """The containers that pause instead of being killed. Call `wait` in its own thread."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._by_file: dict[int, ContainerGroup] = {}
        self._files: dict[int, tuple[int, ...]] = {}  # by the container's identity; the first one is polled

    def add(self, container: ContainerGroup) -> None:
        """From now on the container pauses when it runs out of memory."""
        if container.version == 2:
            file = self._opened(container, V2.memory_events_local)
            self._watch(container, (file,), select.EPOLLPRI)
        else:
            event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            try:
                control = self._opened(container, V1.oom_control)
            except TrimtabError:
                os.close(event)
                raise
            self._watch(container, (event, control), select.EPOLLIN)
        try:
            if container.version == 2:
                _read_events(file)  # a file that was never read counts as changed
            else:
                container.write_text(V1.event_control, f"{event} {control}")
            self._set(container)
        except TrimtabError:
            self._forget(container)
            raise

    def set_again(self, container: ContainerGroup) -> None:
        """Set the trap again, after another process may have called `untrap`; the killer is not on meanwhile,
        which would kill a container that is paused."""
        if id(container) in self._files:
            self._set(container)

    def remove(self, container: ContainerGroup) -> None:
        """Switch the killer on again. A container that is paused is killed: raise its limit first."""
        if id(container) in self._files:
            self._forget(container)
            with contextlib.suppress(TrimtabError):  # it may have ended
                untrap(container)

    def wait(self, seconds: float) -> list[ContainerGroup]:
        """Containers that ran out of memory since the last call; waits for the first, at most so long."""
        trapped = []
        for file, _ in self._poll.poll(seconds):
            container = self._by_file.get(file)
            if container is None:
                continue
            if container.version == 2:
                _read_events(file)
                if not _is_near_limit(container):
                    continue
            else:
                with contextlib.suppress(OSError):
                    os.read(file, 8)
            trapped.append(container)
        return trapped

    def close(self) -> None:
        """Switch the killer on again everywhere."""
        for container in list(self._by_file.values()):
            self.remove(container)
        self._poll.close()

    def _set(self, container: ContainerGroup) -> None:
        if container.version == 2:
            limit_high(container, container.memory_limit())
        else:
            container.write_text(V1.oom_control, "1")

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
    """Let the kernel kill again when memory runs out."""
    if container.version == 2:
        container.write_text(V2.memory_high, "max")
    else:
        container.write_text(V1.oom_control, "0")


def least_limit(slowed: float) -> float:
    """In version 2, the limit of a trapped container whose `memory.high` is so many bytes."""
    return max(slowed + _LEAST_GAP, slowed / (1 - _GAP))


def limit_high(container: ContainerGroup, limit: float | None) -> None:
    """In version 2, set `memory.high` of a trapped container with that limit."""
    text = "max" if limit is None else str(max(0, int(limit - _gap(limit))))
    container.write_text(V2.memory_high, text)


def _gap(limit: float) -> float:
    return max(_LEAST_GAP, _GAP * limit)


def _is_near_limit(container: ContainerGroup) -> bool:
    """Whether it is still short of memory: an event may come late, when its limit is higher already."""
    try:
        limit = container.memory_limit()
        return limit is not None and container.memory() > limit - 2 * _gap(limit)
    except TrimtabError:
        return False  # it has ended


def _read_events(file: int) -> None:
    with contextlib.suppress(OSError):  # the group may have ended
        os.pread(file, 512, 0)
