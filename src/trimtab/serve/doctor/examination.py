"""Whether this machine is fit for Trimtab: findings of checks, what they disable, how to mend it.

Nothing is left behind: what has to be tried is tried in a control group, a network namespace or a file of
its own, which is removed. (A module that the kernel loads for a trial stays loaded.)
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from trimtab.core import BadInputError, TrimtabError, did_you_mean, one_line
from trimtab.serve.settings import Settings


class State(Enum):
    """Result of a check."""

    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was checked and seen; unless it is ok, what that disables and how to mend it.

    `needed`: `trimtab up` with these settings cannot do without.
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
    """An error's message in one line."""
    message = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return one_line(message) or type(error).__name__


Check = Callable[[Settings], Iterator[Finding]]

GROUPS: dict[str, str] = {}
"""By name, what a group of checks looks at."""

_CHECKS: dict[str, Check] = {}


def check(group: str, about: str) -> Callable[[Check], Check]:
    """Register a function as a group of checks; groups run in the order of their registration."""

    def register(function: Check) -> Check:
        GROUPS[group] = about
        _CHECKS[group] = function
        return function

    return register


@dataclass(frozen=True, slots=True)
class Examined:
    """A group and what was found there."""

    group: str
    findings: tuple[Finding, ...]


def examine(settings: Settings, only: Sequence[str] = ()) -> Iterator[Examined]:
    """Run all groups of checks, or those named, one after the other."""
    for name in only:
        if name not in GROUPS:
            raise BadInputError(
                f'there is no group "{name:.40}" to look at{did_you_mean(name, GROUPS)}; '
                f"there are {', '.join(GROUPS)}"
            )
    for group in GROUPS:
        if not only or group in only:
            yield Examined(group, tuple(_findings(group, settings)))


def fit(examined: Sequence[Examined]) -> bool:
    """Whether nothing is missing that `trimtab up` needs."""
    return not any(
        finding.needed and finding.state is State.MISSING for each in examined for finding in each.findings
    )


def _findings(group: str, settings: Settings) -> Iterator[Finding]:
    """A group that cannot be checked is a finding too; the others are checked all the same."""
    try:
        yield from _CHECKS[group](settings)
    except (TrimtabError, OSError, ImportError) as error:
        yield missing(group, f"cannot be looked at: {why(error)}", "not known", "see what it says")
