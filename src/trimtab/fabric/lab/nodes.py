"""What a lab is made of: hosts, switches, and where a host is plugged in."""

from dataclasses import dataclass

from trimtab.fabric.frr import Daemons, Switch
from trimtab.fabric.lab.layout import Cable
from trimtab.fabric.topology import Host


@dataclass(frozen=True, slots=True)
class LabHost:
    """A host: its short name, its namespace, what it is made of and its daemons."""

    label: str
    namespace: str
    host: Host
    daemons: Daemons


@dataclass(frozen=True, slots=True)
class LabSwitch:
    """A switch: its short name, its namespace, what it is made of and its daemons."""

    label: str
    namespace: str
    switch: Switch
    daemons: Daemons


@dataclass(frozen=True, slots=True)
class Plugged:
    """A cable and what is at its ends."""

    cable: Cable
    host: LabHost
    switch: LabSwitch

    def __str__(self) -> str:
        return f"{self.host.label} {self.cable.uplink}"
