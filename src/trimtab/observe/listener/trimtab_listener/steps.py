"""Traces the first optimizer step and times later ones."""

from __future__ import annotations

import atexit
import os
import sys
import time
import weakref
from typing import Any

from .inputs import FEED
from .record import ListenerRecorder

_SETTLE = 1  # steps after the traced one that do not count: caches and allocators settle
_PATIENCE = 16  # steps of one optimizer after which one that never stepped is no part of the round
_FLUSH_EVERY = 0.5  # s; what a kill can cost


def listen(recorder: ListenerRecorder, fake: Any = None) -> None:
    """Hook the construction and the end of every step of every optimizer; `fake` is a run without numbers."""
    optimizer_module = sys.modules["torch.optim.optimizer"]
    clock = StepClock(recorder, fake)
    clock.handle = optimizer_module.register_optimizer_step_post_hook(clock.after_step)
    original = optimizer_module.Optimizer.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **kwargs)
        clock.created(self)

    optimizer_module.Optimizer.__init__ = __init__
    atexit.register(clock.flush)
    os.register_at_fork(after_in_child=clock.start_over)
    _watch_scaler(clock)
    _watch_evaluation(clock)


def _watch_scaler(clock: StepClock) -> None:
    """See steps that a gradient scaler skips because gradients overflowed."""
    scaler = getattr(sys.modules.get("torch.amp.grad_scaler"), "GradScaler", None)
    if scaler is None:
        return
    original = scaler.step

    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        before = clock.seen
        result = original(self, optimizer, *args, **kwargs)
        if clock.seen == before:
            clock.skipped()
        return result

    scaler.step = step


def _watch_evaluation(clock: StepClock) -> None:
    """See evaluation between two steps: a model is switched to it by `eval`."""
    module = sys.modules["torch.nn"].Module
    original = module.eval

    def eval(self: Any) -> Any:
        clock.evaluated = True
        return original(self)

    module.eval = eval


class StepClock:
    """Traces the first step, lets the next one settle, and times the others.

    A step is one round of all optimizers: it ends when the last one that joined the first round steps. A
    generator and its critic, or five steps of a critic for one of its generator, make one step.
    """

    def __init__(self, recorder: ListenerRecorder, fake: Any = None) -> None:
        self.handle: Any = None
        self._recorder = recorder
        self._fake = fake
        self.start_over()

    def start_over(self) -> None:
        """Reset: at the start, and in a forked child, whose steps are its own."""
        self.seen = 0  # steps of any optimizer
        self.evaluated = False
        self._silent = False
        self._optimizers: list[Any] = []  # weak references
        self._steps: dict[int, int] = {}  # by optimizer, in the first round
        self._reference: Any = None
        self._settling = _SETTLE
        self._done = 0
        self._look: Any = None
        self._last = self._flushed = 0.0
        self._seconds: list[float] = []
        self._waits: list[float] = []

    def created(self, optimizer: Any) -> None:
        """An optimizer was made: get ready to trace the model's first call."""
        try:
            if self._silent or self._reference is not None:
                return
            self._optimizers.append(weakref.ref(optimizer))
            if self._look is None and _is_first_worker():
                self._recorder.write("stage", text="the model's first call")
                self._start_look()
        except Exception as error:
            self.give_up(f"the listener stopped: {error!r:.200}")

    def after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        """The hook. An error in here ends the listening, not the script."""
        if self._silent:
            return
        try:
            self.seen += 1
            self._after_step(optimizer)
        except Exception as error:
            self.give_up(f"the listener stopped: {error!r:.200}")

    def skipped(self) -> None:
        """A gradient scaler skipped the step: its work is no part of the next one."""
        if self._look is not None and self._reference is None:
            self._look.restart()

    def _start_look(self) -> None:
        from .look import StepLook

        def on_first_call() -> None:
            self._recorder.write("stage", text="the first optimizer step")

        mode = self._fake.top_mode if self._fake is not None else None
        self._look = StepLook(self._recorder, self._living, on_first_call, mode)

    def _living(self) -> list[Any]:
        return [optimizer for reference in self._optimizers if (optimizer := reference()) is not None]

    def _after_step(self, optimizer: Any) -> None:
        now = time.perf_counter()
        if self._reference is None and not _is_first_worker():
            self.give_up(None)
            if self._fake is not None:
                self._fake.end()
            return
        if self._reference is None:
            self._first_round(optimizer)
        elif optimizer is not self._reference:
            return
        else:
            self._done += 1
            if self._look is not None:
                self._finish_look()
            elif self._settling:
                self._settling -= 1
            else:
                self._time(now)
                return
        FEED.take_wait()
        self.evaluated = False
        self._recorder.write("progress", steps=self._done)
        self._last = time.perf_counter()

    def _first_round(self, optimizer: Any) -> None:
        if all(known is not optimizer for known in self._living()):
            self._optimizers.append(weakref.ref(optimizer))
        FEED.describe(self._recorder)
        steps = self._steps[id(optimizer)] = self._steps.get(id(optimizer), 0) + 1
        pending = [o for o in self._living() if id(o) not in self._steps and _trains(o)]
        if pending and steps < _PATIENCE:
            if self.seen == 1 and self._look is not None and self._look.began:
                self._look.write()  # the facts of the first step, until the round is complete
            return
        self._reference = optimizer
        self._optimizers = [weakref.ref(o) for o in self._living() if id(o) in self._steps]
        self._done = 1
        if self._look is None:
            self._start_look()
        if self._look.began:
            self._finish_look()
        else:
            self._look.begin()

    def _finish_look(self) -> None:
        if self._look.finish():
            self._look = None
            if self._fake is not None:
                self._fake.end()

    def _time(self, now: float) -> None:
        wait = FEED.take_wait()
        if not self.evaluated:
            self._seconds.append(now - self._last)
            self._waits.append(wait)
        self.evaluated = False
        self._last = now
        if now - self._flushed > _FLUSH_EVERY:
            self._flushed = now
            self.flush()

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
        self._silent = True
        if note is not None:
            self._recorder.note(note)
        if self._look is not None:
            self._look.abandon()
            self._look = None
        if self.handle is not None:
            self.handle.remove()


def _trains(optimizer: Any) -> bool:
    return any(p.requires_grad for group in optimizer.param_groups for p in group["params"])


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
