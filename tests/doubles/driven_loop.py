"""A scheduler's loop as tests drive it: in a thread or step by step, by a policy with a fixed answer."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from trimtab.core import Clock
from trimtab.schedule import WAITING, Allocation, Cluster, GangShape, JobColumns, Scheduler
from trimtab.store import Store


def states(store: Store) -> dict[str, str]:
    """The state of every job."""
    return {record.id: record.state.value for record in store.jobs.list()}


def until(
    holds: Callable[[], object], act: Callable[[], object] = lambda: None, seconds: float = 60.0
) -> None:
    """Act until it holds, which must not take longer."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        act()
        time.sleep(0.01)


@contextmanager
def in_thread(loop: Scheduler) -> Iterator[None]:
    """The loop goes round in a thread."""
    end = threading.Event()
    thread = threading.Thread(target=loop.run, args=(end,))
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()


class Chosen:
    """Gives the first job a fixed number of workers, and the others none."""

    workers = 1

    def allocate(self, jobs: JobColumns, cluster: Cluster, previous: Allocation, clock: Clock) -> Allocation:
        shape = np.full(len(jobs), WAITING, dtype=np.int64)
        shape[:1] = [cluster.shapes.index(GangShape(0, self.workers))] if self.workers else WAITING
        return Allocation(shape, np.arange(len(jobs)), {0: f"{self.workers} are best"})
