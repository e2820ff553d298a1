"""Journal of changes to this machine, with the values before; written before anything is changed."""

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
    Bridge,
    DeviceAddress,
    FunctionMac,
    LeastTimeout,
    LinkSetting,
    Moved,
    NetworkResource,
    Pair,
    PlanStep,
    PortSetting,
    Sysctl,
    Tunnel,
)
from trimtab.kernel import write_whole

RUN = Path("/run/trimtab/fabric")
"""State of fabrics until the machine restarts, a folder for each."""
_KINDS: dict[str, Any] = {
    "Address": DeviceAddress,
    "Bridge": Bridge,
    "FunctionMac": FunctionMac,
    "LeastTimeout": LeastTimeout,
    "Moved": Moved,
    "Pair": Pair,
    "PortSetting": PortSetting,
    "Setting": LinkSetting,
    "Sysctl": Sysctl,
    "Tunnel": Tunnel,
}
_KIND_NAMES = {kind: name for name, kind in _KINDS.items()}


@dataclass(frozen=True, slots=True)
class Entry:
    """A step, and the resource's value before the step was first made.

    `earlier` are values that we wrote before this one, which a kill may have left there.
    """

    step: PlanStep
    before: str | None
    earlier: tuple[str, ...] = ()

    @property
    def undo_command(self) -> str:
        """The command that undoes it; "" where nothing is to be done."""
        return self.step.resource.command(self.before)

    def is_unchanged(self, machine: Machine) -> bool:
        """Whether the resource still has a value that we gave it."""
        return self.step.resource.read(machine) in (self.step.desired, *self.earlier)


@dataclass(frozen=True, slots=True)
class Journal:
    """All changes, in order. `where` is the identity of the network namespace."""

    name: str
    where: str
    entries: tuple[Entry, ...] = ()

    @property
    def devices(self) -> frozenset[str]:
        """Devices that were made or changed."""
        return frozenset(entry.step.resource.device for entry in self.entries) - {""}

    @property
    def addresses(self) -> frozenset[tuple[str, str, IPv4Interface]]:
        """Addresses that were added, as (namespace, device, address)."""
        resources = (entry.step.resource for entry in self.entries)
        return frozenset(
            (resource.namespace, resource.device, IPv4Interface(resource.address))
            for resource in resources
            if isinstance(resource, DeviceAddress)
        )

    def with_entries(self, entries: tuple[Entry, ...]) -> "Journal":
        """With steps about to be made; a resource that has an entry keeps its value from before the first."""
        by_resource = {entry.step.resource: entry for entry in self.entries}
        for entry in entries:
            first = by_resource.get(entry.step.resource, entry)
            values = dict.fromkeys((*first.earlier, first.step.desired))
            earlier = tuple(value for value in values if value != entry.step.desired)
            by_resource[entry.step.resource] = replace(entry, before=first.before, earlier=earlier)
        return replace(self, entries=tuple(by_resource.values()))

    def is_alive(self) -> bool:
        """Whether its network namespace still exists: a process is in it, or it has a name."""
        for path in (*NAMESPACES.glob("*"), *Path("/proc").glob("[0-9]*/ns/net")):
            try:
                status = os.stat(path)
            except OSError:  # a process that has ended, or is not for us to look at
                continue
            if self.where == f"{status.st_dev}:{status.st_ino}":
                return True
        return False

    def without(self, entries: tuple[Entry, ...]) -> "Journal":
        """Without entries that have been undone."""
        return replace(self, entries=tuple(entry for entry in self.entries if entry not in entries))

    def write(self) -> None:
        """Write the file atomically; that of an empty journal is removed."""
        path = folder(self.name) / "journal.json"
        if not self.entries:
            path.unlink(missing_ok=True)
            return
        write_whole(
            path, json.dumps({"where": self.where, "entries": list(map(_plain, self.entries))}, indent=1)
        )


def folder(name: str) -> Path:
    """The folder of that fabric's state."""
    if Path(name).name != name:
        raise BadInputError(f"{quoted(name):.80} is not a host's name: it has a slash or is empty")
    return RUN / name


def read_journal(name: str) -> Journal | None:
    """The journal of that fabric; None when there is none."""
    path = folder(name) / "journal.json"
    try:
        plain = json.loads(path.read_text())
        return Journal(name, str(plain["where"]), tuple(_entry(entry) for entry in plain["entries"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"{path}, the journal of changes to this machine, cannot be read ({error}); "
            f"undo the changes by hand, then remove the file"
        ) from None


def journals() -> Iterator[Journal]:
    """Journals of all fabrics that are up on this machine, in any network namespace."""
    for path in sorted(RUN.glob("*/journal.json")):
        journal = read_journal(path.parent.name)
        if journal is not None and journal.is_alive():
            yield journal


def _plain(entry: Entry) -> dict[str, Any]:
    resource: Any = entry.step.resource
    return {
        "kind": _KIND_NAMES[type(resource)],
        "place": asdict(resource),
        "wanted": entry.step.desired,
        "before": entry.before,
        "earlier": entry.earlier,
    }


def _entry(plain: Any) -> Entry:
    resource: NetworkResource = from_plain(_KINDS[plain["kind"]], plain["place"])
    return Entry(PlanStep(resource, plain["wanted"]), plain["before"], tuple(plain["earlier"]))
