"""Files that are never half written: into a temporary one beside, to the disk, then renamed over."""

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from trimtab.core import StorageError


def write_whole(path: Path, content: bytes | str | Callable[[BinaryIO], None]) -> None:
    """Write all of `content` (or what the function writes) to `path`, or nothing and a sentence why."""
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            if callable(content):
                content(file)
            else:
                file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            why = (error.strerror or str(error)).lower()
            raise StorageError(f"{path} cannot be written: {why}; name another file or folder") from None
        raise
