"""What is kept here of runs elsewhere: files in a folder each, by which a restarted Trimtab knows them again.

What is asked for is written down before it is asked for, so a run is never unknown here. Neither its command
nor its environment is written.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from trimtab.core import BadInputError, EngineEvent, Launch, NotFoundError, from_plain, to_plain
from trimtab.kernel import write_whole

T = TypeVar("T")

_FINAL = {"ended", "failed", "lost"}


@dataclass(frozen=True, slots=True)
class Asked:
    """The caller's key, the workload's name, when (seconds since the epoch), and the run's own secret."""

    key: str
    name: str
    time: float
    secret: str


@dataclass(frozen=True, slots=True)
class Told:
    """Events of it that have been handed on."""

    events: tuple[str, ...] = ()


class RemoteRun:
    """The files of one run; its id is the folder's name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def id(self) -> str:
        """The run's id."""
        return self._folder.name

    @property
    def log(self) -> Path:
        """What is here of the run's output."""
        return self._folder / "output.log"

    @property
    def asked(self) -> Asked | None:
        """None where there is no such run."""
        return self._read("asked.json", Asked)

    @property
    def told(self) -> tuple[str, ...]:
        """Which events have been handed on."""
        return (self._read("told.json", Told) or Told()).events

    @property
    def over(self) -> bool:
        """Whether its end has been handed on."""
        return bool(_FINAL & set(self.told))

    def ask(self, launch: Launch, now: float) -> Asked:
        """What was asked for, written down if that is new."""
        if self.asked is None:
            self._folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._folder.mkdir(exist_ok=True, mode=0o700)
            self.keep(Asked(launch.key, launch.workload.name, now, secrets.token_hex(16)))
        asked = self.asked
        assert asked is not None
        return asked

    def keep(self, what: Asked | Told) -> None:
        """Write it down, whole or not at all."""
        write_whole(self._folder / f"{type(what).__name__.lower()}.json", json.dumps(to_plain(what)))

    def has(self, mark: str) -> bool:
        """Whether it was marked so."""
        return (self._folder / mark).exists()

    def mark(self, mark: str, text: str = "") -> None:
        """Remember a step: "accepted" by the other side, or "stopping" because somebody asked for its end."""
        write_whole(self._folder / mark, text)

    def marked(self, mark: str) -> str:
        """What was written with a mark; nothing where it has none."""
        return (self._folder / mark).read_text(encoding="utf-8") if self.has(mark) else ""

    def _read(self, name: str, kind: type[T]) -> T | None:
        try:
            return from_plain(kind, json.loads((self._folder / name).read_text(encoding="utf-8")))
        except (OSError, ValueError, BadInputError):
            return None


class RemoteRuns:
    """The runs of one cluster, in a folder for its owner's eyes only."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._over = set[str]()

    def of(self, key: str) -> RemoteRun:
        """The run of that key, which may not have been asked for yet; its id follows from the key."""
        return RemoteRun(self._place / f"trimtab-{hashlib.sha256(key.encode()).hexdigest()[:16]}")

    def run(self, run_id: str) -> RemoteRun:
        """One of them by its id."""
        run = RemoteRun(self._place / run_id)
        if not run_id or "/" in run_id or run.asked is None:
            raise NotFoundError(f'no run here is called "{run_id}"')
        return run

    def unfinished(self) -> list[RemoteRun]:
        """Those whose end has not been handed on, oldest first."""
        names = os.listdir(self._place) if self._place.is_dir() else []
        runs = [RemoteRun(self._place / name) for name in names if name not in self._over]
        self._over.update(run.id for run in runs if run.over)
        known = [(asked.time, run.id, run) for run in runs if not run.over and (asked := run.asked)]
        return [run for *_, run in sorted(known, key=lambda each: each[:2])]


def tell(run: RemoteRun, events: Iterator[EngineEvent]) -> Iterator[EngineEvent]:
    """Events of a run that have not been handed on; one counts as such once the next is asked for."""
    for event in events:
        if event.what not in run.told:
            yield event
            run.keep(Told((*run.told, event.what)))


def check(launch: Launch) -> None:
    """Refuse what no engine could start."""
    name = launch.workload.name
    if not launch.workload.command or not launch.workload.command[0]:
        raise BadInputError(f'the workload "{name}" has no command; there is nothing to start')
    if not launch.parts or any(count < 1 for _, count in launch.parts):
        raise BadInputError(f'the workload "{name}" needs at least one worker on every node it names')
    nodes = [node for node, _ in launch.parts]
    if len(set(nodes)) < len(nodes):
        raise BadInputError(f'the workload "{name}" names a node twice; name it once, with all its workers')
