"""Leader election: one of several processes leads, and another takes over when it ends."""

import contextlib
import hashlib
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Self

from trimtab.core import StorageError, home
from trimtab.kernel import LockHeldError, file_lock

if TYPE_CHECKING:
    from sqlalchemy import Connection


class LostLeadError(StorageError):
    """Leadership was lost before this write."""


class Leader(ABC):
    """A process that leads, or waits to. `lost` is set whenever it does not lead.

    `passes`: other processes may wait to take over; otherwise there is one leader on this machine only.
    """

    passes: ClassVar[bool]

    def __init__(self) -> None:
        self.lost = threading.Event()
        self.lost.set()

    @abstractmethod
    def wait(self, timeout: float) -> bool:
        """Lead as soon as no other process does; False if another led for `timeout` seconds."""

    @abstractmethod
    def holds(self) -> bool:
        """Whether it still leads; False before any other process can lead."""

    @abstractmethod
    def require(self, connection: "Connection") -> None:
        """Make a transaction fail unless leadership lasts to its end."""

    @abstractmethod
    def leave(self) -> None:
        """Give up leadership."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.leave()


class FileLeader(Leader):
    """Leadership of a store in a file: an advisory lock on another file, held as long as the process lives.

    The kernel releases the lock of a process that dies; a process that hangs keeps it.
    """

    passes = False

    def __init__(self, name: str, store: str) -> None:
        super().__init__()
        digest = hashlib.sha256(store.encode()).hexdigest()[:12]
        self._path = home() / f"{name}-{digest}.lock"
        self._held = contextlib.ExitStack()

    def wait(self, timeout: float) -> bool:
        if not self.holds():
            try:
                self._held.enter_context(file_lock(self._path, "another process leads", timeout))
            except LockHeldError:
                return False
            self.lost.clear()
        return True

    def holds(self) -> bool:
        return not self.lost.is_set()

    def require(self, connection: "Connection") -> None:
        """Nothing to check: no other process can take the lock from this one."""

    def leave(self) -> None:
        self.lost.set()
        self._held.close()
