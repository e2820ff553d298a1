"""Leader election: one of several processes does the work, and another takes over when it is gone."""

import contextlib
import hashlib
import threading
from typing import TYPE_CHECKING, Protocol, Self

from trimtab.core import StorageError, home
from trimtab.kernel import LockHeldError, file_lock

if TYPE_CHECKING:
    from sqlalchemy import Connection


class LostLeadError(StorageError):
    """Leadership was lost before this write."""


class Leader(Protocol):
    """A process that leads, or waits to. `lost` is set whenever it does not lead."""

    lost: threading.Event

    @property
    def passes(self) -> bool:
        """Whether other processes may wait to take over; otherwise there is one on this machine only."""

    def wait(self, timeout: float) -> bool:
        """Lead as soon as no other process does; False if another led for `timeout` seconds."""

    def holds(self) -> bool:
        """Whether it still leads; False before any other process can lead."""

    def require(self, connection: "Connection") -> None:
        """Make a transaction fail unless leadership lasts to its end."""

    def leave(self) -> None:
        """Give up leadership."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *raised: object) -> None: ...


class FileLeader:
    """Leadership of a store in a file: an advisory lock on another file, held as long as the process lives.

    The kernel releases the lock of a process that dies; a process that hangs keeps it.
    """

    passes = False

    def __init__(self, name: str, store: str) -> None:
        digest = hashlib.sha256(store.encode()).hexdigest()[:12]
        self._path = home() / f"{name}-{digest}.lock"
        self._held = contextlib.ExitStack()
        self.lost = threading.Event()
        self.lost.set()

    def wait(self, timeout: float) -> bool:
        """Acquire the lock as soon as it is free; False if another process held it for `timeout` seconds."""
        if not self.holds():
            try:
                self._held.enter_context(file_lock(self._path, "another process leads", timeout))
            except LockHeldError:
                return False
            self.lost.clear()
        return True

    def holds(self) -> bool:
        """Whether the lock has not been released."""
        return not self.lost.is_set()

    def require(self, connection: "Connection") -> None:
        """Nothing to check: no other process can take the lock from this one."""

    def leave(self) -> None:
        """Release the lock."""
        self.lost.set()
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.leave()
