"""How can anyone try it and break it? Hosts and switches on one machine, faults, and probes of outages."""

from trimtab.fabric.lab.faults import Cycle, Fault, Happened
from trimtab.fabric.lab.kinds import KINDS
from trimtab.fabric.lab.lab import Lab
from trimtab.fabric.lab.namespaces import sweep
from trimtab.fabric.lab.nodes import LabHost, LabSwitch
from trimtab.fabric.lab.probes import Outage, Probes, busiest_uplink, traffic
from trimtab.fabric.lab.states import UplinkState, instructions, uplink_states

__all__ = [
    "KINDS",
    "Cycle",
    "Fault",
    "Happened",
    "Lab",
    "LabHost",
    "LabSwitch",
    "Outage",
    "Probes",
    "UplinkState",
    "busiest_uplink",
    "instructions",
    "sweep",
    "traffic",
    "uplink_states",
]
