"""Policies by name. A new one is a file here and a line in `POLICIES`."""

from collections.abc import Callable

from trimtab.resize.policies.autopilot import Autopilot
from trimtab.resize.policies.escra import Escra
from trimtab.resize.policies.policy import CpuPolicy, Static
from trimtab.resize.policies.tracking import Tracking
from trimtab.resize.policies.vpa import Vpa

POLICIES: dict[str, Callable[[], CpuPolicy]] = {
    "trimtab": Tracking,
    "escra": Escra,
    "static": Static,
    "vpa": Vpa,
    "autopilot": Autopilot,
}
