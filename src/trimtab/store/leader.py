"""One of many who could do a work does it, and another takes over when that one is gone."""

import threading
from typing import TYPE_CHECKING, Protocol, Self

from trimtab.core import StorageError

if TYPE_CHECKING:
    from sqlalchemy import Connection


class LostLeadError(StorageError):
    """Who writes as a leader is none any more."""


class Leader(Protocol):
    """Somebody who leads, or would. `lost` is set whenever they do not lead."""

    lost: threading.Event

    @property
    def passes(self) -> bool:
        """Whether others may wait to take over; else there is one on this machine and no other."""

    def wait(self, timeout: float) -> bool:
        """Lead as soon as nobody else does; False where somebody did for `timeout` seconds."""

    def holds(self) -> bool:
        """Whether they lead still: false before anybody else can."""

    def require(self, connection: "Connection") -> None:
        """Make a transaction fail unless they lead to its end."""

    def leave(self) -> None:
        """Let another lead."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *raised: object) -> None: ...
