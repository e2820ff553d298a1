"""What is kept of a run on this machine: files in a folder, by which a restarted Trimtab knows it again."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from trimtab.core import BadInputError, from_plain, to_plain
from trimtab.kernel import LimitedGroup, read_process, write_whole

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Launch:
    """When it was launched (seconds since the epoch), and where its control group is."""

    name: str
    time: float
    version: int
    folders: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Start:
    """The command's process, and the one beside it by pid and start time (clock ticks since boot)."""

    time: float
    pid: int
    keeper: int
    keeper_started: int


@dataclass(frozen=True, slots=True)
class End:
    """How it ended: the exit status as a shell gives it (128 + signal), and out-of-memory kills."""

    time: float
    status: int
    kills: int


@dataclass(frozen=True, slots=True)
class Told:
    """Events of it that have been handed on."""

    events: tuple[str, ...] = ()


class KeptRun:
    """The files of one run; its id is the folder's name. Neither command nor environment is among them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def id(self) -> str:
        """The run's id."""
        return self.folder.name

    @property
    def log(self) -> Path:
        """What the command writes to its standard output and error."""
        return self.folder / "output.log"

    def launch(self) -> Launch | None:
        """None where there is no such run."""
        return self._read("launch.json", Launch)

    def start(self) -> Start | None:
        """None before its process has begun."""
        return self._read("start.json", Start)

    def end(self) -> End | None:
        """None while it runs, or where nobody was there to see it end."""
        return self._read("end.json", End)

    def told(self) -> Told:
        """Nothing at first."""
        return self._read("told.json", Told) or Told()

    def keep(self, what: Launch | Start | End | Told) -> None:
        """Write it down, whole or not at all."""
        write_whole(self.folder / f"{type(what).__name__.lower()}.json", json.dumps(to_plain(what)))

    def group(self) -> LimitedGroup:
        """Its control group, which may be gone."""
        launch = self.launch()
        folders = launch.folders if launch else {}
        version = launch.version if launch else 2
        return LimitedGroup(version, {name: Path(folder) for name, folder in folders.items()})

    def kept(self) -> bool:
        """Whether the process is there that will write down how it ends."""
        start = self.start()
        keeper = read_process(start.keeper) if start else None
        return bool(start and keeper and keeper.started == start.keeper_started and not keeper.zombie)

    @property
    def stopping(self) -> bool:
        """Whether somebody asked for its end."""
        return (self.folder / "stopping").exists()

    def mark_stopping(self) -> None:
        """Its end, when it comes, was asked for."""
        write_whole(self.folder / "stopping", "")

    def _read(self, name: str, kind: type[T]) -> T | None:
        try:
            return from_plain(kind, json.loads((self.folder / name).read_text(encoding="utf-8")))
        except (OSError, ValueError, BadInputError):
            return None


def make_folder(place: Path, run_id: str) -> KeptRun:
    """A new run's folder, for its owner's eyes only."""
    place.mkdir(parents=True, exist_ok=True)
    os.mkdir(place / run_id, 0o700)
    return KeptRun(place / run_id)
