"""Which path carries the traffic now? Failures heard at once, routes written at once, flapping held off."""

from trimtab.fabric.failover.bfd import BfdSocket, Session
from trimtab.fabric.failover.echo_watch import EchoWatch
from trimtab.fabric.failover.echoes import Echoes, Looped
from trimtab.fabric.failover.events import Failover, FailoverRecord, read_failovers
from trimtab.fabric.failover.keeper import PathKeeper, Paths, UplinkNow
from trimtab.fabric.failover.notices import Notice, Notices
from trimtab.fabric.failover.sockets import made_in
from trimtab.fabric.failover.traffic import Hop, Route, Traffic, chosen
from trimtab.fabric.failover.uplinks import Uplinks
from trimtab.fabric.failover.zebra import hops_of, wanted_hops

__all__ = [
    "BfdSocket",
    "EchoWatch",
    "Echoes",
    "Failover",
    "FailoverRecord",
    "Hop",
    "Looped",
    "Notice",
    "Notices",
    "PathKeeper",
    "Paths",
    "Route",
    "Session",
    "Traffic",
    "UplinkNow",
    "Uplinks",
    "chosen",
    "hops_of",
    "made_in",
    "read_failovers",
    "wanted_hops",
]
