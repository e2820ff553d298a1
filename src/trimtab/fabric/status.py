"""What a host's fabric is doing, for people and programs: written by its agent, and asked of FRR."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from trimtab.core import NotFoundError, TrimtabError
from trimtab.fabric.failover import Failover, UplinkNow
from trimtab.fabric.journal import RUN
from trimtab.kernel import write_whole

STATUS = "status.json"


@dataclass(frozen=True, slots=True)
class Status:
    """A host at `time` (seconds since the epoch), as its agent sees it.

    `paths` are the devices that lead to each destination; `gone` are destinations that had a path once, and
    since when they have none. `problems` are sentences.
    """

    host: str
    time: float
    uplinks: tuple[UplinkNow, ...]
    paths: dict[str, tuple[str, ...]]
    gone: dict[str, float]
    failovers: tuple[Failover, ...]
    problems: tuple[str, ...] = ()
    repairs: int = 0  # routes that FRR had lost without noticing, since the agent began
    late: int = 0  # ticks for probes that came late, since the agent began: the machine was busy or away
    failover_count: int = 0  # since the agent began
    failover_seconds: float = 0.0  # those, from hearing to new routes


@dataclass(frozen=True, slots=True)
class Sessions:
    """What FRR says: BFD sessions and BGP peers and their states, other hosts of each tenant's network."""

    bfd: dict[str, str] = field(default_factory=dict)  # by peer
    bgp: dict[str, str] = field(default_factory=dict)
    evpn: dict[str, str] = field(default_factory=dict)
    tunnels: dict[int, tuple[str, ...]] = field(default_factory=dict)  # loopbacks of others, by vni


def write_status(status: Status, folder: Path) -> None:
    """Keep it where `read_status` looks."""
    write_whole(folder / STATUS, json.dumps(asdict(status)))


def read_status(host: str, folder: Path | None = None) -> Status:
    """The latest that a host's agent wrote."""
    place = (folder or RUN / host) / STATUS
    try:
        return _status_of(json.loads(place.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise NotFoundError(
            f"no agent has run for a host {host} here; start one with trimtab fabric up HOST.yaml"
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise NotFoundError(f"{place} is not what an agent writes; start trimtab fabric up anew") from None


def fabrics_here() -> tuple[str, ...]:
    """Names of hosts that an agent has run for on this machine."""
    return tuple(sorted(place.parent.name for place in RUN.glob(f"*/{STATUS}")))


def ask_sessions(vtysh: Callable[[str], str]) -> Sessions:
    """What FRR says now; a sentence where it does not answer."""
    try:
        bfd = json.loads(vtysh("show bfd peers json") or "[]")
        bgp = json.loads(vtysh("show bgp summary json") or "{}")
        vnis = json.loads(vtysh("show evpn vni json") or "{}")
        return Sessions(
            {str(each["peer"]): str(each["status"]) for each in bfd},
            _peers(bgp.get("ipv4Unicast", {})),
            _peers(bgp.get("l2VpnEvpn", {})),
            {
                int(each["vni"]): tuple(sorted(each.get("remoteVteps") or ()))
                for each in vnis.values()
                if isinstance(each, dict) and each["vni"]  # a sender for all of them counts as 0
            },
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TrimtabError(f"what FRR says about its sessions cannot be read: {error}") from None


def _peers(told: Mapping[str, Any]) -> dict[str, str]:
    return {peer: str(each["state"]) for peer, each in (told.get("peers") or {}).items()}


def _status_of(told: Any) -> Status:
    return Status(
        str(told["host"]),
        float(told["time"]),
        tuple(UplinkNow(**each) for each in told["uplinks"]),
        {prefix: tuple(devices) for prefix, devices in told["paths"].items()},
        {prefix: float(since) for prefix, since in told["gone"].items()},
        tuple(Failover(**each) for each in told["failovers"]),
        tuple(map(str, told["problems"])),
        int(told["repairs"]),
        int(told["late"]),
        int(told["failover_count"]),
        float(told["failover_seconds"]),
    )


def plain_status(status: Status, sessions: Sessions) -> dict[str, Any]:
    """Both as plain values, for JSON."""
    return {**asdict(status), "sessions": asdict(sessions)}


def exposition(status: Status) -> str:
    """The agent's figures in Prometheus' text format."""
    name = f'host="{_escaped(status.host)}"'
    lines = list[str]()

    def family(metric: str, kind: str, says: str, rows: Mapping[str, float]) -> None:
        lines.extend((f"# HELP trimtab_fabric_{metric} {says}", f"# TYPE trimtab_fabric_{metric} {kind}"))
        lines.extend(
            f"trimtab_fabric_{metric}{{{name}{at}}} {float(value):.15g}" for at, value in rows.items()
        )

    uplinks = {f',uplink="{_escaped(each.device)}"': each for each in status.uplinks}
    family("uplink_up", "gauge", "whether it is used", {k: each.state == "up" for k, each in uplinks.items()})
    family(
        "uplink_dead", "gauge", "whether it is dead", {k: each.state == "dead" for k, each in uplinks.items()}
    )
    looped = {k: each.echo for k, each in uplinks.items() if each.echo is not None}
    family("uplink_echo", "gauge", "whether its switch sends probes back", looped)
    family("late_ticks_total", "counter", "probes that left late: busy, or away", {"": status.late})
    family("destinations", "gauge", "hosts and switches with a path", {"": len(status.paths)})
    family("destinations_gone", "gauge", "those that had a path once", {"": len(status.gone)})
    family("repairs_total", "counter", "routes that FRR had lost without noticing", {"": status.repairs})
    family("failovers_total", "counter", "uplinks that failed", {"": status.failover_count})
    family("failover_seconds_total", "counter", "from hearing to new routes", {"": status.failover_seconds})
    worst = max((failover.seconds for failover in status.failovers), default=0.0)
    family("failovers_kept", "gauge", "failovers on file", {"": len(status.failovers)})
    family("failover_worst_seconds", "gauge", "from hearing to new routes, of those", {"": worst})
    family("problems", "gauge", "sentences in the status", {"": len(status.problems)})
    family("status_time_seconds", "gauge", "when the agent wrote this, since 1970", {"": status.time})
    return "\n".join(lines) + "\n"


def _escaped(label: str) -> str:
    return label.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
