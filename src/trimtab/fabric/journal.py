"""What a fabric changed on this machine and how it was before, on file before anything is changed."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from ipaddress import IPv4Interface
from pathlib import Path
from typing import Any

from trimtab.core import BadInputError, StorageError, from_plain, quoted
from trimtab.fabric.machine import NAMESPACES, Machine
from trimtab.fabric.steps import (
    Address,
    Bridge,
    FunctionMac,
    LeastTimeout,
    Moved,
    Pair,
    Place,
    PortSetting,
    Setting,
    Step,
    Sysctl,
    Tunnel,
)
from trimtab.kernel import write_whole

RUN = Path("/run/trimtab/fabric")
"""Where fabrics keep what lasts until the machine starts anew, a folder for each."""
_KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        Address,
        Bridge,
        FunctionMac,
        LeastTimeout,
        Moved,
        Pair,
        PortSetting,
        Setting,
        Sysctl,
        Tunnel,
    )
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A step, and the place's value before the first time that it was made.

    `earlier` are values that we gave the place before this one, which a kill may have left there.
    """

    step: Step
    before: str | None
    earlier: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The command that undoes it; "" where nothing is to be done."""
        return self.step.place.words(self.before)

    def is_ours(self, machine: Machine) -> bool:
        """Whether the place has a value that we gave it."""
        return self.step.place.now(machine) in (self.step.wanted, *self.earlier)


@dataclass(frozen=True, slots=True)
class Journal:
    """All that was changed, in order. `where` is the identity of the network namespace."""

    name: str
    where: str
    entries: tuple[Entry, ...] = ()

    @property
    def devices(self) -> frozenset[str]:
        """Devices that were made or changed."""
        return frozenset(entry.step.place.device for entry in self.entries) - {""}

    @property
    def addresses(self) -> frozenset[tuple[str, str, IPv4Interface]]:
        """Addresses that were added: in which namespace, on which device."""
        places = (entry.step.place for entry in self.entries)
        return frozenset(
            (place.namespace, place.device, IPv4Interface(place.address))
            for place in places
            if isinstance(place, Address)
        )

    def with_entries(self, entries: tuple[Entry, ...]) -> "Journal":
        """With steps about to be made; of a place that is known, what was there first is kept."""
        known = {entry.step.place: entry for entry in self.entries}
        for entry in entries:
            first = known.get(entry.step.place, entry)
            given = dict.fromkeys((*first.earlier, first.step.wanted))
            earlier = tuple(value for value in given if value != entry.step.wanted)
            known[entry.step.place] = replace(entry, before=first.before, earlier=earlier)
        return replace(self, entries=tuple(known.values()))

    def is_alive(self) -> bool:
        """Whether its network namespace is still there: somebody is in it, or it has a name."""
        for path in (*NAMESPACES.glob("*"), *Path("/proc").glob("[0-9]*/ns/net")):
            try:
                found = os.stat(path)
            except OSError:  # a process that has ended, or is not for us to look at
                continue
            if self.where == f"{found.st_dev}:{found.st_ino}":
                return True
        return False

    def without(self, entries: tuple[Entry, ...]) -> "Journal":
        """Without what has been undone."""
        return replace(self, entries=tuple(each for each in self.entries if each not in entries))

    def write(self) -> None:
        """Keep it, whole; an empty one is removed."""
        path = _path(self.name)
        if not self.entries:
            path.unlink(missing_ok=True)
            return
        plain = {"where": self.where, "entries": [_plain(entry) for entry in self.entries]}
        write_whole(path, json.dumps(plain, indent=1))


def folder(name: str) -> Path:
    """Where the fabric of that name keeps what it needs while it is up."""
    if Path(name).name != name:
        raise BadInputError(f"{quoted(name):.80} is no name of a host; it would be another folder than ours")
    return RUN / name


def read_journal(name: str) -> Journal | None:
    """What is on file; None when there is no such fabric."""
    path = _path(name)
    try:
        told = json.loads(path.read_text())
        return Journal(name, str(told["where"]), tuple(_entry(each) for each in told["entries"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"{path} says what was changed on this machine and cannot be read ({error}); "
            f"remove it once you have undone by hand what is left"
        ) from None


def journals() -> Iterator[Journal]:
    """Those of all fabrics that are up on this machine, in whatever network namespace."""
    for path in sorted(RUN.glob("*/journal.json")):
        found = read_journal(path.parent.name)
        if found is not None and found.is_alive():
            yield found


def _path(name: str) -> Path:
    return folder(name) / "journal.json"


def _plain(entry: Entry) -> dict[str, Any]:
    place: Any = entry.step.place
    return {
        "kind": type(place).__name__,
        "place": asdict(place),
        "wanted": entry.step.wanted,
        "before": entry.before,
        "earlier": entry.earlier,
    }


def _entry(told: Any) -> Entry:
    place: Place = from_plain(_KINDS[told["kind"]], told["place"])
    return Entry(Step(place, told["wanted"]), told["before"], tuple(told["earlier"]))
