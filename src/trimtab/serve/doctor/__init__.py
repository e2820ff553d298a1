"""Is this machine fit for it? Looks at what Trimtab needs, and says what each missing thing disables.

Nothing is left behind: what has to be tried is tried in a control group, a network namespace or a file of
its own, which is removed. (A module that the kernel loads for a trial stays loaded.)
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

from trimtab.core import BadInputError, TrimtabError, did_you_mean
from trimtab.serve.doctor.finding import Finding, State, missing, why
from trimtab.serve.settings import Settings

Look = Callable[[Settings], Iterator[Finding]]

GROUPS: Mapping[str, str] = {
    "python": "this interpreter and the packages of each extra",
    "settings": "the files that settings name",
    "store": "where everything is kept: reachable, its schema, room and speed of its disk",
    "ports": "where it will listen",
    "permissions": "root, capabilities, real-time priority, open files",
    "cgroups": "limits of CPU and memory, tried on a group of its own",
    "network": "what the fabric asks of the kernel, tried in a namespace of its own",
    "programs": "programs that parts of it call",
    "gpu": "accelerators",
    "clock": "time that does not jump",
}
"""Each is a module of this package with a function `look`."""


@dataclass(frozen=True, slots=True)
class Examined:
    """A group and what was found there."""

    group: str
    findings: tuple[Finding, ...]


def examine(settings: Settings, only: Sequence[str] = ()) -> Iterator[Examined]:
    """Look at all groups, or those named, one after the other."""
    for name in only:
        if name not in GROUPS:
            raise BadInputError(
                f'there is no group "{name:.40}" to look at{did_you_mean(name, GROUPS)}; '
                f"there are {', '.join(GROUPS)}"
            )
    for group in GROUPS:
        if not only or group in only:
            yield Examined(group, tuple(_look(group, settings)))


def fit(examined: Sequence[Examined]) -> bool:
    """Whether nothing is missing that `trimtab up` needs."""
    return not any(
        finding.needed and finding.state is State.MISSING for each in examined for finding in each.findings
    )


def _look(group: str, settings: Settings) -> Iterator[Finding]:
    """A group that cannot be looked at is a finding too, and the others are looked at all the same."""
    look: Look = import_module(f"{__name__}.{group}").look
    try:
        yield from look(settings)
    except (TrimtabError, OSError, ImportError) as error:
        yield missing(group, f"cannot be looked at: {why(error)}", "not known", "see what it says")


__all__ = ["GROUPS", "Examined", "Finding", "State", "examine", "fit"]
