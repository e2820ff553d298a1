"""Checks whether this machine is fit for Trimtab: what they find, what that disables, how to mend it.

Nothing is left behind: trials use a control group, a network namespace or a file of their own, which is
removed. (A module that the kernel loads for a trial stays loaded.)
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from trimtab.core import BadInputError, TrimtabError, did_you_mean, one_line
from trimtab.serve.settings import Settings


class FindingState(Enum):
    OK = "ok"
    WARNING = "warning"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Finding:
    """A checked thing and what was seen; unless it is ok, what that disables and how to mend it.

    `needed`: `trimtab up` with these settings does not work without it.
    """

    what: str
    state: FindingState
    seen: str
    disables: str = ""
    mend: str = ""
    needed: bool = False


def ok(what: str, seen: str, needed: bool = False) -> Finding:
    return Finding(what, FindingState.OK, seen, needed=needed)


def warning(what: str, seen: str, disables: str, mend: str) -> Finding:
    """A finding that makes something work less well."""
    return Finding(what, FindingState.WARNING, seen, disables, mend)


def missing(what: str, seen: str, disables: str, mend: str, needed: bool = False) -> Finding:
    """A finding that something is absent or may not be used."""
    return Finding(what, FindingState.MISSING, seen, disables, mend, needed)


def why(error: BaseException) -> str:
    """An error's message in one line."""
    message = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return one_line(message) or type(error).__name__


Check = Callable[[Settings], Iterator[Finding]]

GROUPS: dict[str, str] = {}
"""Descriptions of the groups of checks, by name."""

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
    group: str
    findings: tuple[Finding, ...]


def examine(settings: Settings, only: Sequence[str] = ()) -> Iterator[Examined]:
    """Run all groups of checks, or those named, one after the other."""
    for name in only:
        if name not in GROUPS:
            raise BadInputError(
                f'there is no group of checks "{name:.40}"{did_you_mean(name, GROUPS)}; '
                f"there are {', '.join(GROUPS)}"
            )
    for group in (name for name in GROUPS if not only or name in only):
        # A group that cannot be checked is a finding too; the others are checked all the same.
        findings: list[Finding] = []
        try:
            findings.extend(_CHECKS[group](settings))
        except (TrimtabError, OSError, ImportError) as error:
            findings.append(
                missing(group, f"cannot be checked: {why(error)}", "not known", "see the message")
            )
        yield Examined(group, tuple(findings))


def fit(examined: Sequence[Examined]) -> bool:
    """Whether nothing is missing that `trimtab up` needs."""
    findings = (finding for group in examined for finding in group.findings)
    return not any(finding.needed and finding.state is FindingState.MISSING for finding in findings)
