"""How can anyone try it and break it? Hosts and switches on one machine, faults, and probes of outages."""

from trimtab.fabric.lab.faults import Cycle, Fault, Happened
from trimtab.fabric.lab.kinds import KINDS
from trimtab.fabric.lab.lab import Lab
from trimtab.fabric.lab.namespaces import sweep
from trimtab.fabric.lab.nodes import LabHost, LabSwitch
from trimtab.fabric.lab.readiness import Session, sessions

__all__ = [
    "KINDS",
    "Cycle",
    "Fault",
    "Happened",
    "Lab",
    "LabHost",
    "LabSwitch",
    "Session",
    "sessions",
    "sweep",
]
