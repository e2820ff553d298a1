"""Run folders: small files per run, by which an engine finds its runs again after a restart.

Neither commands nor environments are among them, because people put secrets into them.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
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
from trimtab.kernel import write_whole

T = TypeVar("T")

FINAL = frozenset({"ended", "failed", "lost"})
"""Events after which nothing more happens to a run."""

STOPPING = "stopping"
"""The file that says that somebody asked for a run's end."""

_LAUNCHES_WITHIN = 60.0  # s; how long one launch waits for another
_RUN_ID = re.compile(r"[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Intent:
    """A launch about to happen, recorded before anything is done. `time` is in seconds since the epoch."""

    key: str
    name: str
    time: float
    workers: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """When a cluster had accepted the whole run, in seconds since the epoch."""

    time: float


@dataclass(frozen=True, slots=True)
class Reported:
    """Events of a run that `watch` has handed on."""

    FILE: ClassVar[str] = "told"
    events: tuple[str, ...] = ()


class RunFolder:
    """The files of one run; its id is the folder's name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def id(self) -> str:
        """The run's id."""
        return self.folder.name

    @property
    def log(self) -> Path:
        """File with the standard output and error of all workers."""
        return self.folder / "output.log"

    def make(self, intent: Intent) -> None:
        """Its folder, for its owner's eyes only, and what is about to happen."""
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StorageError(f"runs cannot be kept in {self.folder.parent}: {error.strerror}") from None
        self.keep(intent)

    def forget(self) -> None:
        """As if it had never been."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def keep(self, what: Any) -> None:
        """Write a record down, whole or not at all; one of each kind is kept."""
        write_whole(self._file(type(what)), json.dumps(to_plain(what)))

    def read(self, kind: type[T]) -> T | None:
        """The record of that kind; None where there is none."""
        try:
            return from_plain(kind, json.loads(self._file(kind).read_text(encoding="utf-8")))
        except (OSError, ValueError, BadInputError):
            return None

    @property
    def reported(self) -> tuple[str, ...]:
        """Events that have been handed on."""
        reported = self.read(Reported)
        return reported.events if reported else ()

    def report(self, events: Iterator[EngineEvent]) -> Iterator[EngineEvent]:
        """Hand events on; each counts as told once the next one is asked for."""
        for event in events:
            yield event
            self.keep(Reported((*self.reported, event.what)))

    @property
    def stopping(self) -> bool:
        """Whether somebody asked for its end."""
        return (self.folder / STOPPING).exists()

    def mark_stopping(self) -> None:
        """Its end, when it comes, was asked for."""
        write_whole(self.folder / STOPPING, "")

    def _file(self, kind: type) -> Path:
        return self.folder / f"{getattr(kind, 'FILE', kind.__name__.lower())}.json"


class RunFolders:
    """All runs an engine keeps in one place. The same key is always the same run."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._finished = set[str]()

    def of_key(self, key: str) -> RunFolder:
        """The run of that key, launched or not. The same key in another place is another run."""
        text = f"{self._identity()} {key}"
        return RunFolder(self.place / hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12])

    def named(self, run_id: str) -> RunFolder:
        """The run with that id."""
        run = RunFolder(self.place / run_id)
        if not _RUN_ID.fullmatch(run_id) or run.read(Intent) is None:
            raise NotFoundError(f'no run here is called "{run_id}"')
        return run

    def unfinished(self) -> list[tuple[RunFolder, Intent]]:
        """Runs whose end has not been reported, oldest first."""
        names = [name for name in _listed(self.place) if _RUN_ID.fullmatch(name)]
        runs = [RunFolder(self.place / name) for name in names if name not in self._finished]
        self._finished.update(run.id for run in runs if FINAL & set(run.reported))
        known = [(run, intent) for run in runs if (intent := run.read(Intent)) is not None]
        return sorted((each for each in known if each[0].id not in self._finished), key=lambda e: e[1].time)

    @contextlib.contextmanager
    def alone(self) -> Iterator[int]:
        """Nobody else, in this process or another, is launching meanwhile.

        The file descriptor that says so: a child process that inherits it goes on keeping the others out.
        """
        handle = self._open_lock()
        try:
            if not within(_LAUNCHES_WITHIN, lambda: _locked(handle)):
                raise TrimtabError(f"another launch in {self.place} does not come to an end; try again")
            yield handle
        finally:
            os.close(handle)

    def _open_lock(self) -> int:
        try:
            self.place.mkdir(parents=True, exist_ok=True)
            return os.open(self.place / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageError(f"runs cannot be kept in {self.place}: {error.strerror}") from None

    def _identity(self) -> str:
        """A random name of this place, made once: of several who make one, all take the first."""
        path = self.place / "identity"
        if not path.exists():
            mine = self.place / f"identity-{secrets.token_hex(8)}"
            write_whole(mine, secrets.token_hex(16))
            with contextlib.suppress(FileExistsError):
                os.link(mine, path)
            mine.unlink()
        return path.read_text(encoding="utf-8")


def within(seconds: float, holds: Callable[[], bool], every: float = 0.02) -> bool:
    """Whether it came true in that time."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(every)
    return True


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageError(f"{folder} cannot be read: {error.strerror}") from None
