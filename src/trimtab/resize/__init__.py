"""How much CPU and memory, right now? Pools, policies, how a cap is shared, and the agent of a node."""

from trimtab.resize.agent import Agent, Grant
from trimtab.resize.controller import Controller, Limits
from trimtab.resize.discovery import Discovery, containers
from trimtab.resize.journal import Journal
from trimtab.resize.kubelet import KubeletGroup, kubelet_group
from trimtab.resize.kubernetes import PodWatch, kubernetes_find
from trimtab.resize.memory import MemorySettings, granted, reclaimed, urgently_reclaimed
from trimtab.resize.metrics import exposition, metrics_server
from trimtab.resize.node import Node
from trimtab.resize.period import PERIOD
from trimtab.resize.pod_resize import ContainerSize, Resized, resize_pod
from trimtab.resize.policies import (
    POLICIES,
    Autopilot,
    AutopilotSettings,
    CpuPeriod,
    CpuPolicy,
    Escra,
    EscraSettings,
    Static,
    Tracking,
    Vpa,
    VpaSettings,
    Wishes,
)
from trimtab.resize.pool import Container, Pool, Selector, owner, read_pools
from trimtab.resize.sharing import fair_limits, floors_within, grown
from trimtab.resize.status import Status, read_status, status_of, write_status

__all__ = [
    "PERIOD",
    "POLICIES",
    "Agent",
    "Autopilot",
    "AutopilotSettings",
    "Container",
    "ContainerSize",
    "Controller",
    "CpuPeriod",
    "CpuPolicy",
    "Discovery",
    "Escra",
    "EscraSettings",
    "Grant",
    "Journal",
    "KubeletGroup",
    "Limits",
    "MemorySettings",
    "Node",
    "PodWatch",
    "Pool",
    "Resized",
    "Selector",
    "Static",
    "Status",
    "Tracking",
    "Vpa",
    "VpaSettings",
    "Wishes",
    "containers",
    "exposition",
    "fair_limits",
    "floors_within",
    "granted",
    "grown",
    "kubelet_group",
    "kubernetes_find",
    "metrics_server",
    "owner",
    "read_pools",
    "read_status",
    "reclaimed",
    "resize_pod",
    "status_of",
    "urgently_reclaimed",
    "write_status",
]
