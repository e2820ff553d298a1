"""A first line that says whose a configuration file is, and by which an edit by hand is noticed."""

import hashlib
import re
from pathlib import Path

from trimtab.core import BadInputError, one_line

_LINE = "! Trimtab wrote this file and refuses to run with it once it is edited: sha256 {digest}\n"
_PATTERN = re.compile(r"! Trimtab wrote this file\b.* sha256 ([0-9a-f]{64})\n")


def sealed(content: str) -> str:
    """The content under its first line."""
    return _LINE.format(digest=digest_of(content)) + content


def digest_of(content: str) -> str:
    """What changes when the content does."""
    return hashlib.sha256(content.encode()).hexdigest()


def check_untouched(path: Path) -> None:
    """Refuse a file that somebody else wrote or edited; one that is not there is fine."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return
    except OSError as error:
        raise BadInputError(f"{path} cannot be read: {one_line(str(error))}") from None
    match = _PATTERN.match(text)
    if match is None:
        raise BadInputError(f"{path} is not a file that Trimtab wrote; move it away, then start again")
    if match[1] != digest_of(text[match.end() :]):
        raise BadInputError(
            f"{path} was edited by hand; say the change in the host's file instead, "
            f"then remove {path.name} so that it is written anew"
        )
