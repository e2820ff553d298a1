"""Checks of the machine: permissions, control groups, network, programs, accelerators, clock."""

import ctypes
import os
import pwd
import resource
import shutil
import struct
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from trimtab.core import MissingDependencyError, TrimtabError, format_duration, one_line
from trimtab.kernel import LimitedGroup, NetworkNamespace, NoNamespaceError, find_hierarchy
from trimtab.serve.doctor.examination import Finding, check, missing, ok, warning, why
from trimtab.serve.settings import Settings

CAPABILITIES = (
    (12, "CAP_NET_ADMIN", "trimtab fabric, its lab"),
    (21, "CAP_SYS_ADMIN", "network namespaces: trimtab fabric, its lab"),
    (39, "CAP_BPF", "the fabric's data plane bpf (kernel takes its place)"),
    (23, "CAP_SYS_NICE", "real-time priority for the fabric's bfdd"),
    (1, "CAP_DAC_OVERRIDE", "trimtab agent for containers of other users"),
    (5, "CAP_KILL", "ending jobs of other users"),
)
"""Bit, name, and what does not work without it."""

_FILES_WANTED = 4096
# Real-time only for a moment, and with the limit that ends a process that spins.
_REAL_TIME_TRIAL = (
    "import os, resource\n"
    "resource.setrlimit(resource.RLIMIT_RTTIME, (50000, 100000))\n"
    "os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))\n"
)


