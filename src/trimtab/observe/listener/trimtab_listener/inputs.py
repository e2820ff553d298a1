"""The script's inputs: the length of the job on its command line, and the data loader that feeds it."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from typing import Any

from .record import ListenerRecorder

_EPOCHS = "epochs num_epochs n_epochs max_epochs num_train_epochs nb_epochs epoch"
_STEPS = "max_steps total_steps num_steps n_steps train_steps max_iters num_iters iters"


def listen_to_arguments(recorder: ListenerRecorder) -> None:
    """Record the job's length from every `ArgumentParser`; `parse_args` calls `parse_known_args` too."""
    original = argparse.ArgumentParser.parse_known_args

    def parse_known_args(self: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        with contextlib.suppress(Exception):
            epochs, steps = _first(result[0], _EPOCHS), _first(result[0], _STEPS)
            if epochs is not None or steps is not None:
                recorder.write("arguments", epochs=epochs, total_steps=steps)
        return result

    argparse.ArgumentParser.parse_known_args = parse_known_args  # type: ignore[method-assign]


def _first(namespace: Any, names: str) -> float | None:
    for name in names.split():
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
        """Record the loader whose batch came last, unless it equals the one recorded before."""
        if self.source is not None and self.source != self._described:
            self._described = self.source
            recorder.write("loader", **self.source)


FEED = LoaderFeed()


class FetchClock:
    """Times how a loader makes batches, in the script or in its worker processes."""

    def __init__(self, recorder: ListenerRecorder) -> None:
        self._recorder = recorder
        self._batches = 0
        self._seconds = self._written = 0.0

    def made(self, seconds: float) -> None:
        """Count a batch; write now and then, because a worker may be killed at any time."""
        self._batches += 1
        self._seconds += seconds
        now = time.perf_counter()
        if self._batches <= 2 or now - self._written > 0.5:
            self._written = now
            self._recorder.write("fetched", batches=self._batches, seconds=self._seconds)


def _time_fetching(recorder: ListenerRecorder) -> None:
    fetch_module = sys.modules.get("torch.utils.data._utils.fetch")
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        fetcher = getattr(fetch_module, name, None)
        if fetcher is None:
            continue

        def fetch(self: Any, index: Any, original: Any = fetcher.fetch) -> Any:
            start = time.perf_counter()
            batch = original(self, index)
            with contextlib.suppress(Exception):
                clock = self.__dict__.get("_trimtab_clock")
                if clock is None:
                    clock = self._trimtab_clock = FetchClock(recorder)
                clock.made(time.perf_counter() - start)
            return batch

        fetcher.fetch = fetch


def listen_to_loaders(recorder: ListenerRecorder, fake: Any = None) -> None:
    """Time every `next()` of a loader's iterator, and the making of batches.

    In a fake run data are real, so that scripts may look at them, and made by the script itself.
    """
    module = sys.modules["torch.utils.data.dataloader"]
    original_iter = module.DataLoader.__iter__
    original_next = module._BaseDataLoaderIter.__next__
    clock = time.perf_counter
    if fake is None:
        _time_fetching(recorder)
    else:
        fake.load_really(module)
        original_iter, original_next = module.DataLoader.__iter__, module._BaseDataLoaderIter.__next__

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
