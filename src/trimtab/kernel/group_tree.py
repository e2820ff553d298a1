"""Folders watched by inotify, and the tree of control groups that these watches keep up to date.

In control group file systems inotify reports what is made and removed in a folder, but not that a watched
folder itself is removed, and keeps its watch: the caller must `remove` it.
"""

import contextlib
import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from trimtab.kernel.closing import Closing

_EVENT = struct.Struct("iIII")  # watch, what happened, cookie, length of the name that follows
_MADE_OR_REMOVED = 0x40 | 0x80 | 0x100 | 0x200  # IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE
_ONLY_FOLDERS = 0x01000000  # IN_ONLYDIR
_OVERFLOW = 0x4000  # IN_Q_OVERFLOW: some were lost
_IGNORED = 0x8000  # IN_IGNORED: the watch is no more
_BUFFER = 65536  # bytes


class FolderWatch(Closing):
    """The watched folders. If the kernel cannot watch one of them, `changed` is always None."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._folders: dict[int, str] = {}
        self._watches: dict[str, int] = {}
        self._unwatched = set[str]()

    def add(self, folder: str) -> None:
        """Watch a folder, or the one that replaced it; skips one that does not exist."""
        self._unwatched.discard(folder)
        watch = self._libc.inotify_add_watch(
            self._file, os.fsencode(folder), _MADE_OR_REMOVED | _ONLY_FOLDERS
        )
        if watch < 0:
            missing = ctypes.get_errno() in (errno.ENOENT, errno.ENOTDIR)
            self.remove(folder)
            if not missing:
                self._unwatched.add(folder)
            return
        if self._watches.get(folder, watch) != watch:
            self.remove(folder)
        self._watches[folder] = watch
        self._folders[watch] = folder

    def remove(self, folder: str) -> None:
        self._unwatched.discard(folder)
        watch = self._watches.pop(folder, None)
        if watch is not None:
            self._folders.pop(watch, None)
            self._libc.inotify_rm_watch(self._file, watch)

    def changed(self) -> set[str] | None:
        """Paths made or removed since the last call; None if some are unknown: list the folders again."""
        paths = set[str]()
        lost = self._file < 0 or bool(self._unwatched)
        while events := self._read():
            at = 0
            while at < len(events):
                watch, kind, _, length = _EVENT.unpack_from(events, at)
                at += _EVENT.size + length
                lost |= bool(kind & _OVERFLOW)
                folder = self._folders.get(watch)
                if folder is not None and not kind & _IGNORED:
                    name = events[at - length : at].rstrip(b"\0")
                    paths.add(os.path.join(folder, os.fsdecode(name)))
        return None if lost else paths

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def _read(self) -> bytes:
        with contextlib.suppress(BlockingIOError):
            return os.read(self._file, _BUFFER) if self._file >= 0 else b""
        return b""


class GroupTree(Closing):
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
        self._has_changed = False  # since the last refresh

    @property
    def paths(self) -> Iterator[str]:
        """All paths, without the root."""
        return (path for path in self._below if path)

    def refresh(self, everywhere: bool = False) -> bool:
        """Read folders where something was made or removed, or all; whether the set of groups has changed."""
        self._has_changed = False
        changed = self._watch.changed()
        for start in self._starts:
            exists = os.path.isdir(self._root + start)
            if exists and (everywhere or changed is None or start not in self._below):
                self._look(start)
            elif not exists and start in self._below:
                self._drop(start)
        for full in changed or ():
            path = full[len(self._root) :]
            siblings = self._below.get(path.rpartition("/")[0])
            if siblings is None:
                continue
            if os.path.isdir(full):
                siblings.add(path)
                self._look(path)
            else:
                siblings.discard(path)
                self._drop(path)
        return self._has_changed

    def close(self) -> None:
        self._watch.close()

    def _look(self, path: str) -> None:
        """Take in a group and all below it."""
        self._has_changed |= path not in self._below
        self._watch.add(self._root + path)  # before it is listed: nothing made meanwhile is missed
        children = set[str]()
        with contextlib.suppress(OSError), os.scandir(self._root + path) as entries:
            children = {f"{path}/{entry.name}" for entry in entries if entry.is_dir(follow_symlinks=False)}
        for removed in self._below.get(path, set()) - children:
            self._drop(removed)
        self._below[path] = children
        for child in children:
            self._look(child)

    def _drop(self, path: str) -> None:
        self._watch.remove(self._root + path)
        if path in self._below:
            self._has_changed = True
            for child in self._below.pop(path):
                self._drop(child)
