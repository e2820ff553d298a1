"""A profile as a file: one JSON object, versioned, checked against its schema when read."""

import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from trimtab.core import PROFILE_VERSION, BadInputError, Profile, from_plain, to_plain
from trimtab.kernel import write_whole


def save_profile(profile: Profile, path: Path) -> None:
    """Write a profile: the whole of it, or nothing and a sentence why."""
    write_whole(path, json.dumps(to_plain(profile), indent=1) + "\n")


def load_profile(path: Path) -> Profile:
    """Read a profile; a file that is missing, cut off, too new or no profile raises `BadInputError`."""
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
