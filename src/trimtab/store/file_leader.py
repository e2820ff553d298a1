"""Leading a store in a file: whoever holds another file alone. Who dies lets go; who hangs does not."""

import contextlib
import hashlib
import threading
from typing import TYPE_CHECKING, Self

from trimtab.core import home
from trimtab.kernel import LockHeldError, file_lock

if TYPE_CHECKING:
    from sqlalchemy import Connection


class FileLeader:
    """The only one of a name on this machine, as long as the process lives."""

    passes = False

    def __init__(self, name: str, store: str) -> None:
        kept = hashlib.sha256(store.encode()).hexdigest()[:12]
        self._path = home() / f"{name}-{kept}.lock"
        self._held = contextlib.ExitStack()
        self.lost = threading.Event()
        self.lost.set()

    def wait(self, timeout: float) -> bool:
        """Hold the file as soon as nobody else does; False where somebody did for `timeout` seconds."""
        if not self.holds():
            try:
                self._held.enter_context(file_lock(self._path, "somebody else leads", timeout))
            except LockHeldError:
                return False
            self.lost.clear()
        return True

    def holds(self) -> bool:
        """Whether they have not let go."""
        return not self.lost.is_set()

    def require(self, connection: "Connection") -> None:
        """Nothing to do: nobody takes the file from who holds it."""

    def leave(self) -> None:
        """Let go."""
        self.lost.set()
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.leave()
