"""How much CPU and memory, right now? Pools, policies and how a cap is shared."""

from trimtab.resize.memory import MemorySettings, granted, reclaimed, urgently_reclaimed
from trimtab.resize.policies import POLICIES, CpuPeriod, CpuPolicy, Escra, EscraSettings, Static, Tracking
from trimtab.resize.pool import Container, Pool, Selector, owner, read_pools
from trimtab.resize.sharing import fair_limits, floors_within, grown, shrunk

__all__ = [
    "POLICIES",
    "Container",
    "CpuPeriod",
    "CpuPolicy",
    "Escra",
    "EscraSettings",
    "MemorySettings",
    "Pool",
    "Selector",
    "Static",
    "Tracking",
    "fair_limits",
    "floors_within",
    "granted",
    "grown",
    "owner",
    "read_pools",
    "reclaimed",
    "shrunk",
    "urgently_reclaimed",
]
