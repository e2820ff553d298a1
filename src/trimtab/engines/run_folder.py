"""Run folders: small files per run, by which an engine finds its runs again after a restart.

Commands and environments are not kept there, because they may hold secrets.
"""

import contextlib
import fcntl
import hashlib
import json
import math
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from trimtab.core import (
    BadInputError,
    EngineEvent,
    NotFoundError,
    StorageError,
    TrimtabError,
    from_plain,
    to_plain,
)
from trimtab.kernel import drop_head, write_whole

T = TypeVar("T")

FINAL = frozenset({"ended", "failed", "lost"})
"""Events after which nothing more happens to a run."""

STOPPING = "stopping"
"""The file that marks a run whose stop was requested."""

_LAUNCHES_WITHIN = 60.0  # s that one launch waits for another
_LOG_PAUSE, _LEAST_LOG_PAUSE = 2.0, 0.05  # s between two looks at the size of a log
_RUN_ID = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Intent:
    """A launch about to happen, recorded before anything is done. `time` is in seconds since the epoch."""

    DURABLE: ClassVar[bool] = False  # nothing runs any more once the machine has lost power
    key: str
    name: str
    time: float
    workers: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """When a cluster had accepted all of the run, in seconds since the epoch."""

    time: float


@dataclass(frozen=True, slots=True)
class Reported:
    """Events of a run that `watch` has reported."""

    FILE: ClassVar[str] = "told"
    DURABLE: ClassVar[bool] = False  # an event may be reported twice
    events: tuple[str, ...] = ()


