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
from trimtab.kernel import Hierarchy, LimitedGroup, NetworkNamespace, NoNamespaceError, find_hierarchy
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
"""Bit, name, and what goes without."""

_FILES_WANTED = 4096
# Real-time only for a moment, and never without the bound that ends who spins.
_REAL_TIME_TRIAL = (
    "import os, resource\n"
    "resource.setrlimit(resource.RLIMIT_RTTIME, (50000, 100000))\n"
    "os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))\n"
)


@check("permissions", "root, capabilities, real-time priority, open files")
def check_permissions(settings: Settings) -> Iterator[Finding]:
    """The user first; then one line for all that the capabilities lack."""
    yield _user()
    held = _effective_capabilities()
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


def _effective_capabilities() -> int:
    """The effective capabilities as bits; `/proc/self/status` has "CapEff:\t000001ffffffffff"."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("CapEff:")), 16)


def _real_time() -> Finding:
    try:
        words = [sys.executable, "-S", "-E", "-c", _REAL_TIME_TRIAL]
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


_TRIAL_CPUS, _TRIAL_MEMORY = 0.5, 64 * 2**20  # of the trial's group, in which nothing runs
_LOCAL = "local:"
_MOUNT = "mount -t cgroup2 none /sys/fs/cgroup (in a container: give it the host's)"
_DELEGATE = "run as root, or under systemd with Delegate=yes"


@check("cgroups", "limits of CPU and memory, tried on a group of its own")
def check_cgroups(settings: Settings) -> Iterator[Finding]:
    """What is mounted; then a group of our own, limited and removed."""
    is_local = settings.engine.startswith(_LOCAL)
    hierarchy = find_hierarchy()
    if hierarchy is None:
        yield missing(
            "control groups",
            "none are mounted with cpu and memory",
            "local:// jobs, trimtab agent, profiles by group",
            _MOUNT,
            needed=is_local,
        )
        return
    seen = f"version {hierarchy.version}"
    if hierarchy.version == 1:
        seen += f": {', '.join(sorted(hierarchy.folders))}"
    yield ok("control groups", seen)
    yield from _limits_trial(hierarchy, is_local)


def _limits_trial(hierarchy: Hierarchy, is_local: bool) -> Iterator[Finding]:
    what = "limits"
    try:
        with LimitedGroup.create(hierarchy) as group:
            group.limit_cpus(_TRIAL_CPUS)
            group.limit_memory(_TRIAL_MEMORY)
            yield ok(what, "set on a group of our own, which is gone again", needed=is_local)
            yield _traps(group)
    except (TrimtabError, OSError) as error:
        yield missing(
            what, why(error), "local:// jobs, trimtab agent, profiles by group", _DELEGATE, needed=is_local
        )


def _traps(group: LimitedGroup) -> Finding:
    """Version 1 holds who runs out of memory until it gets more; version 2 slows it down before."""
    file, exists = group.memory_trap()
    how = "out-of-memory traps" if group.version == 1 else "slowing down before the limit"
    if exists:
        return ok("memory grants", f"{how} ({file})")
    return warning(
        "memory grants",
        f"no {file}",
        "granting memory instead of a kill: trimtab agent",
        "a kernel with that file (Linux 4.5 or later)",
    )


NETWORK_TRIALS = (
    ("veth", "ip link add name t0 type veth peer name t1", "devices for workers: trimtab fabric"),
    ("bridge", "ip link add name t2 type bridge", "tenants: trimtab fabric"),
    ("vxlan", "ip link add name t3 type vxlan id 1 dstport 4789 local 127.0.0.1", "tunnels: trimtab fabric"),
    ("vxlan external", "ip link add name t4 type vxlan dstport 4790 external", "the fabric's data plane bpf"),
    ("next hops", "ip nexthop add id 1 blackhole", "quick failover: trimtab fabric"),
    ("clsact", "tc qdisc add dev lo clsact", "the fabric's data planes bpf and flower (kernel is left)"),
)
"""What, the command that tries it, and what goes without."""

_PATIENCE = 5.0  # s
_MODULES = "a kernel with it: apt-get install linux-image-amd64, or modprobe"


@check("network", "what the fabric asks of the kernel, tried in a namespace of its own")
def check_network(settings: Settings) -> Iterator[Finding]:
    """Nothing of this machine's own network is touched."""
    absent = [name for name in ("ip", "tc") if shutil.which(name) is None]
    if absent:
        mend = "apt-get install iproute2"
        yield missing("kernel features", f"no {' and no '.join(absent)} to try them", "trimtab fabric", mend)
        return
    try:
        with NetworkNamespace() as namespace:
            for what, command, disables in NETWORK_TRIALS:
                yield _network_trial(namespace, what, command, disables)
    except NoNamespaceError as error:
        yield missing("network namespaces", str(error), "trimtab fabric, its lab", "run as root")
        return
    yield from _planes()


