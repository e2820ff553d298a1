"""The kernel restores limits when the agent and its dead-man switches have been killed together.

Version 1 control groups can have a release agent: a program that the kernel itself starts when the last
process of a group has ended. The switches are in such a group, in a hierarchy of its own without controllers;
its mount is detached, so no other program sees it. When all of them have ended, the kernel starts a script
that the agent wrote, and that process restores the journal. It enters the group first: if it is killed too,
the kernel starts another.

This needs root, the capability CAP_SYS_ADMIN and the machine's own files. It is missing in a container and
in a hardened systemd unit, where a second container and `ExecStopPost=` act instead.
"""

import contextlib
import ctypes
import os
import shlex
import stat
import sys
import time
from pathlib import Path

from trimtab.kernel.cgroup import PROCS
from trimtab.kernel.closing import Closing
from trimtab.kernel.deadman import PATIENCE, name_process
from trimtab.kernel.process import Owner
from trimtab.kernel.safe_limits import restore_journal

_FSOPEN, _FSCONFIG, _FSMOUNT = 430, 431, 432  # numbers of system calls, the same on all architectures
_CLOEXEC = 1
_SET_FLAG, _SET_STRING, _CREATE = 0, 1, 6  # commands of fsconfig
_RELEASE_AGENT, _NOTIFY = "release_agent", "notify_on_release"
_GROUP = "switches"
_LOOK = 0.05  # s between two looks at the agent
_DISSOLVE = 10.0  # s in which the kernel has freed a removed group, usually 0.3
_NAME = "trimtab-release"  # in `ps`


class ReleaseHelper(Closing):
    """The group, and its hierarchy, of the switches that guard a journal."""

    def __init__(self, journal: Path) -> None:
        """Open the hierarchy, or make it; raises OSError where the kernel does not allow it."""
        self._hierarchy = journal.stem
        self._script = journal.with_suffix(".sh")
        self._mount = _mounted(self._hierarchy)

    @classmethod
    def create(cls, journal: Path) -> "ReleaseHelper | None":
        """A group whose end the kernel answers by restoring the journal; None where that cannot be."""
        try:
            journal.parent.mkdir(parents=True, exist_ok=True)
            sweep_helpers()
            helper = cls(journal)
        except OSError:
            return None
        try:
            helper._write_script(agent_has_ended=False)
            helper._write(_RELEASE_AGENT, str(helper._script))
            os.mkdir(_GROUP, dir_fd=helper._mount)
            helper._write(f"{_GROUP}/{_NOTIFY}", "1")
        except OSError:
            helper.remove()
            return None
        return helper

    def add(self, pid: int) -> None:
        """Move a process into the group; does nothing if it has ended."""
        with contextlib.suppress(OSError):
            self._write(f"{_GROUP}/{PROCS}", str(pid))

    def pids(self) -> list[int]:
        """Processes of the group; empty if it has been removed."""
        try:
            file = os.open(f"{_GROUP}/{PROCS}", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._mount)
        except FileNotFoundError:
            return []
        with os.fdopen(file) as opened:
            return [int(pid) for pid in opened.read().split()]

    def close(self) -> None:
        """The agent ends: when the last process of the group has ended, the kernel's program removes it."""
        with contextlib.suppress(OSError):
            if self._script.exists():
                self._write_script(agent_has_ended=True)
        os.close(self._mount)

    def remove(self) -> None:
        """Remove the group, whose last process is this one, its hierarchy and its script."""
        with contextlib.suppress(OSError):
            self._write(f"{_GROUP}/{_NOTIFY}", "0")
            self._write(PROCS, str(os.getpid()))  # out of the group
            os.rmdir(_GROUP, dir_fd=self._mount)
        with contextlib.suppress(OSError):
            self._script.unlink(missing_ok=True)
        os.close(self._mount)
        _dissolve(self._hierarchy)

    def _write_script(self, agent_has_ended: bool) -> None:
        """The kernel passes only the group's path, and neither environment nor open files."""
        package = Path(__file__).parents[2]
        arguments = f"{str(self._script.with_suffix('.json'))!r}, {agent_has_ended}"
        action = f"from trimtab.kernel import restore_released; restore_released({arguments})"
        self._script.write_text(
            "#!/bin/sh\n"
            f"PYTHONPATH={shlex.quote(str(package))} "
            f"exec {shlex.quote(sys.executable)} -c {shlex.quote(action)} </dev/null >/dev/null 2>&1\n"
        )
        self._script.chmod(0o700)
        is_safe = os.access(self._script, os.X_OK) and _only_root_can_replace(self._script)
        if not is_safe or not all(map(_kernel_sees, (self._script, Path(sys.executable), package))):
            raise PermissionError

    def _write(self, name: str, text: str) -> None:
        file = os.open(name, os.O_WRONLY | os.O_CLOEXEC, dir_fd=self._mount)
        try:
            os.write(file, text.encode())
        finally:
            os.close(file)


