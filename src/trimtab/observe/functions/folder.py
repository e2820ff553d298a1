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
        folder.mkdir(mode=0o700)
        yield folder
    except OSError as error:
        raise StorageError(
            f"files of functions cannot be made in {folder.parent}: {error.strerror or error}; "
            "name another folder with TMPDIR"
        ) from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def sweep_folders() -> None:
    """Remove the folders of owners that have died."""
    for folder in Path(tempfile.gettempdir()).glob("trimtab-*"):
        owner = Owner.of(folder.name)
        if owner is not None and owner.is_gone():
            shutil.rmtree(folder, ignore_errors=True)
