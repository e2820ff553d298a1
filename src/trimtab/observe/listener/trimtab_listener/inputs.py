"""The script's inputs: the length of the job on its command line, and the data loader that feeds it."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from typing import Any

from .record import ListenerRecorder

_EPOCHS = ("epochs", "num_epochs", "n_epochs", "max_epochs", "num_train_epochs", "nb_epochs", "epoch")
_STEPS = (
    "max_steps",
    "total_steps",
    "num_steps",
    "n_steps",
    "train_steps",
    "max_iters",
    "num_iters",
    "iters",
)


def listen_to_arguments(recorder: ListenerRecorder) -> None:
    """Look at what every `ArgumentParser` parses; `parse_args` goes through `parse_known_args` too."""
    original = argparse.ArgumentParser.parse_known_args

    def parse_known_args(self: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        with contextlib.suppress(Exception):
            _record(recorder, result[0])
        return result

    argparse.ArgumentParser.parse_known_args = parse_known_args  # type: ignore[method-assign]


def _record(recorder: ListenerRecorder, namespace: Any) -> None:
    epochs, steps = _first(namespace, _EPOCHS), _first(namespace, _STEPS)
    if epochs is not None or steps is not None:
        recorder.write("arguments", epochs=epochs, total_steps=steps)


def _first(namespace: Any, names: tuple[str, ...]) -> float | None:
    for name in names:
        value = getattr(namespace, name, None)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0:
            return value
    return None


class LoaderFeed:
    """Batches that the data loaders have delivered, and seconds the script waited for them."""

    def __init__(self) -> None:
        self.batches = 0
        self.fetching = False  # whether the script is waiting for a batch right now
        self.source: dict[str, Any] | None = None  # facts about the loader whose batch came last
        self._waited = 0.0
        self._described: dict[str, Any] | None = None

    @property
    def batch_size(self) -> int | None:
        """Samples in a batch of the loader whose batch came last."""
        return self.source["batch_size"] if self.source is not None else None

    def take_wait(self) -> float:
        """Seconds spent waiting for data since the last call."""
        waited, self._waited = self._waited, 0.0
        return waited

    def arrived(self, waited: float, source: dict[str, Any] | None) -> None:
        """A batch came from `source` after `waited` seconds."""
        self._waited += waited
        self.batches += 1
        self.source = source

    def describe(self, recorder: ListenerRecorder) -> None:
        """Record the loader whose batch came last, unless it looks like the one recorded before."""
        if self.source is not None and self.source != self._described:
            self._described = self.source
            recorder.write("loader", **self.source)


FEED = LoaderFeed()


def listen_to_loaders() -> None:
    """Time every `next()` of a loader's iterator. Only a step shows that the loader is for training."""
    module = sys.modules["torch.utils.data.dataloader"]
    original_iter = module.DataLoader.__iter__
    original_next = module._BaseDataLoaderIter.__next__
    clock = time.perf_counter

    def __iter__(self: Any) -> Any:  # noqa: N807
        iterator = original_iter(self)
        with contextlib.suppress(Exception):
            iterator._trimtab_source = _facts(self)
        return iterator

    def __next__(self: Any) -> Any:  # noqa: N807
        FEED.fetching = True
        start = clock()
        try:
            batch = original_next(self)
        finally:
            FEED.fetching = False
        FEED.arrived(clock() - start, getattr(self, "_trimtab_source", None))
        return batch

    module.DataLoader.__iter__ = __iter__
    module._BaseDataLoaderIter.__next__ = __next__


def _facts(loader: Any) -> dict[str, Any]:
    return {
        "batch_size": loader.batch_size or getattr(loader.batch_sampler, "batch_size", None),
        "workers": loader.num_workers,
        "dataset_length": _length(loader.dataset),
        "batches": _length(loader),
    }


def _length(thing: Any) -> int | None:
    try:
        return len(thing)
    except Exception:
        return None
