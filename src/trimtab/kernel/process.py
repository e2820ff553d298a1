"""Processes in `/proc`: descent, resource use, and names for a process's groups and folders."""

import contextlib
import ctypes
import os
import re
import signal
import subprocess
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trimtab.kernel.cgroup import pids

_PROC = Path("/proc")
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_OWNED_NAME = re.compile(r"trimtab-(\d+)-(\d+)-(\d+)-([a-z0-9]+)")


@dataclass(frozen=True, slots=True)
class Process:
    """A process. `started` is in clock ticks since boot, so (pid, started) is unique.

    `cpu` is seconds of user and system time, `memory` resident bytes. A `zombie` has ended but its parent has
    not waited for it.
    """

    pid: int
    parent: int
    group: int
    started: int
    cpu: float
    memory: float
    zombie: bool


def read_process(pid: int) -> Process | None:
    """The process, or None when it has ended.

    `/proc/PID/stat` is "pid (comm) state ppid pgrp … utime(14) stime(15) … starttime(22) vsize rss(24) …";
    comm may hold spaces and parentheses, so the fields are counted from the last ")".
    """
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return Process(
        pid=pid,
        parent=int(fields[1]),
        group=int(fields[2]),
        started=int(fields[19]),
        cpu=(int(fields[11]) + int(fields[12])) / _TICKS,
        memory=float(int(fields[21]) * _PAGE),
        zombie=fields[0] in "ZX",
    )


def processes(names: Collection[str] | None = None) -> Iterator[Process]:
    """All visible processes, or those with these names in `/proc/PID/comm`, which is quicker."""
    for entry in os.listdir(_PROC):
        if entry.isdigit() and (names is None or _name(entry) in names):
            process = read_process(int(entry))
            if process is not None:
                yield process


def _name(pid: str) -> str | None:
    """Name of a process; None where it has ended."""
    try:
        return (_PROC / pid / "comm").read_text(errors="replace").rstrip("\n")
    except OSError:
        return None


def process_names(group: Path) -> Iterator[str]:
    """Names of the processes of a control group; "" for one that is hidden by its pid namespace."""
    for pid in pids(group):
        name = _name(str(pid)) if pid else ""
        if name is not None:
            yield name


def tree(root: int, also: Iterable[Process] = ()) -> list[Process]:
    """`root` and all its living descendants.

    `also` are descendants found earlier: they stay in, with their descendants, when the parent between them
    and `root` has ended.
    """
    alive = {process.pid: process for process in processes() if not process.zombie}
    children: dict[int, list[int]] = {}
    for process in alive.values():
        children.setdefault(process.parent, []).append(process.pid)
    earlier = [p.pid for p in also if p.pid in alive and alive[p.pid].started == p.started]
    members, queue = set[int](), [root, *earlier]
    while queue:
        pid = queue.pop()
        if pid in alive and pid not in members:
            members.add(pid)
            queue.extend(children.get(pid, ()))
    return [alive[pid] for pid in sorted(members)]


def process_io(pid: int) -> tuple[float, float] | None:
    """Bytes the process has read from and written to disks; None where that may not be read.

    `/proc/PID/io` has lines like "read_bytes: 4096"; both exclude the page cache.
    """
    try:
        lines = (_PROC / str(pid) / "io").read_text().splitlines()
    except OSError:
        return None
    values = dict(line.split(": ") for line in lines)
    return float(values["read_bytes"]), float(values["write_bytes"])


def thread_waits(pid: int) -> dict[int, float]:
    """Seconds that each living thread of a process was ready to run but had no core, by thread id.

    `/proc/PID/task/TID/schedstat` is "ns-on-a-core ns-waiting-for-one times-run"; empty if the
    kernel has no such file.
    """
    waits: dict[int, float] = {}
    try:
        threads = os.listdir(_PROC / str(pid) / "task")
    except OSError:
        return waits
    for thread in threads:
        with contextlib.suppress(OSError, ValueError, IndexError):  # it may have ended
            text = (_PROC / str(pid) / "task" / thread / "schedstat").read_text()
            waits[int(thread)] = int(text.split()[1]) / 1e9
    return waits


def network_bytes(pid: int, loopback: bool = False) -> tuple[float, float] | None:
    """Bytes received and sent by all of the process's network namespace; only loopback, or all but it.

    `/proc/PID/net/dev`: two header lines, then "eth0: rx_bytes packets errs drop fifo frame compressed
    multicast tx_bytes …".
    """
    try:
        lines = (_PROC / str(pid) / "net" / "dev").read_text().splitlines()[2:]
    except OSError:
        return None
    received = sent = 0.0
    for line in lines:
        name, _, rest = line.partition(":")
        fields = rest.split()
        if (name.strip() == "lo") == loopback:
            received += float(fields[0])
            sent += float(fields[8])
    return received, sent


def environment(pid: int) -> dict[str, str]:
    """The variables a process was started with; empty where they may not be read."""
    try:
        raw = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return {}
    entries = (entry.partition(b"=") for entry in raw.split(b"\0"))
    return {os.fsdecode(name): os.fsdecode(value) for name, equals, value in entries if equals}


def die_with_parent(signal_number: int) -> None:
    """Ask the kernel to send this process a signal when the thread that started it ends."""
    _prctl(_PR_SET_PDEATHSIG, signal_number)


def adopt_orphans() -> None:
    """Make this process the parent of its descendants whose own parent ends (a subreaper)."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def boot_id() -> str:
    """A name for the present boot of this machine or container; empty where the kernel does not tell it."""
    try:
        name = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
    first = read_process(1)
    return f"{name} {first.started if first else 0}"


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def end_groups(children: Sequence["subprocess.Popen[bytes]"]) -> None:
    """Kill children that lead process groups, with all in them, and wait until they have ended."""
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    for child in children:
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


@dataclass(frozen=True, slots=True)
class Owner:
    """A process, by pid namespace (inode), pid and start time (clock ticks since boot).

    Groups and folders are named after the process that made them, so that remains of a killed process can be
    recognised.
    """

    namespace: int
    pid: int
    started: int

    @classmethod
    def current(cls) -> "Owner":
        me = read_process(os.getpid())
        return cls(_namespace(), os.getpid(), me.started if me else 0)

    @classmethod
    def of(cls, name: str) -> "Owner | None":
        """Owner in a name that `name` made; None for any other name."""
        match = _OWNED_NAME.fullmatch(name)
        return cls(int(match[1]), int(match[2]), int(match[3])) if match else None

    def name(self, label: str) -> str:
        """A name for a group or folder of this owner; `label` is of lower-case letters and digits."""
        return f"trimtab-{self.namespace}-{self.pid}-{self.started}-{label}"

    def is_gone(self) -> bool:
        """Whether it has ended. A process of another pid namespace is not visible and counts as alive."""
        if self.namespace != _namespace():
            return False
        process = read_process(self.pid)
        return process is None or process.started != self.started or process.zombie


def _namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0
