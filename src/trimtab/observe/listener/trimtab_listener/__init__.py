"""Listens to a training script from inside: its model, its steps, its data. Never disturbs it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, TracebackType
from typing import Any

from .record import ListenerRecorder

FOLDER_VARIABLE = "TRIMTAB_LISTENER"
STOPPING = "stopping"  # a file of this name appears in the folder when Trimtab begins to end the command


def start() -> None:
    """Wait for the modules worth listening to; until then this costs nothing."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder or not os.path.isdir(folder):
        return
    recorder = ListenerRecorder(folder)
    end_quietly(os.path.join(folder, STOPPING))

    def argparse_loaded() -> None:
        from .inputs import listen_to_arguments

        listen_to_arguments(recorder)

    def loader_loaded() -> None:
        from .inputs import listen_to_loaders

        listen_to_loaders()

    def optimizer_loaded() -> None:
        from .steps import listen

        listen(recorder)

    call_after_import(
        {
            "argparse": argparse_loaded,
            "torch.utils.data.dataloader": loader_loaded,
            "torch.optim.optimizer": optimizer_loaded,
        }
    )


def end_quietly(stopping: str) -> None:
    """Print no traceback for an uncaught interrupt once the file `stopping` exists: Trimtab sent it."""
    previous = sys.excepthook

    def hook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        # torchrun turns the signals it gets into a SignalException of its own.
        interrupt = issubclass(kind, KeyboardInterrupt) or kind.__name__ == "SignalException"
        if not (interrupt and os.path.exists(stopping)):
            previous(kind, value, trace)

    sys.excepthook = hook


def call_after_import(callbacks: dict[str, Callable[[], None]]) -> None:
    """Call each callback once its module has been imported, or now where it has been already."""
    waiting = {}
    for name, callback in callbacks.items():
        if name in sys.modules:
            _call(callback)
        else:
            waiting[name] = callback
    if waiting:
        sys.meta_path.insert(0, _ImportWatcher(waiting))


def _call(callback: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):
        callback()


class _ImportWatcher(MetaPathFinder):
    """Finds nothing itself: lets the other finders find a watched module and wraps what loads it."""

    def __init__(self, waiting: dict[str, Callable[[], None]]) -> None:
        self._waiting = waiting

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        callback = self._waiting.pop(name, None)
        if callback is None:
            return None
        if not self._waiting and self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = _find_by_others(name, path, self)
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _CallingLoader(spec.loader, callback)
        return spec


def _find_by_others(name: str, path: Sequence[str] | None, skip: MetaPathFinder) -> ModuleSpec | None:
    for finder in sys.meta_path:
        if finder is not skip and hasattr(finder, "find_spec"):
            spec = finder.find_spec(name, path)
            if spec is not None:
                return spec
    return None


class _CallingLoader(Loader):
    """Loads as the wrapped loader does, then calls back."""

    def __init__(self, inner: Any, callback: Callable[[], None]) -> None:
        self._inner = inner
        self._callback = callback

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._inner.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # Whoever looks later (inspect, pickle, linecache) should see the loader that was found.
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        module.__loader__ = self._inner
        self._inner.exec_module(module)
        _call(self._callback)
