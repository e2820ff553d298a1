"""Folders watched by inotify, and the tree of control groups that is kept up to date by such watches.

In control group file systems inotify reports what is made and removed in a folder, but nothing about a
watched folder that is itself removed, and keeps its watch: whoever watches must `remove` it.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

_EVENT = struct.Struct("iIII")  # watch, what happened, cookie, length of the name that follows
_MADE_OR_REMOVED = 0x40 | 0x80 | 0x100 | 0x200  # IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE
_ONLY_FOLDERS = 0x01000000  # IN_ONLYDIR
_OVERFLOW = 0x4000  # IN_Q_OVERFLOW: some were lost
_IGNORED = 0x8000  # IN_IGNORED: the watch is no more
_BUFFER = 65536  # bytes


class FolderWatch:
    """The watched folders. Where the kernel cannot watch one of them, `changed` always says "look again"."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._folders: dict[int, str] = {}
        self._watches: dict[str, int] = {}
        self._unwatched = set[str]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def add(self, folder: str) -> None:
        """Watch it, or the one that has taken its place. One that is gone is left out."""
        self._unwatched.discard(folder)
        watch = self._libc.inotify_add_watch(
            self._file, os.fsencode(folder), _MADE_OR_REMOVED | _ONLY_FOLDERS
        )
        if watch < 0:
            gone = ctypes.get_errno() in (errno.ENOENT, errno.ENOTDIR)
            self.remove(folder)
            if not gone:
                self._unwatched.add(folder)
            return
        if self._watches.get(folder, watch) != watch:
            self.remove(folder)
        self._watches[folder] = watch
        self._folders[watch] = folder

    def remove(self, folder: str) -> None:
        """Watch it no more."""
        self._unwatched.discard(folder)
        watch = self._watches.pop(folder, None)
        if watch is not None:
            self._folders.pop(watch, None)
            self._libc.inotify_rm_watch(self._file, watch)

    def changed(self) -> set[str] | None:
        """Paths of what was made or removed since the last call; None if some are unknown: look again."""
        found = set[str]()
        lost = self._file < 0 or bool(self._unwatched)
        while events := self._read():
            at = 0
            while at < len(events):
                watch, what, _, length = _EVENT.unpack_from(events, at)
                at += _EVENT.size + length
                lost |= bool(what & _OVERFLOW)
                folder = self._folders.get(watch)
                if folder is not None and not what & _IGNORED:
                    name = events[at - length : at].rstrip(b"\0")
                    found.add(os.path.join(folder, os.fsdecode(name)))
        return None if lost else found

    def close(self) -> None:
        """Watch nothing any more."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def _read(self) -> bytes:
        if self._file < 0:
            return b""
        try:
            return os.read(self._file, _BUFFER)
        except BlockingIOError:
            return b""


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
