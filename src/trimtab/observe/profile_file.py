"""A profile as a file: one JSON object, versioned, checked against its schema when read."""

import contextlib
import json
import os
import tempfile
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from trimtab.core import PROFILE_VERSION, BadInputError, Profile, StorageError, from_plain, to_plain

_TRIAL = b" " * 65536


def save_profile(profile: Profile, path: Path) -> None:
    """Write a profile: the whole of it, or nothing and a sentence why."""
    _write_whole(path, (json.dumps(to_plain(profile), indent=1) + "\n").encode())


def check_writable(path: Path) -> None:
    """Make sure a file can be written at `path` before something costly is done to fill it."""
    if path.is_dir():
        raise StorageError(f"{path} is a folder; name a file to write the profile to")
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


def load_profile(path: Path) -> Profile:
    """Read a profile. What is not one (missing, cut off, something else, too new) is told in a sentence."""
    plain = _read_object(path)
    version = plain.get("version")
    if not isinstance(version, int) or not {"workload", "series", "host"} <= plain.keys():
        raise BadInputError(f"{path} is JSON but not a profile; make one with: trimtab profile -- COMMAND")
    if version > PROFILE_VERSION:
        raise BadInputError(
            f"{path} is a profile of version {version}, and this Trimtab reads up to {PROFILE_VERSION}; "
            "update Trimtab or make the profile anew"
        )
    _validate(plain, path)
    return from_plain(Profile, plain, str(path))


def _read_object(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadInputError(
            f"there is no profile {path}; make one with: trimtab profile -- COMMAND"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not text"
        raise BadInputError(f"the profile {path} cannot be read: {reason.lower()}") from None
    try:
        plain = json.loads(text)
    except ValueError as error:
        if text.lstrip().startswith("{"):
            raise BadInputError(
                f"the profile {path} is cut off or damaged ({error}); make it anew with trimtab profile"
            ) from None
        raise BadInputError(f"{path} is not a profile: it is not JSON") from None
    if not isinstance(plain, dict):
        raise BadInputError(f"{path} is JSON but not a profile; make one with: trimtab profile -- COMMAND")
    return plain


@cache
def _schema() -> dict[str, Any]:
    text = resources.files("trimtab.observe").joinpath("profile.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def _validate(plain: dict[str, Any], path: Path) -> None:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(_schema()).iter_errors(plain))
    if error is not None:
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
        raise BadInputError(
            f"the profile {path} is damaged at {where.lstrip('.') or 'its top'}: {error.message:.120}"
        )


def _write_whole(path: Path, content: bytes) -> None:
    """Through a temporary file beside it, so that `path` is never half written."""
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> StorageError:
    return StorageError(
        f"the profile cannot be written to {path}: {(error.strerror or str(error)).lower()}; "
        "name another file with -o or another folder with TRIMTAB_HOME"
    )
