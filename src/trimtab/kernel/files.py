"""Files: written atomically, read as YAML, locked, and written in the background."""

import contextlib
import ctypes
import errno
import logging
import os
import queue
import resource
import stat
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

# At least as long as any file written here, so that a nearly full disk is noticed before.
_TRIAL = b" " * 65536
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # of fallocate(2)
_BLOCK = 4096
_LOOK = 0.1  # s; far longer than `is_locked` holds a free lock

log = logging.getLogger(__name__)


def write_whole(
    path: Path,
    content: bytes | str | Callable[[BinaryIO], None],
    mode: int = 0o644,
    durable: bool = True,
) -> None:
    """Write `content`, or what the function writes, atomically: a temporary file is renamed.

    A file that is not `durable` may be lost if the machine loses power soon after, and costs no disk access.
    """
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
            if durable:
                os.fsync(file.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise _unwritable(path, error) from None
        raise


def open_untrusted(path: Path) -> BinaryIO:
    """Open a file for reading in a folder that a job can write to; OSError unless it is a regular file.

    A job could put there a link, also a hard link, to another tenant's file, or a pipe that would block the
    reader: none of them is opened.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file with a single name", str(path))
    return os.fdopen(descriptor, "rb")


def drop_head(descriptor: int, keep: int) -> int:
    """Free the disk space of a file but for about its last `keep` bytes; returns its size.

    Positions stay what they were, because the freed part becomes a hole. On a file system without holes the
    file is cut to nothing, and begins anew.
    """
    status = os.fstat(descriptor)
    if status.st_blocks * 512 <= keep * 5 // 4:
        return status.st_size
    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    length = (status.st_size - keep) // _BLOCK * _BLOCK
    if length > 0 and fallocate(descriptor, _KEEP_SIZE | _PUNCH_HOLE, 0, length) != 0:
        os.ftruncate(descriptor, 0)
        return 0
    return status.st_size


def read_yaml(path: Path, content: str, most: int = 16 * MIB) -> Any:
    """Contents of a YAML file of at most `most` bytes; `content` says in errors what it describes."""
    import yaml

    try:
        with path.open("rb") as file:
            text = file.read(most + 1)
        if len(text) > most:
            raise BadInputError(f"{path} is larger than {format_bytes(most)}; name a file {content}")
        return yaml.safe_load(text.decode())
    except FileNotFoundError:
        raise BadInputError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise BadInputError(f"{path} is a folder; name a YAML file {content}") from None
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise BadInputError(f"{path} cannot be read as YAML: {one_line(str(error))}") from None


def read_user_file(path: Path, model: type[Model], content: str, most: int = 16 * MIB) -> Model:
    """A YAML file of at most `most` bytes as a `model`; `content` is such as "that describes a host"."""
    return validate(model, read_yaml(path, content, most), str(path))


def allow_many_files() -> None:
    """Raise the limit of open files to the most that is allowed; the default is often 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def check_writable(path: Path) -> None:
    """Raise StorageError unless a file can be written at `path`; call it before costly work."""
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
    """Hold an advisory lock on a file, which is not removed; a process that dies releases it.

    Raises `LockHeldError(refusal)` if another holder keeps it for `wait` seconds; the default outlasts
    `is_locked`.
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
    """Whether `file_lock` is held on the file; False where this user may not open it."""
    from filelock import FileLock, Timeout

    if not path.exists():
        return False
    try:
        with FileLock(path, mode=0o600, blocking=False):
            return False
    except (Timeout, OSError) as error:
        return isinstance(error, Timeout)


class BackgroundWriter(Generic[T]):
    """Calls `write` with items in order, in a background thread; all are written when the context ends.

    Failures are logged once for each reason: `lost` begins the message, as in "a grant is not in the ledger".
    """

    def __init__(self, write: Callable[[T], None], lost: str) -> None:
        self._write_one, self._lost = write, lost
        self._queue: queue.SimpleQueue[T | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._write_all, name="background writer", daemon=True)

    def put(self, item: T) -> None:
        self._queue.put(item)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._queue.put(None)
        self._thread.join()

    def _write_all(self) -> None:
        logged = set[str]()
        while (item := self._queue.get()) is not None:
            try:
                self._write_one(item)
            except (OSError, TrimtabError) as error:
                if str(error) not in logged:
                    logged.add(str(error))
                    log.warning("%s: %s", self._lost, error)


def _unwritable(path: Path, error: OSError) -> StorageError:
    why = (error.strerror or str(error)).lower()
    return StorageError(
        f"{path} cannot be written: {why}; name another file, or another folder with TRIMTAB_HOME"
    )
