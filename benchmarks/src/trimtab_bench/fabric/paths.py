"""Whether a lab is whole again, asked cheaply and often: what waits for it must not load the machine."""

import json
import subprocess
from collections.abc import Mapping
from itertools import permutations
from typing import Any

from trimtab.fabric.lab.lab import Lab


def whole(lab: Lab) -> bool:
    """Every host uses all its uplinks to reach every other, every switch its own ports, and BFD watches."""
    return _hosts_spread(lab) and _switches_reach(lab) and _sessions_up(lab)


def _hosts_spread(lab: Lab) -> bool:
    """Next hops of hosts' routes to each other."""
    routes = {host.label: _routes(host.namespace) for host in lab.hosts}
    return all(
        routes[one.label].get(str(other.host.loopback)) == {uplink.device for uplink in one.host.uplinks}
        for one, other in permutations(lab.hosts, 2)
    )


def _switches_reach(lab: Lab) -> bool:
    """A switch's port has the name of the host that is plugged in there."""
    for switch in lab.switches:
        routes = _routes(switch.namespace)
        if any(host.label not in routes.get(str(host.host.loopback), ()) for host in lab.hosts):
            return False
    return True


def _sessions_up(lab: Lab) -> bool:
    """BFD sessions of hosts and switches, up for a second and no longer at the slow pace they begin with."""
    everyone = {host.daemons: len(host.host.uplinks) for host in lab.hosts}
    everyone |= {switch.daemons: len(switch.switch.ports) for switch in lab.switches}
    for daemons, expected in everyone.items():
        sessions = json.loads(daemons.vtysh("show bfd peers json"))
        if len(sessions) != expected or not all(map(_at_pace, sessions)):
            return False
    return True


def _at_pace(session: Mapping[str, Any]) -> bool:
    agreed = bool(session["remote-transmit-interval"] == session["transmit-interval"])
    return agreed and session["status"] == "up" and session.get("uptime", 0) >= 1


def _routes(namespace: str) -> dict[str, set[str]]:
    """Devices by destination."""
    words = ["ip", "-n", namespace, "-j", "route", "show"]
    told = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    return {each["dst"]: {str(hop["dev"]) for hop in each.get("nexthops", [each])} for each in told}