def _network_trial(namespace: NetworkNamespace, what: str, command: str, disables: str) -> Finding:
    done = subprocess.run(
        command.split(), capture_output=True, text=True, timeout=_PATIENCE, preexec_fn=namespace.enter
    )
    if done.returncode == 0:
        return ok(what, "works")
    return missing(what, one_line(done.stderr)[:100] or f"status {done.returncode}", disables, _MODULES)


def _planes() -> Iterator[Finding]:
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
"""Name, what goes without, and how to get it on Debian."""


@check("programs", "programs that parts of it call")
def check_programs(settings: Settings) -> Iterator[Finding]:
    """FRR is more than one program and has to be of some version; the others need only be there."""
    yield _frr()
    for name, disables, mend in PROGRAMS:
        path = shutil.which(name)
        if path is not None:
            yield ok(name, path)
        else:
            is_needed = name == "sbatch" and settings.engine.startswith("slurm:")
            yield missing(name, "not on the PATH", disables, mend, is_needed)


def _frr() -> Finding:
    from trimtab.fabric import find_programs

    try:
        found = find_programs()
    except MissingDependencyError as error:
        return missing("FRR", str(error), "trimtab fabric up, its lab", "apt-get install frr")
    return ok("FRR", f"{found.version} in {found.folder}")


_NVIDIA_DRIVER = Path("/proc/driver/nvidia/version")
_GPU_DISABLES = "accelerators for local:// jobs, their columns in profiles"


@check("gpu", "accelerators")
def check_gpu(settings: Settings) -> Iterator[Finding]:
    """What there is, or at which step it is lost: driver, library, permission."""
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
    """The wall clock, the monotonic one, and what both are read from."""
    yield _wall()
    yield _synchronised()
    yield _jumps()
    yield _resolution()
    yield _source()


def _wall() -> Finding:
    now = time.time()
    seen = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    if now < _EARLIEST_NOW:
        return missing(
            "date",
            seen,
            "certificates and tokens, which are not valid yet",
            f"{_KEEP_TIME}; or date -s",
            needed=True,
        )
    return ok("date", seen)


def _synchronised() -> Finding:
    """By `adjtimex`, which changes nothing when no mode is asked for."""
    timex = ctypes.create_string_buffer(_TIMEX)
    disables = "comparing times between machines, short-lived tokens"
    if ctypes.CDLL(None, use_errno=True).adjtimex(timex) < 0:
        return warning("synchronised", "the kernel does not say", disables, _KEEP_TIME)
    (error,) = struct.unpack_from("=q", timex, _MAXERROR)
    (status,) = struct.unpack_from("=i", timex, _STATUS)
    if status & _UNSYNCHRONISED:
        return warning("synchronised", "with nobody", disables, _KEEP_TIME)
    return ok("synchronised", f"to within {format_duration(error / 1e6)}")


def _jumps() -> Finding:
    before = time.time() - time.monotonic()
    time.sleep(_WATCHED)
    moved = time.time() - time.monotonic() - before
    seen = f"{format_duration(abs(moved))} between wall and monotonic clock in {format_duration(_WATCHED)}"
    if abs(moved) > _JUMP:
        disables = "times in the ledger; decisions go by the monotonic clock"
        return warning("jumps", seen, disables, "let one program keep the time: timedatectl status")
    return ok("jumps", seen)


def _resolution() -> Finding:
    seconds = time.clock_getres(time.CLOCK_MONOTONIC)
    seen = format_duration(seconds)
    if seconds > _COARSE:
        return warning(
            "resolution", seen, "periods of 100 ms: trimtab agent", "a kernel with high-resolution timers"
        )
    return ok("resolution", seen)


def _source() -> Finding:
    try:
        source = _CLOCK_SOURCE.read_text().strip()
    except OSError:
        return ok("source", "not timex here")
    if source in _QUICK_SOURCES:
        return ok("source", source)
    return warning(
        "source",
        source,
        "cheap looks at the time: trimtab agent, benches",
        f"echo tsc > {_CLOCK_SOURCE}, if it is there",
    )
