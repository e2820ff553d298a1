"""One scheduler at a time."""

import hashlib
from contextlib import AbstractContextManager

from trimtab.core import home
from trimtab.kernel import held_alone
from trimtab.store import Store


def only_scheduler(store: Store) -> AbstractContextManager[None]:
    """Be the only scheduler of a store on this machine; raises where there is one."""
    name = hashlib.sha256(store.name.encode()).hexdigest()[:12]
    busy = f"a scheduler runs already on the store {store.name}; end that one first"
    return held_alone(home() / f"scheduler-{name}.lock", busy)
