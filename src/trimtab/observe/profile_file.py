"""A profile as a file: one JSON object, versioned, checked against its schema when read."""

import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from trimtab.core import PROFILE_VERSION, BadInputError, Profile, from_plain, to_plain
from trimtab.kernel import write_whole

_MAKE_ONE = "make one with: trimtab profile -- COMMAND"


def save_profile(profile: Profile, path: Path) -> None:
    """Write a profile atomically."""
    write_whole(path, json.dumps(to_plain(profile), indent=1) + "\n")


def load_profile(path: Path) -> Profile:
    """Read a profile; a file that is missing, cut off, too new or no profile raises `BadInputError`."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    plain = _read_json(path)
    version = plain.get("version") if isinstance(plain, dict) else None
    if not isinstance(version, int) or not {"workload", "series", "host"} <= plain.keys():
        raise BadInputError(f"{path} is JSON but not a profile; {_MAKE_ONE}")
    if version > PROFILE_VERSION:
        raise BadInputError(
            f"{path} is a profile of version {version}, and this Trimtab reads up to {PROFILE_VERSION}; "
            "update Trimtab or make the profile again"
        )
    error = best_match(Draft202012Validator(_schema()).iter_errors(plain))
    if error is not None:
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path)
        raise BadInputError(
            f"the profile {path} is damaged at {where.lstrip('.') or 'its top'}: {error.message:.120}"
        )
    return from_plain(Profile, plain, str(path))


def _read_json(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadInputError(f"there is no profile {path}; {_MAKE_ONE}") from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not text"
        raise BadInputError(f"the profile {path} cannot be read: {reason.lower()}") from None
    try:
        return json.loads(text)
    except ValueError as error:
        if text.lstrip().startswith("{"):
            raise BadInputError(f"the profile {path} is cut off or damaged ({error}); {_MAKE_ONE}") from None
        raise BadInputError(f"{path} is not a profile: it is not JSON; {_MAKE_ONE}") from None


@cache
def _schema() -> dict[str, Any]:
    text = resources.files("trimtab.observe").joinpath("profile.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema
