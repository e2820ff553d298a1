"""Which groups are there below some paths? Asked often, and only what changed is looked at."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

from trimtab.kernel.folder_watch import FolderWatch


class GroupTree:
    """The paths, from the hierarchy's root ("/shop/cart"), of all groups at and below the starting ones."""

    def __init__(self, root: Path, starts: Iterable[str]) -> None:
        self._root = str(root).rstrip("/")
        ordered = sorted({start.rstrip("/") for start in starts}, key=len)
        self._starts = [
            start
            for at, start in enumerate(ordered)
            if not any(start.startswith(f"{above}/") for above in ordered[:at])
        ]
        self._watch = FolderWatch()
        self._below: dict[str, set[str]] = {}  # the groups directly below each
        self._other = False  # than at the last look

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    @property
    def paths(self) -> Iterator[str]:
        """All of them, without the root."""
        return (path for path in self._below if path)

    def refresh(self, everywhere: bool = False) -> bool:
        """Look where something was made or removed, or everywhere; whether other groups are there now."""
        self._other = False
        changed = self._watch.changed()
        for start in self._starts:
            there = os.path.isdir(self._root + start)
            if there and (everywhere or changed is None or start not in self._below):
                self._look(start)
            elif not there and start in self._below:
                self._drop(start)
        for full in changed or ():
            self._look_at_one(full[len(self._root) :])
        return self._other

    def close(self) -> None:
        """Watch nothing any more."""
        self._watch.close()

    def _look_at_one(self, path: str) -> None:
        beside = self._below.get(path.rpartition("/")[0])
        if beside is None:
            return
        if os.path.isdir(self._root + path):
            beside.add(path)
            self._look(path)
        else:
            beside.discard(path)
            self._drop(path)

    def _look(self, path: str) -> None:
        """Take in a group and all below it."""
        self._other |= path not in self._below
        self._watch.add(self._root + path)  # before it is listed: nothing made meanwhile is missed
        there = {f"{path}/{name}" for name in _folders(self._root + path)}
        for gone in self._below.get(path, set()) - there:
            self._drop(gone)
        self._below[path] = there
        for each in there:
            self._look(each)

    def _drop(self, path: str) -> None:
        self._watch.remove(self._root + path)
        if path in self._below:
            self._other = True
            for each in self._below.pop(path):
                self._drop(each)


def _folders(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
