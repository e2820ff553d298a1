"""Policies by name. A new one is a file here and a line in `POLICIES`."""

from collections.abc import Callable

from trimtab.resize.policies.escra import Escra, EscraSettings
from trimtab.resize.policies.policy import CpuPeriod, CpuPolicy
from trimtab.resize.policies.static import Static
from trimtab.resize.policies.tracking import Tracking, TrackingSettings

__all__ = [
    "POLICIES",
    "CpuPeriod",
    "CpuPolicy",
    "Escra",
    "EscraSettings",
    "Static",
    "Tracking",
    "TrackingSettings",
]

POLICIES: dict[str, Callable[[], CpuPolicy]] = {
    "trimtab": Tracking,
    "escra": Escra,
    "static": Static,
}
