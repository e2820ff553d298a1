"""One scheduler at a time."""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

from trimtab.core import StorageError, home
from trimtab.store import Store


@contextmanager
def only_scheduler(store: Store) -> Iterator[None]:
    """Be the only scheduler of a store on this machine; raises where there is one."""
    name = hashlib.sha256(store.name.encode()).hexdigest()[:12]
    home().mkdir(parents=True, exist_ok=True)
    lock = os.open(home() / f"scheduler-{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(
                f"a scheduler runs already on the store {store.name}; end that one first"
            ) from None
        yield
    finally:
        os.close(lock)
