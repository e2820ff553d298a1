"""What a look at one thing of this machine found."""

from dataclasses import dataclass
from enum import Enum

from trimtab.core import one_line


class State(Enum):
    """How a thing stands."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was looked at and seen; where it is not well, what that disables and how to mend it.

    `needed` says that `trimtab up`, as it is set here, cannot do without.
    """

    what: str
    state: State
    seen: str
    disables: str = ""
    mend: str = ""
    needed: bool = False


def ok(what: str, seen: str, needed: bool = False) -> Finding:
    """All is well."""
    return Finding(what, State.OK, seen, needed=needed)


def warning(what: str, seen: str, disables: str, mend: str) -> Finding:
    """It works, less well."""
    return Finding(what, State.WARNING, seen, disables, mend)


def missing(what: str, seen: str, disables: str, mend: str, needed: bool = False) -> Finding:
    """It is not there, or may not be used."""
    return Finding(what, State.MISSING, seen, disables, mend, needed)


def why(error: BaseException) -> str:
    """What a refusal says, in one line."""
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return one_line(told) or type(error).__name__
