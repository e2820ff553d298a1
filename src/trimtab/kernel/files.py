"""Files that are never half written: into a temporary one beside, to the disk, then renamed over."""

import contextlib
import fcntl
import os
import resource
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from trimtab.core import BadInputError, StorageError, StrictModel, one_line, validate

Model = TypeVar("Model", bound=StrictModel)

# As much as anything written here in one piece, so that a disk about to be full is noticed beforehand.
_TRIAL = b" " * 65536
_LOCK = struct.Struct("@hhqqi4x")  # struct flock: type, whence, start, length, process
_WHOLE = _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


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
            raise _unwritable(path, error) from None
        raise


def read_yaml(path: Path, content: str) -> Any:
    """What a YAML file says; `content` names what it should describe, for who names a folder instead."""
    import yaml

    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInputError(f"there is no file {path}") from None
    except IsADirectoryError:
        raise BadInputError(f"{path} is a folder; name a YAML file {content}") from None
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, yaml.YAMLError, RecursionError) as error:
        raise BadInputError(f"{path} cannot be read as YAML: {one_line(str(error))}") from None


def read_user_file(path: Path, model: type[Model], content: str) -> Model:
    """The YAML file as a `model`; `content` says what the file describes, as "that describes a host"."""
    return validate(model, read_yaml(path, content), str(path))


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


@contextlib.contextmanager
def held_alone(path: Path, refusal: str) -> Iterator[None]:
    """Be the only one who holds that file, which stays; who dies lets go. Refused while another holds it."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unwritable(path, error) from None
    try:
        try:
            fcntl.fcntl(handle, fcntl.F_OFD_SETLK, _WHOLE)
        except BlockingIOError:
            raise StorageError(refusal) from None
        yield
    finally:
        os.close(handle)


def is_held(path: Path) -> bool:
    """Whether somebody holds that file alone; looking keeps nobody from taking it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        found = fcntl.fcntl(handle, fcntl.F_OFD_GETLK, _WHOLE)
    finally:
        os.close(handle)
    return bool(_LOCK.unpack(found)[0] != fcntl.F_UNLCK)


def _unwritable(path: Path, error: OSError) -> StorageError:
    why = (error.strerror or str(error)).lower()
    return StorageError(
        f"{path} cannot be written: {why}; name another file, or another folder with TRIMTAB_HOME"
    )
