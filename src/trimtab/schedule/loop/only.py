"""One scheduler at a time, and another ready where the store can tell that the first is gone."""

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from trimtab.core import StorageError
from trimtab.schedule.loop.scheduler import Scheduler
from trimtab.store import Leader, Store

log = logging.getLogger(__name__)

NAME = "scheduler"
"""What a scheduler leads as."""

_ASKED_FOR = 0.5


class Post:
    """The place of the only scheduler, taken by one after the other."""

    def __init__(self, store: Store, leader: Leader) -> None:
        self._store = store
        self._leader = leader

    def hold(
        self,
        make: Callable[[Store], Scheduler],
        end: threading.Event,
        tell: Callable[[bool], None] = lambda leads: None,
    ) -> None:
        """Run a scheduler whenever this one leads, until told to end; `tell` hears when it does and not.

        `make` is given a store that keeps only what is decided while it leads; it is called again each time,
        as another has decided meanwhile.
        """
        while not end.is_set():
            if self._leads(end):
                tell(True)
                make(self._store.under(self._leader)).run(_Either(end, self._leader.lost))
                tell(False)

    def _leads(self, end: threading.Event) -> bool:
        try:
            return self._leader.wait(_ASKED_FOR)
        except StorageError as error:
            log.warning("nobody can lead for now: %s", error)
            end.wait(_ASKED_FOR)
            return False


@contextmanager
def only_scheduler(store: Store) -> Iterator[Post]:
    """The post of a store's scheduler; refused where the store is a file and has one on this machine."""
    with store.leader(NAME) as leader:
        if not leader.wait(0.0):
            if not leader.passes:
                raise StorageError(f"a scheduler runs already on the store {store.name}; end that one first")
            log.info("another scheduler leads; this one takes over when that one is gone")
        yield Post(store, leader)


class _Either(threading.Event):
    """Set when one of two is; who waits for it may hear of the second late."""

    def __init__(self, end: threading.Event, lost: threading.Event) -> None:
        super().__init__()
        self._both = (end, lost)

    def is_set(self) -> bool:
        return any(each.is_set() for each in self._both)

    def wait(self, timeout: float | None = None) -> bool:
        self._both[0].wait(timeout)
        return self.is_set()
