"""Agents of a lab's hosts: each is a process of its own, as on a real host."""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trimtab.core import NotFoundError, TrimtabError, one_line
from trimtab.fabric.agent import agent_runs
from trimtab.fabric.lab.nodes import LabHost
from trimtab.fabric.status import read_status
from trimtab.fabric.topology import Host

_EVERY = 0.05  # s
_PATIENCE = 30.0  # s to start, or to end

Run = Callable[..., "subprocess.Popen[Any]"]


def start_agents(hosts: Sequence[LabHost], run: Run) -> "list[subprocess.Popen[Any]]":
    """One for each host, all at work; `run` starts a process inside a host, counted from 0."""
    started = []
    for number, host in enumerate(hosts):
        file = host.daemons.folder / "host.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(file_of(host.host))
        words = [sys.executable, "-m", "trimtab.fabric.lab.agent_process", str(file)]
        with _said(host).open("wb") as said:
            started.append(run(number, words, stdin=subprocess.DEVNULL, stdout=said, stderr=said))
    give_up = time.monotonic() + _PATIENCE
    for host, process in zip(hosts, started, strict=True):
        while not _works(host):
            if process.poll() is not None or time.monotonic() > give_up:
                told = _said(host).read_text(errors="replace").strip().splitlines() or ["it does not say why"]
                raise TrimtabError(f"the agent of {host.label} does not start: {one_line(told[-1])}")
            time.sleep(_EVERY)
    return started


def stop_agents(processes: "Sequence[subprocess.Popen[Any]]") -> None:
    """The network stays as it is."""
    for process in processes:
        process.terminate()
    for process in processes:
        try:
            process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def file_of(host: Host) -> str:
    """The file that describes a host."""
    import yaml

    uplinks = [
        {
            "device": each.device,
            "address": str(each.address),
            "peer": str(each.peer),
            "peer_asn": each.peer_asn,
        }
        for each in host.uplinks
    ]
    tenants = {
        tenant.name: {
            "vni": tenant.vni,
            "devices": [
                {"name": device.name, "address": str(device.address), "mac": device.mac}
                for device in tenant.devices
            ],
        }
        for tenant in host.tenants
    }
    told = {
        "host": host.name,
        "loopback": str(host.loopback),
        "asn": host.asn,
        "uplinks": uplinks,
        "tenants": tenants,
        "mtu": host.mtu,
        "bfd": {"interval": host.timers.interval, "multiplier": host.timers.multiplier},
        "echo": asdict(host.timers.echo) if host.timers.echo else False,
        "hold": host.timers.hold,
        "settle": host.timers.settle,
        "rto_min": host.rto_min or False,
    }
    return yaml.safe_dump(told, sort_keys=False)


def _works(host: LabHost) -> bool:
    try:
        return agent_runs(host.host.name) and bool(read_status(host.host.name).uplinks)
    except NotFoundError:
        return False


def _said(host: LabHost) -> Path:
    return host.daemons.folder / "agent.log"
