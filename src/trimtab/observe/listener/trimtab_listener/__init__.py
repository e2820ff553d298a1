"""Measures a training script from inside: its model, its steps, its data; never disturbs it."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType, TracebackType
from typing import Any

from .record import ListenerRecorder

FOLDER_VARIABLE = "TRIMTAB_LISTENER"
FAKE_VARIABLE = "TRIMTAB_FAKE"  # set for a run with fake tensors
STOPPING = "stopping"  # a file of this name appears in the folder when Trimtab begins to end the command


def start() -> None:
    """Install hooks that run when the script imports argparse or PyTorch."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder or not os.path.isdir(folder):
        return
    recorder = ListenerRecorder(folder)
    end_quietly(os.path.join(folder, STOPPING))
    fake = None
    if os.environ.get(FAKE_VARIABLE):
        from .fake import FakeRun

        fake = FakeRun(recorder)

    def listen(module: str, function: str, *arguments: Any) -> Callable[[], None]:
        return lambda: getattr(importlib.import_module(module, __name__), function)(*arguments)

    callbacks = {
        "argparse": listen(".inputs", "listen_to_arguments", recorder),
        "torch": listen(".eager", "run_eagerly", recorder, fake),
        "torch.utils.data.dataloader": listen(".inputs", "listen_to_loaders", recorder, fake),
        "torch.optim.optimizer": listen(".steps", "listen", recorder, fake),
    }
    if fake is not None:
        callbacks.update(fake.callbacks())
    call_after_import(callbacks)


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
    """Lets the other finders find a watched module, and wraps its loader."""

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
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        spec = next((spec for finder in others if (spec := finder.find_spec(name, path)) is not None), None)
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _CallingLoader(spec.loader, callback)
        return spec


class _CallingLoader(Loader):
    """Loads as the wrapped loader does, then calls back."""

    def __init__(self, inner: Any, callback: Callable[[], None]) -> None:
        self._inner = inner
        self._callback = callback

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._inner.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        # inspect, pickle and linecache should see the original loader.
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        module.__loader__ = self._inner
        self._inner.exec_module(module)
        _call(self._callback)
