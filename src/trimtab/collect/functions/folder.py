"""Folders for applications' files, named so that those of the dead are found and removed."""

import contextlib
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from trimtab.core import StorageError
from trimtab.kernel import Owner


@contextlib.contextmanager
def own_folder() -> Iterator[Path]:
    """A folder in the temporary one, for as long as the context."""
    folder = Path(tempfile.gettempdir()) / Owner.current().name(secrets.token_hex(4))
    try:
        with files_of_functions():
            folder.mkdir(mode=0o700)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def files_of_functions() -> Iterator[None]:
    """Says in one sentence that functions' files cannot be written."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"files of functions cannot be written in {tempfile.gettempdir()}: "
            f"{(error.strerror or str(error)).lower()}; name another folder with TMPDIR"
        ) from None


def sweep_folders() -> None:
    """Remove the folders of owners that have died."""
    for folder in Path(tempfile.gettempdir()).glob("trimtab-*"):
        owner = Owner.of(folder.name)
        if owner is not None and owner.is_gone():
            shutil.rmtree(folder, ignore_errors=True)
