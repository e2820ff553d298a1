"""What this user may do: capabilities, real-time priority, how many files may be open."""

import os
import pwd
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from trimtab.serve.doctor.finding import Finding, missing, ok, warning
from trimtab.serve.settings import Settings

CAPABILITIES = (
    (12, "CAP_NET_ADMIN", "trimtab fabric, its lab"),
    (21, "CAP_SYS_ADMIN", "network namespaces: trimtab fabric, its lab"),
    (39, "CAP_BPF", "the fabric's data plane bpf (kernel takes its place)"),
    (23, "CAP_SYS_NICE", "real-time priority for the fabric's bfdd"),
    (1, "CAP_DAC_OVERRIDE", "trimtab agent for containers of other users"),
    (5, "CAP_KILL", "ending jobs of other users"),
)
"""Bit, name, and what goes without."""

_FILES_WANTED = 4096
# Real-time only for a moment, and never without the bound that ends who spins.
_TRIAL = (
    "import os, resource\n"
    "resource.setrlimit(resource.RLIMIT_RTTIME, (50000, 100000))\n"
    "os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))\n"
)


def look(settings: Settings) -> Iterator[Finding]:
    """The user first; then one line for all that the capabilities lack."""
    yield _user()
    held = _held()
    for bit, name, disables in CAPABILITIES:
        if held >> bit & 1:
            yield ok(name, "held")
        else:
            yield missing(
                name, "not held", disables, f"run as root, or give it: AmbientCapabilities={name} in a unit"
            )
    yield _real_time()
    yield _open_files()


def _user() -> Finding:
    number = os.geteuid()
    try:
        name = pwd.getpwuid(number).pw_name
    except KeyError:
        name = str(number)
    if number == 0:
        return ok("user", name)
    return warning("user", f"{name}, not root", "trimtab agent, trimtab fabric, profiles in a group", "sudo")


def _held() -> int:
    """The effective capabilities as bits; `/proc/self/status` has "CapEff:\t000001ffffffffff"."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("CapEff:")), 16)


def _real_time() -> Finding:
    try:
        words = [sys.executable, "-S", "-E", "-c", _TRIAL]
        allowed = subprocess.run(words, capture_output=True, timeout=10, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        allowed = False
    if allowed:
        return ok("real-time priority", "allowed")
    return warning(
        "real-time priority",
        "not allowed",
        "BFD at 10 ms on a busy machine: a slow answer may look like a dead link",
        "CAP_SYS_NICE, or LimitRTPRIO=10 in a unit; else longer BFD intervals in HOST.yaml",
    )


def _open_files() -> Finding:
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most == resource.RLIM_INFINITY or most >= _FILES_WANTED:
        return ok("open files", "any number" if most == resource.RLIM_INFINITY else f"up to {most}")
    return warning(
        "open files",
        f"at most {most}",
        "many containers under one agent, many callers at once",
        "ulimit -Hn 65536, or LimitNOFILE=65536 in a unit",
    )