@check("permissions", "root, capabilities, real-time priority, open files")
def check_permissions(settings: Settings) -> Iterator[Finding]:
    number = os.geteuid()
    try:
        name = pwd.getpwuid(number).pw_name
    except KeyError:
        name = str(number)
    if number == 0:
        yield ok("user", name)
    else:
        yield warning(
            "user", f"{name}, not root", "trimtab agent, trimtab fabric, profiles in a group", "sudo"
        )
    # /proc/self/status has "CapEff:\t000001ffffffffff".
    lines = Path("/proc/self/status").read_text().splitlines()
    held = int(next(line.split()[1] for line in lines if line.startswith("CapEff:")), 16)
    for bit, name, disables in CAPABILITIES:
        if held >> bit & 1:
            yield ok(name, "held")
        else:
            mend = f"run as root, or give it: AmbientCapabilities={name} in a unit"
            yield missing(name, "not held", disables, mend)
    try:
        words = [sys.executable, "-S", "-E", "-c", _REAL_TIME_TRIAL]
        allowed = subprocess.run(words, capture_output=True, timeout=10, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        allowed = False
    if allowed:
        yield ok("real-time priority", "allowed")
    else:
        disables = "BFD at 10 ms on a busy machine: a slow answer may look like a dead link"
        mend = "CAP_SYS_NICE, or LimitRTPRIO=10 in a unit; else longer BFD intervals in HOST.yaml"
        yield warning("real-time priority", "not allowed", disables, mend)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most == resource.RLIM_INFINITY or most >= _FILES_WANTED:
        yield ok("open files", "any number" if most == resource.RLIM_INFINITY else f"up to {most}")
    else:
        disables = "many containers under one agent, many callers at once"
        yield warning(
            "open files", f"at most {most}", disables, "ulimit -Hn 65536, or LimitNOFILE=65536 in a unit"
        )


_TRIAL_CPUS, _TRIAL_MEMORY = 0.5, 64 * 2**20  # of the trial's group, in which nothing runs
_MOUNT = "mount -t cgroup2 none /sys/fs/cgroup (in a container: give it the host's)"
_DELEGATE = "run as root, or under systemd with Delegate=yes"


@check("cgroups", "limits of CPU and memory, tried on a group of its own")
def check_cgroups(settings: Settings) -> Iterator[Finding]:
    """The mounted hierarchy; then a new group, limited and removed."""
    is_local = settings.engine.startswith("local:")
    disables = "local:// jobs, trimtab agent, profiles by group"
    hierarchy = find_hierarchy()
    if hierarchy is None:
        seen = "none are mounted with cpu and memory"
        yield missing("control groups", seen, disables, _MOUNT, needed=is_local)
        return
    folders = f": {', '.join(sorted(hierarchy.folders))}" if hierarchy.version == 1 else ""
    yield ok("control groups", f"version {hierarchy.version}{folders}")
    try:
        with LimitedGroup.create(hierarchy) as group:
            group.limit_cpus(_TRIAL_CPUS)
            group.limit_memory(_TRIAL_MEMORY)
            yield ok("limits", "set on a new group, which is removed again", needed=is_local)
            # Version 1 pauses a container that runs out of memory; version 2 slows it down before.
            file, exists = group.memory_trap()
            if exists:
                how = "out-of-memory traps" if group.version == 1 else "slowing down before the limit"
                yield ok("memory grants", f"{how} ({file})")
            else:
                grants = "granting memory instead of a kill: trimtab agent"
                mend = "a kernel with that file (Linux 4.5 or later)"
                yield warning("memory grants", f"no {file}", grants, mend)
    except (TrimtabError, OSError) as error:
        yield missing("limits", why(error), disables, _DELEGATE, needed=is_local)


NETWORK_TRIALS = (
    ("veth", "ip link add name t0 type veth peer name t1", "devices for workers: trimtab fabric"),
    ("bridge", "ip link add name t2 type bridge", "tenants: trimtab fabric"),
    ("vxlan", "ip link add name t3 type vxlan id 1 dstport 4789 local 127.0.0.1", "tunnels: trimtab fabric"),
    ("vxlan external", "ip link add name t4 type vxlan dstport 4790 external", "the fabric's data plane bpf"),
    ("next hops", "ip nexthop add id 1 blackhole", "quick failover: trimtab fabric"),
    ("clsact", "tc qdisc add dev lo clsact", "the fabric's data planes bpf and flower (kernel is left)"),
)
"""Feature, the command that tries it, and what does not work without it."""

_PATIENCE = 5.0  # s
_MODULES = "a kernel with it: apt-get install linux-image-amd64, or modprobe"


@check("network", "what the fabric needs of the kernel, tried in a namespace of its own")
def check_network(settings: Settings) -> Iterator[Finding]:
    """Kernel features and data planes; this machine's own network is not touched."""
    absent = [name for name in ("ip", "tc") if shutil.which(name) is None]
    if absent:
        mend = "apt-get install iproute2"
        yield missing("kernel features", f"no {' and no '.join(absent)} to try them", "trimtab fabric", mend)
        return
    try:
        with NetworkNamespace() as namespace:
            for feature, command, disables in NETWORK_TRIALS:
                done = subprocess.run(
                    command.split(),
                    capture_output=True,
                    text=True,
                    timeout=_PATIENCE,
                    preexec_fn=namespace.enter,
                )
                if done.returncode == 0:
                    yield ok(feature, "works")
                else:
                    seen = one_line(done.stderr)[:100] or f"status {done.returncode}"
                    yield missing(feature, seen, disables, _MODULES)
    except NoNamespaceError as error:
        yield missing("network namespaces", str(error), "trimtab fabric, its lab", "run as root")
        return
    from trimtab.fabric import bpf_unavailable, flower_unavailable

    for name, reason, disables in (
        ("bpf", bpf_unavailable(), "flows spread over both uplinks (kernel takes its place)"),
        ("flower", flower_unavailable(), "rules that a network card forwards by itself"),
    ):
        if reason is None:
            yield ok(f"plane {name}", "works")
        else:
            yield missing(f"plane {name}", one_line(reason)[:140], disables, _MODULES)


PROGRAMS = (
    ("ip", "trimtab fabric", "apt-get install iproute2"),
    ("tc", "the fabric's data plane flower", "apt-get install iproute2"),
    ("prlimit", "real-time priority for the fabric's bfdd", "apt-get install util-linux"),
    ("sbatch", "slurm://", "apt-get install slurm-client"),
    (
        "kubectl",
        "applying packaging/kubernetes (kubernetes:// needs none)",
        "kubectl 1.22 or later from the Kubernetes project; Debian 12 has an older one",
    ),
    ("runc", "trimtab bench resize", "apt-get install runc"),
    ("clang", "compiling the fabric's packet program anew, for developers", "apt-get install clang"),
    ("bpftool", "looking at the fabric's packet program, for developers", "apt-get install bpftool"),
)
"""Name, what does not work without it, and how to get it on Debian."""


@check("programs", "programs that parts of it call")
def check_programs(settings: Settings) -> Iterator[Finding]:
    """FRR in a version that works; the other programs need only be there."""
    from trimtab.fabric import find_programs

    try:
        frr = find_programs()
        yield ok("FRR", f"{frr.version} in {frr.folder}")
    except MissingDependencyError as error:
        yield missing("FRR", str(error), "trimtab fabric up, its lab", "apt-get install frr")
    for name, disables, mend in PROGRAMS:
        path = shutil.which(name)
        if path is not None:
            yield ok(name, path)
        else:
            is_needed = name == "sbatch" and settings.engine.startswith("slurm:")
            yield missing(name, "not on the PATH", disables, mend, is_needed)


_NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
_GPU_DISABLES = "accelerators for local:// jobs, their columns in profiles"


@check("gpu", "accelerators")
def check_gpu(settings: Settings) -> Iterator[Finding]:
    """The devices, or the step at which they are lost: driver, library, permission."""
    from trimtab.observe import Gpus

    gpus = Gpus()
    try:
        names = Counter(gpus.names())
    finally:
        gpus.close()
    if names:
        yield ok("NVIDIA devices", ", ".join(f"{count} × {name}" for name, count in names.items()))
    elif not _NVIDIA_DRIVER.exists():
        mend = "nothing, on a machine without one; else NVIDIA's driver"
        yield missing("NVIDIA devices", "no driver is loaded", _GPU_DISABLES, mend)
    elif find_spec("pynvml") is None:
        mend = "pip install 'trimtab[gpu]'"
        yield missing("NVIDIA devices", "a driver, but no library to ask it", _GPU_DISABLES, mend)
    else:
        mend = "nvidia-smi says why; in a container, pass the devices in"
        yield missing("NVIDIA devices", "a driver that shows no device", _GPU_DISABLES, mend)


_TIMEX = 256  # bytes; struct timex is shorter on every machine
_MAXERROR, _STATUS = 24, 40  # offsets in it, where longs have 64 bits
_UNSYNCHRONISED = 0x40
_WATCHED = 0.05  # s
_JUMP = 0.005  # s between the two clocks within that time
_COARSE = 0.001  # s
_EARLIEST_NOW = 1_735_689_600.0  # the start of 2025, before any of this was written
_QUICK_SOURCES = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "xen")
_CLOCK_SOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
_KEEP_TIME = "timedatectl set-ntp true, or apt-get install chrony"


