"""Folders in which the processes of a run meet, and which do not outlive it."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_NAME = "trimtab-run-"


@contextmanager
def meeting_folder() -> Iterator[Path]:
    """A folder of this process's own, removed at the end; so are those of processes that were killed."""
    sweep(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=f"{_NAME}{os.getpid()}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(parent: Path) -> None:
    """Remove folders whose process is gone."""
    for folder in parent.glob(f"{_NAME}*-*"):
        owner = folder.name.removeprefix(_NAME).partition("-")[0]
        if owner.isdigit() and not Path("/proc", owner).exists():
            shutil.rmtree(folder, ignore_errors=True)
