"""Files: written whole or not at all, read as YAML, locked, and written in the background."""

import contextlib
import logging
import os
import queue
import resource
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Generic, Self, TypeVar

from trimtab.core import (
    MIB,
    BadInputError,
    StorageError,
    StrictModel,
    TrimtabError,
    format_bytes,
    one_line,
    validate,
)

Model = TypeVar("Model", bound=StrictModel)
T = TypeVar("T")

# As much as anything written here in one piece, so that a disk about to be full is noticed beforehand.
_TRIAL = b" " * 65536
_LOOK = 0.1  # s; far longer than `is_locked` holds a lock that it finds free

log = logging.getLogger(__name__)


def write_whole(path: Path, content: bytes | str | Callable[[BinaryIO], None]) -> None:
    """Write all of `content`, or what the function writes, or nothing: a temporary file is renamed."""
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
            raise _unwritable(path, error) from None
        raise


def read_yaml(path: Path, content: str, most: int = 16 * MIB) -> Any:
    """Contents of a YAML file of at most `most` bytes; `content` says what it describes, for errors."""
    import yaml

    try:
        with path.open("rb") as file:
            written = file.read(most + 1)
        if len(written) > most:
            raise BadInputError(f"{path} is larger than {format_bytes(most)}; name a file {content}")
        return yaml.safe_load(written.decode())
    except FileNotFoundError:
        raise BadInputError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise BadInputError(f"{path} is a folder; name a YAML file {content}") from None
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise BadInputError(f"{path} cannot be read as YAML: {one_line(str(error))}") from None


def read_user_file(path: Path, model: type[Model], content: str, most: int = 16 * MIB) -> Model:
    """The YAML file, of at most so many bytes, as a `model`; `content` is such as "that describes a host"."""
    return validate(model, read_yaml(path, content, most), str(path))


def allow_many_files() -> None:
    """Let this process keep as many files open as it may; by default it is often no more than 1024."""
    least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if least != most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def check_writable(path: Path) -> None:
    """Make sure a file can be written at `path` before something costly is done to fill it."""
    if path.is_dir():
        raise StorageError(f"{path} is a folder; name a file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, trial = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            os.write(handle, _TRIAL)
            os.fsync(handle)
        finally:
            os.close(handle)
            os.unlink(trial)
    except OSError as error:
        raise _unwritable(path, error) from None


class LockHeldError(StorageError):
    """Another process, or another part of this one, holds the lock."""


@contextlib.contextmanager
def file_lock(path: Path, refusal: str, wait: float = _LOOK) -> Iterator[None]:
    """Hold an advisory lock on a file, which stays; a process that dies lets go of it.

    Raises `LockHeldError(refusal)` while somebody else holds it, after `wait` seconds; by default those that
    `is_locked` may take.
    """
    from filelock import FileLock, Timeout

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path, mode=0o600, thread_local=False)
        lock.acquire(timeout=max(0.0, wait), poll_interval=max(0.01, min(_LOOK, wait / 10)))
    except Timeout:
        raise LockHeldError(refusal) from None
    except OSError as error:
        raise _unwritable(path, error) from None
    try:
        yield
    finally:
        lock.release()


def is_locked(path: Path) -> bool:
    """Whether somebody holds `file_lock` on the file; False where this user may not look."""
    from filelock import FileLock, Timeout

    if not path.exists():
        return False
    try:
        with FileLock(path, mode=0o600, blocking=False):
            return False
    except Timeout:
        return True
    except OSError:
        return False


class BackgroundWriter(Generic[T]):
    """Hands things to `write` in their order, in a thread of its own; all are written when the context ends.

    What cannot be written is logged once for each reason: `lost` begins the sentence, as in "a grant is not
    in the ledger".
    """

    def __init__(self, write: Callable[[T], None], lost: str) -> None:
        self._write_one, self._lost = write, lost
        self._waiting: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write, name="background writer", daemon=True)

    def put(self, thing: T) -> None:
        """To be written soon."""
        self._waiting.put(thing)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._waiting.put(None)
        self._thread.join()

    def _write(self) -> None:
        logged = set[str]()
        while (thing := self._waiting.get()) is not None:
            try:
                self._write_one(thing)
            except (OSError, TrimtabError) as error:
                if str(error) not in logged:
                    logged.add(str(error))
                    log.warning("%s: %s", self._lost, error)


def _unwritable(path: Path, error: OSError) -> StorageError:
    why = (error.strerror or str(error)).lower()
    return StorageError(
        f"{path} cannot be written: {why}; name another file, or another folder with TRIMTAB_HOME"
    )
