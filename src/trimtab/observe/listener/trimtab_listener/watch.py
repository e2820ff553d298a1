"""Calls back right after a module has been imported by someone else."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


def call_after_import(callbacks: dict[str, Callable[[], None]]) -> None:
    """Call each callback once its module has been imported, or now where it has been already."""
    waiting = {}
    for name, callback in callbacks.items():
        if name in sys.modules:
            _call(callback)
        else:
            waiting[name] = callback
    if waiting:
        sys.meta_path.insert(0, _Watcher(waiting))


def _call(callback: Callable[[], None]) -> None:
    with contextlib.suppress(Exception):
        callback()


class _Watcher(MetaPathFinder):
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
            spec.loader = _Loader(spec.loader, callback)
        return spec


def _find_by_others(name: str, path: Sequence[str] | None, skip: MetaPathFinder) -> ModuleSpec | None:
    for finder in sys.meta_path:
        if finder is not skip and hasattr(finder, "find_spec"):
            spec = finder.find_spec(name, path)
            if spec is not None:
                return spec
    return None


class _Loader(Loader):
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