def restore_released(journal_file: str, agent_has_ended: bool) -> None:
    """Stand in for the switches, which have all ended: the program that the kernel starts.

    If the agent has ended too, restore its journal, if any is left, and remove the group. If it lives, it
    starts new switches in a period, unless it is suspended: then its limits are restored as soon as a switch
    would have done so.
    """
    name_process(_NAME)
    journal = Path(journal_file)
    owner = Owner.of(journal.stem)
    helper = None
    with contextlib.suppress(OSError):  # limits are restored without the group, too
        helper = ReleaseHelper(journal)
        helper.add(os.getpid())
    patience_ends, is_restored = time.monotonic() + PATIENCE, False
    while not agent_has_ended and owner is not None and not owner.is_gone():
        if helper is not None and helper.pids() != [os.getpid()]:
            return  # the agent has started new switches: the group stays
        if not is_restored and time.monotonic() > patience_ends:
            restore_journal(journal, remove=False)
            is_restored = True
        time.sleep(_LOOK)
    restore_journal(journal)
    if helper is not None and helper.pids() == [os.getpid()]:
        helper.remove()


def sweep_helpers() -> None:
    """Remove hierarchies that killed agents have left behind: no switch was started, or its home is gone."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            name = line.split(":", 2)[1].removeprefix("name=")
            owner = Owner.of(name)
            if owner is not None and owner.is_gone():
                with contextlib.suppress(OSError):  # a switch may still be in it
                    mount = _mounted(name)
                    try:
                        os.rmdir(_GROUP, dir_fd=mount)
                    finally:
                        os.close(mount)


def _dissolve(hierarchy: str) -> None:
    """Unmount a hierarchy so that the kernel removes it, which needs the removal of its group to be over."""
    line, deadline = f":name={hierarchy}:", time.monotonic() + _DISSOLVE
    while line in Path("/proc/self/cgroup").read_text() and time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            os.close(_mounted(hierarchy))
        time.sleep(2 * _LOOK)


def _mounted(hierarchy: str) -> int:
    """A detached mount of a version 1 hierarchy without controllers, which is made unless it exists."""
    context = _call(_FSOPEN, b"cgroup", _CLOEXEC)
    try:
        _call(_FSCONFIG, context, _SET_FLAG, b"none", None, 0)
        _call(_FSCONFIG, context, _SET_STRING, b"name", hierarchy.encode(), 0)
        _call(_FSCONFIG, context, _CREATE, None, None, 0)
        return _call(_FSMOUNT, context, _CLOEXEC, 0)
    finally:
        os.close(context)


def _call(number: int, *arguments: object) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    result = int(libc.syscall(number, *arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _kernel_sees(path: Path) -> bool:
    """Whether a path names the same file for programs that the kernel starts: their root is process 2's."""
    try:
        is_kernel = Path("/proc/2/comm").read_text() == "kthreadd\n"
        return is_kernel and os.path.samefile(path, f"/proc/2/root{path.absolute()}")
    except OSError:
        return False


def _only_root_can_replace(path: Path) -> bool:
    """Whether no other user can put another file in its place: the kernel starts it as root."""
    for part in (path, *path.resolve().parents):
        status = part.stat()
        shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX
        if status.st_uid != 0 or shared:
            return False
    return True
