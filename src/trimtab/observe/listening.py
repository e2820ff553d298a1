"""The listener's folder: how it gets into the command's interpreters, and what it has written so far."""

import contextlib
import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trimtab.kernel import Owner

FOLDER_VARIABLE = "TRIMTAB_LISTENER"
STOPPING = "stopping"
_LISTENER = Path(__file__).with_name("listener")

Record = dict[str, Any]


class Listening:
    """A folder that listeners write into. Use as a context: leaving it removes the folder."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.gettempdir()) / Owner.current().name(secrets.token_hex(4))
        self.records: dict[str, list[Record]] = {}
        self._offsets: dict[str, int] = {}

    def __enter__(self) -> "Listening":
        sweep_folders()
        self.folder.mkdir(mode=0o700)
        return self

    def __exit__(self, *exception: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def variables(self) -> dict[str, str]:
        """What the command's environment must say for the listener to start in it."""
        path = os.environ.get("PYTHONPATH")
        return {
            FOLDER_VARIABLE: str(self.folder),
            "PYTHONPATH": f"{_LISTENER}{os.pathsep}{path}" if path else str(_LISTENER),
        }

    def announce_stop(self) -> None:
        """Tell the listeners that an interrupt is Trimtab's doing and no reason for a traceback."""
        with contextlib.suppress(OSError):
            (self.folder / STOPPING).touch()

    def update(self) -> None:
        """Read what has been written since the last time, whole lines only."""
        for path in sorted(self.folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._offsets.get(path.name, 0))
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._offsets[path.name] = self._offsets.get(path.name, 0) + len(whole)
            self.records.setdefault(path.name, []).extend(_parsed(whole))

    def steps(self) -> int:
        """Undisturbed steps seen so far, of the process that has made most."""
        return max((step_count(records) for records in self.records.values()), default=0)


def step_count(records: list[Record]) -> int:
    """Undisturbed steps in one process's records."""
    return sum(len(record["seconds"]) for record in records if record["record"] == "steps")


def sweep_folders() -> None:
    """Remove folders whose Trimtab was killed."""
    for path in Path(tempfile.gettempdir()).glob("trimtab-*"):
        owner = Owner.of(path.name)
        if owner is not None and owner.is_gone() and path.is_dir():
            shutil.rmtree(path, ignore_errors=True)


def _parsed(lines: bytes) -> Iterator[Record]:
    for line in lines.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and "record" in record:
            yield record
