"""Policies by name. A new one is a file here and a line in `POLICIES`."""

from collections.abc import Callable

from trimtab.resize.policies.autopilot import Autopilot, AutopilotSettings
from trimtab.resize.policies.escra import Escra, EscraSettings
from trimtab.resize.policies.policy import CpuPeriod, CpuPolicy, Static, Wishes
from trimtab.resize.policies.tracking import Tracking, TrackingSettings
from trimtab.resize.policies.vpa import Vpa, VpaSettings

__all__ = [
    "POLICIES",
    "Autopilot",
    "AutopilotSettings",
    "CpuPeriod",
    "CpuPolicy",
    "Escra",
    "EscraSettings",
    "Static",
    "Tracking",
    "TrackingSettings",
    "Vpa",
    "VpaSettings",
    "Wishes",
]

POLICIES: dict[str, Callable[[], CpuPolicy]] = {
    "trimtab": Tracking,
    "escra": Escra,
    "static": Static,
    "vpa": Vpa,
    "autopilot": Autopilot,
}
