"""Folders in which the processes of a run meet, and which do not outlive it."""

import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trimtab.kernel import Owner


@contextmanager
def meeting_folder() -> Iterator[Path]:
    """A folder of this process's own, removed at the end; so are those of processes that were killed."""
    sweep(Path(tempfile.gettempdir()))
    folder = Path(tempfile.gettempdir()) / Owner.current().name(f"run{secrets.token_hex(4)}")
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep(parent: Path) -> None:
    """Remove folders of runs whose process is gone."""
    for folder in parent.glob("trimtab-*-run*"):
        owner = Owner.of(folder.name)
        if owner is not None and owner.is_gone():
            shutil.rmtree(folder, ignore_errors=True)