class RunFolder:
    """The files of one run; its id is the folder's name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._records: dict[type, Any] = {}

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def log(self) -> Path:
        """File with the standard output and error of all workers."""
        return self.folder / "output.log"

    def open_log(self) -> int:
        """A descriptor by which workers append to the log; any link in its place is refused."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(self.log, flags, 0o600)
        except OSError as error:
            raise StorageError(f"{self.log} cannot be written: {error.strerror}") from None
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            os.close(descriptor)
            raise StorageError(f"{self.log} is not a regular file with a single name; remove it")
        os.set_blocking(descriptor, True)
        return descriptor

    def make(self, intent: Intent) -> None:
        """Make its folder, readable by its owner only, and record the launch."""
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StorageError(f"runs cannot be recorded in {self.folder.parent}: {error.strerror}") from None
        self.keep(intent)

    def forget(self, first: type | None = None) -> None:
        """Remove its folder; the record of the type `first` goes before the others."""
        self._records.clear()
        if first is not None:
            self._file(first).unlink(missing_ok=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def keep(self, record: Any) -> None:
        """Write a record atomically; one of each type is kept."""
        durable = getattr(record, "DURABLE", True)
        write_whole(self._file(type(record)), json.dumps(to_plain(record)), durable=durable)

    def read(self, kind: type[T]) -> T | None:
        """The record of a type; None where there is none."""
        try:
            return from_plain(kind, json.loads(self._file(kind).read_text(encoding="utf-8")))
        except (OSError, ValueError, BadInputError):
            return None

    def read_once(self, kind: type[T]) -> T | None:
        """The record of a type that is never changed once it is written: read from the disk only once."""
        if kind not in self._records and (record := self.read(kind)) is not None:
            self._records[kind] = record
        return self._records.get(kind)

    @property
    def reported(self) -> tuple[str, ...]:
        """Names of the events that have been reported."""
        reported = self.read(Reported)
        return reported.events if reported else ()

    def report(self, events: Iterator[EngineEvent]) -> Iterator[EngineEvent]:
        """Pass events on; each counts as reported once the next one is requested."""
        for event in events:
            yield event
            self.keep(Reported((*self.reported, event.what)))

    @property
    def stopping(self) -> bool:
        """Whether its stop was requested."""
        return (self.folder / STOPPING).exists()

    def mark_stopping(self) -> None:
        """Record that its stop was requested."""
        write_whole(self.folder / STOPPING, "")

    def _file(self, kind: type) -> Path:
        return self.folder / f"{getattr(kind, 'FILE', kind.__name__.lower())}.json"


class LogLimit:
    """Keeps about the last `limit` bytes of a growing log, by freeing the disk space of what is before them.

    Positions in the log stay what they were; what was freed reads as zeros.
    """

    def __init__(self, descriptor: int, limit: float) -> None:
        self._descriptor, self._limit = descriptor, int(limit)
        self._size = 0
        self._pause = _LOG_PAUSE

    def apply(self) -> float:
        """Free what is beyond the limit; returns seconds until the log may have grown by a quarter of it."""
        size = drop_head(self._descriptor, self._limit)
        grown, self._size = max(1, size - self._size), size
        self._pause = min(_LOG_PAUSE, max(_LEAST_LOG_PAUSE, self._pause * self._limit / 4 / grown))
        return self._pause


class RunFolders:
    """All runs of an engine in one folder; a key determines its run."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._finished = set[str]()
        self._unfinished: dict[str, RunFolder] = {}
        self._listed = -math.inf

    def of_key(self, key: str) -> RunFolder:
        """The run of a key, launched or not. The same key in another folder is another run."""
        text = f"{self._identity()} {key}"
        return self._folder(hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12])

    def named(self, run_id: str) -> RunFolder:
        """The run with an id; NotFoundError if there is none."""
        run = self._folder(run_id)
        if not _RUN_ID.fullmatch(run_id) or run.read(Intent) is None:
            raise NotFoundError(f'there is no run "{run_id}" in {self.place}')
        return run

    def unfinished(self, age: float = 0.0) -> list[tuple[RunFolder, Intent]]:
        """Runs whose end has not been reported, oldest first.

        Runs that other processes have launched in the last `age` seconds may be missing: a folder with many
        ended runs takes long to list.
        """
        if time.monotonic() - self._listed >= age:
            self._listed = time.monotonic()
            names = {name for name in _listed(self.place) - self._finished if _RUN_ID.fullmatch(name)}
            self._unfinished = {name: self._folder(name) for name in names}
        finished = {name for name, run in self._unfinished.items() if FINAL & set(run.reported)}
        self._finished |= finished
        for name in finished:
            del self._unfinished[name]
        pairs = [(run, run.read_once(Intent)) for run in self._unfinished.values()]
        return sorted(((run, intent) for run, intent in pairs if intent), key=lambda pair: pair[1].time)

    def _folder(self, name: str) -> RunFolder:
        return self._unfinished.get(name) or RunFolder(self.place / name)

    def launched(self, run: RunFolder) -> None:
        """Add a run that this process has launched to the unfinished ones."""
        self._unfinished[run.id] = run

    @contextlib.contextmanager
    def alone(self) -> Iterator[int]:
        """Exclude other launches, in this process and others; yields the lock's file descriptor.

        A child process that inherits the descriptor keeps the lock until it closes it or ends, also if this
        process is killed. The library filelock does not expose its descriptor, so flock is called here.
        """
        try:
            self.place.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.place / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageError(f"runs cannot be recorded in {self.place}: {error.strerror}") from None

        def locked() -> bool:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        try:
            if not within(_LAUNCHES_WITHIN, locked):
                raise TrimtabError(
                    f"another launch in {self.place} has not ended for {_LAUNCHES_WITHIN:g} s; try again"
                )
            yield handle
        finally:
            os.close(handle)

    def _identity(self) -> str:
        """The random name of this folder; processes that make one at the same time all take the first."""
        path = self.place / "identity"
        if not path.exists():
            mine = self.place / f"identity-{secrets.token_hex(8)}"
            write_whole(mine, secrets.token_hex(16))
            with contextlib.suppress(FileExistsError):
                os.link(mine, path)
            mine.unlink()
        return path.read_text(encoding="utf-8")


def within(seconds: float, holds: Callable[[], bool], every: float = 0.02) -> bool:
    """Whether a condition came true within `seconds`; it is checked `every` so many seconds."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True


def _listed(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise StorageError(f"{folder} cannot be read: {error.strerror}") from None
