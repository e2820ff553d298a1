"""Marks the end of every optimizer step, looks closely at one early step, then only reads the clock."""

from __future__ import annotations

import atexit
import os
import sys
import time
from typing import Any

from .inputs import FEED
from .record import ListenerRecorder

_LOOK_AFTER = 2  # steps until every optimizer that takes turns has been seen and has its state
_FLUSH_EVERY = 0.5  # s; what a kill can cost


def listen(recorder: ListenerRecorder) -> None:
    """Hear the end of every step of every optimizer, from the first on."""
    optimizer_module = sys.modules["torch.optim.optimizer"]
    clock = StepClock(recorder)
    clock.handle = optimizer_module.register_optimizer_step_post_hook(clock.after_step)
    atexit.register(clock.flush)
    os.register_at_fork(after_in_child=clock.start_over)


class StepClock:
    """Times the steps of the first optimizer that takes one; the others' work falls in between.

    Step 1 starts the clock, after step 2 the model is looked up, step 3 is traced, step 4 lets things settle
    (caches, allocators), and from step 5 on every step counts.
    """

    def __init__(self, recorder: ListenerRecorder) -> None:
        self.handle: Any = None
        self._recorder = recorder
        self.start_over()

    def start_over(self) -> None:
        """Forget everything: at the start, and in a forked child, whose steps are its own."""
        self._reference: Any = None
        self._optimizers: dict[int, Any] = {}
        self._done = 0
        self._look: Any = None
        self._last = self._flushed = 0.0
        self._seconds: list[float] = []
        self._waits: list[float] = []

    def after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """The hook. Whatever goes wrong in here ends the listening, not the script."""
        try:
            self._after_step(optimizer)
        except Exception as error:
            self.give_up(f"the listener stopped: {error!r:.200}")

    def _after_step(self, optimizer: Any) -> None:
        now = time.perf_counter()
        if self._done < _LOOK_AFTER:
            self._optimizers.setdefault(id(optimizer), optimizer)
        if self._reference is None:
            if not _is_first_worker():
                self.give_up(None)
                return
            self._reference = optimizer
        if optimizer is not self._reference:
            return
        self._done += 1
        if self._done > _LOOK_AFTER + 2:
            self._seconds.append(now - self._last)
            self._waits.append(FEED.take_wait())
            self._last = now
            if now - self._flushed > _FLUSH_EVERY:
                self._flushed = now
                self.flush()
            return
        self._early_step()
        FEED.take_wait()
        self._last = time.perf_counter()

    def _early_step(self) -> None:
        FEED.describe(self._recorder)
        if self._done == _LOOK_AFTER:
            from .look import StepLook

            self._look = StepLook(self._recorder, list(self._optimizers.values()))
            self._optimizers.clear()
        elif self._look is not None and self._look.finish():
            self._look = None
        self._recorder.write("progress", steps=self._done)

    def flush(self) -> None:
        """Write the steps since the last time."""
        if not self._seconds:
            return
        seconds, waits = self._seconds, self._waits
        self._seconds, self._waits = [], []
        try:
            FEED.describe(self._recorder)
            self._recorder.write(
                "steps", seconds=seconds, waits=waits, peak_device_memory=_peak_device_memory()
            )
        except Exception:
            self.give_up(None)

    def give_up(self, note: str | None) -> None:
        """Stop listening for good."""
        if note is not None:
            self._recorder.note(note)
        if self._look is not None:
            self._look.abandon()
            self._look = None
        if self.handle is not None:
            self.handle.remove()


def _is_first_worker() -> bool:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return bool(distributed.get_rank() == 0)
    return os.environ.get("RANK", "0") == "0"


def _peak_device_memory() -> int | None:
    cuda = sys.modules.get("torch.cuda")
    if cuda is None or not cuda.is_initialized():
        return None
    return int(cuda.max_memory_allocated())
