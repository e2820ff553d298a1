"""A folder of this run's own on the disk that Trimtab's home is on; what a killed run left is removed."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import psutil

from trimtab.core import home

_NAME = "run-"


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """The folder, removed with all that is in it when the block ends."""
    place = home() / "bench" / "serve"
    for left in place.glob(f"{_NAME}*"):
        if not psutil.pid_exists(int(left.name.removeprefix(_NAME))):
            shutil.rmtree(left, ignore_errors=True)
    folder = place / f"{_NAME}{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
