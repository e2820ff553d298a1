"""Writing things down without waiting for it: a thread of its own does, and a full disk harms nobody."""

import logging
import queue
import threading
from collections.abc import Callable
from typing import Generic, Self, TypeVar

from trimtab.core import TrimtabError

T = TypeVar("T")

log = logging.getLogger(__name__)


class WrittenAside(Generic[T]):
    """Hands things to `write` in their order; all are written when the context ends.

    What cannot be written is said once for each reason: `lost` begins the sentence, as in "a grant is not in
    the ledger".
    """

    def __init__(self, write: Callable[[T], None], lost: str) -> None:
        self._write_one, self._lost = write, lost
        self._waiting: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="aside", daemon=True)

    def put(self, thing: T) -> None:
        """To be written soon."""
        self._waiting.put(thing)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._waiting.put(None)
        self._thread.join()

    def _write(self) -> None:
        said = set[str]()
        while (thing := self._waiting.get()) is not None:
            try:
                self._write_one(thing)
            except (OSError, TrimtabError) as error:
                if str(error) not in said:
                    said.add(str(error))
                    log.warning("%s: %s", self._lost, error)
