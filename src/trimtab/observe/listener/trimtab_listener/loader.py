"""How the script gets its data: which loader feeds it, and how long it waits for each batch."""

from __future__ import annotations

import contextlib
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any

from .record import Recorder


class Feed:
    """What the loaders have given since the last look."""

    def __init__(self) -> None:
        self.batches = 0
        self.fetching = False  # whether the script is waiting for a batch right now
        self.batch_size: int | None = None
        self.source: Callable[[], Any] | None = None
        self._waited = 0.0
        self._described: int | None = None

    def take_wait(self) -> float:
        """Seconds spent waiting for data since the last call."""
        waited, self._waited = self._waited, 0.0
        return waited

    def arrived(self, waited: float) -> None:
        """A batch came after `waited` seconds."""
        self._waited += waited
        self.batches += 1

    def describe(self, recorder: Recorder) -> None:
        """Record the loader whose batch came last, once for each loader."""
        loader = self.source() if self.source is not None else None
        if loader is None or id(loader) == self._described:
            return
        self._described = id(loader)
        self.batch_size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
        recorder.write(
            "loader",
            batch_size=self.batch_size,
            workers=loader.num_workers,
            dataset_length=_length(loader.dataset),
            batches=_length(loader),
        )


FEED = Feed()


def listen(recorder: Recorder) -> None:
    """Time every `next()` of a loader's iterator. `describe` waits until a step shows that it trains."""
    module = sys.modules["torch.utils.data.dataloader"]
    original_iter = module.DataLoader.__iter__
    original_next = module._BaseDataLoaderIter.__next__
    clock = time.perf_counter

    def __iter__(self: Any) -> Any:  # noqa: N807
        iterator = original_iter(self)
        with contextlib.suppress(Exception):
            # Weak, so that the listener keeps neither the loader nor its worker processes alive.
            iterator._trimtab_loader = weakref.ref(self)
        return iterator

    def __next__(self: Any) -> Any:  # noqa: N807
        FEED.fetching = True
        start = clock()
        try:
            batch = original_next(self)
        finally:
            FEED.fetching = False
        FEED.arrived(clock() - start)
        FEED.source = getattr(self, "_trimtab_loader", None)
        return batch

    module.DataLoader.__iter__ = __iter__
    module._BaseDataLoaderIter.__next__ = __next__


def _length(thing: Any) -> int | None:
    try:
        return len(thing)
    except Exception:
        return None