@check("clock", "time that does not jump")
def check_clock(settings: Settings) -> Iterator[Finding]:
    now = time.time()
    seen = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < _EARLIEST_NOW:
        disables = "certificates and tokens, which are not valid yet"
        yield missing("date", seen, disables, f"{_KEEP_TIME}; or date -s", needed=True)
    else:
        yield ok("date", seen)
    # adjtimex changes nothing when no mode is set.
    timex = ctypes.create_string_buffer(_TIMEX)
    disables = "comparing times between machines, short-lived tokens"
    if ctypes.CDLL(None, use_errno=True).adjtimex(timex) < 0:
        yield warning("synchronised", "the kernel does not say", disables, _KEEP_TIME)
    else:
        (error,) = struct.unpack_from("=q", timex, _MAXERROR)
        (status,) = struct.unpack_from("=i", timex, _STATUS)
        if status & _UNSYNCHRONISED:
            yield warning("synchronised", "with no time server", disables, _KEEP_TIME)
        else:
            yield ok("synchronised", f"to within {format_duration(error / 1e6)}")
    before = time.time() - time.monotonic()
    time.sleep(_WATCHED)
    moved = abs(time.time() - time.monotonic() - before)
    seen = f"{format_duration(moved)} between wall and monotonic clock in {format_duration(_WATCHED)}"
    if moved > _JUMP:
        disables = "times in the ledger; decisions go by the monotonic clock"
        yield warning("jumps", seen, disables, "let one program keep the time: timedatectl status")
    else:
        yield ok("jumps", seen)
    resolution = time.clock_getres(time.CLOCK_MONOTONIC)
    if resolution > _COARSE:
        mend = "a kernel with high-resolution timers"
        yield warning("resolution", format_duration(resolution), "periods of 100 ms: trimtab agent", mend)
    else:
        yield ok("resolution", format_duration(resolution))
    try:
        source = _CLOCK_SOURCE.read_text().strip()
    except OSError:
        yield ok("source", "the kernel does not say")
        return
    if source in _QUICK_SOURCES:
        yield ok("source", source)
    else:
        mend = f"echo tsc > {_CLOCK_SOURCE}, if it is there"
        yield warning("source", source, "cheap readings of the time: trimtab agent, benches", mend)
