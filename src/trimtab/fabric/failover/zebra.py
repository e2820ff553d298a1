"""What zebra believes to have in the kernel, asked of zebra itself without starting a process."""

import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trimtab.core import TrimtabError
from trimtab.fabric.failover.traffic import Hop, Hops

_COMMAND = "show ip route bgp json"
_END = 4  # bytes at the end of an answer: three zeros and a status, which is zero too where all is well
_PATIENCE = 5.0  # s


def wanted_hops(folder: Path) -> dict[str, Hops]:
    """Next hops by prefix, of routes that the zebra with its socket in `folder` has chosen and installed.

    Those too that the kernel refused: zebra does not try again.
    """
    try:
        return hops_of(json.loads(_ask(folder / "zebra.vty", _COMMAND) or "{}"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TrimtabError(f"zebra's routes cannot be read: {error}") from None


def hops_of(told: Mapping[str, Any]) -> dict[str, Hops]:
    """Of what zebra tells as JSON."""
    return {prefix: hops for prefix, routes in told.items() for hops in _chosen(routes)}


def _chosen(routes: list[Mapping[str, Any]]) -> Iterator[Hops]:
    for route in routes:
        if route.get("selected") and (route.get("installed") or route.get("failed")):
            hops = [
                Hop(hop["interfaceName"], hop["ip"], int(hop.get("weight", 1)))
                for hop in route["nexthops"]
                if hop.get("active") and "ip" in hop and "interfaceName" in hop
            ]
            if hops:
                yield tuple(sorted(hops))


def _ask(path: Path, command: str) -> str:
    """What the daemon behind that socket answers, as it does to vtysh."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        made.settimeout(_PATIENCE)
        made.connect(str(path))
        made.sendall(command.encode() + b"\0")
        answer = b""
        while not answer.endswith(bytes(_END - 1), 0, -1):
            part = made.recv(1 << 16)
            if not part:
                raise TrimtabError(f"{path} does not answer to {command!r}")
            answer += part
    if answer[-1]:
        raise TrimtabError(f"{path} does not know {command!r}")
    return answer[:-_END].decode(errors="replace")
