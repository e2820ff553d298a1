"""The process on a Ray node that runs a worker's command, and ends it with all its descendants.

It needs only the standard library, because Trimtab is not installed there. It reads
`{"command": […], "environment": {…}, "folder": …}` from its standard input, then names of signals, one per
line. It answers with one line on its standard output: the exit status as a shell gives it, or a sentence why
nothing was started. When its input ends, its worker has ended, and it ends the command. It has a parent that
ends the command if this process is killed; there is no answer then.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_ORPHANS_GRACE = 2.0  # s between SIGTERM and SIGKILL when the worker has ended
_TO_ALL = (signal.SIGTERM, signal.SIGKILL)


def hold() -> None:
    """The main function of the process."""
    spec, orders = _read_launch(sys.stdin.fileno())
    # Ray kills the children of its workers, and this process must outlive its worker for a moment.
    if not spec or os.fork():
        os._exit(0)
    os.setsid()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _guard_fork()
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        child = _start(spec)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        why = (getattr(error, "strerror", None) or str(error)).lower()
        _answer(f'"{spec["command"][0]}" cannot be run: {why}')
        return
    _follow(child, orders)
    status = child.wait()
    _signal_all(signal.SIGKILL)
    _answer(str(128 - status if status < 0 else status))


def _guard_fork() -> None:
    """Go on in a child process; this one kills what the child leaves behind if somebody kills the child."""
    child = os.fork()
    if child:
        while (ended := os.waitpid(-1, 0))[0] != child:
            pass
        if os.WIFSIGNALED(ended[1]):
            _signal_all(signal.SIGKILL)
        os._exit(0)


def _read_launch(pipe: int) -> tuple[dict[str, Any], bytes]:
    """The launch message, and bytes already read of later orders; empty if the other end is closed."""
    text = b""
    while b"\n" not in text:
        part = os.read(pipe, 65536)
        if not part:
            return {}, b""
        text += part
    line, _, rest = text.partition(b"\n")
    return json.loads(line), rest


def _start(spec: Mapping[str, Any]) -> "subprocess.Popen[bytes]":
    folder = spec["folder"] if os.path.isdir(spec["folder"]) else os.path.expanduser("~")
    return subprocess.Popen(
        spec["command"],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
        env=spec["environment"],
        cwd=folder,
        start_new_session=True,
        preexec_fn=_preparation(),
    )


def _preparation() -> Callable[[], None]:
    """A function for the child, before the command: it ends with this process, and blocks no signal."""
    libc = ctypes.CDLL(None)

    def prepare() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    return prepare


def _follow(child: "subprocess.Popen[bytes]", text: bytes) -> None:
    """Pass signals on until the command ends, or its standard input is closed."""
    ends, pipe = os.pidfd_open(child.pid), sys.stdin.fileno()
    while True:
        *lines, text = text.split(b"\n")
        for line in lines:
            _send(child.pid, signal.Signals[f"SIG{line.decode()}"])
        if ends in select.select([ends, pipe], [], [])[0]:
            return
        part = os.read(pipe, 4096)
        if not part:
            _end(ends)
            return
        text += part


def _send(pid: int, number: signal.Signals) -> None:
    """Send TERM and KILL to all descendants, any other signal to the command itself."""
    if number in _TO_ALL:
        _signal_all(number)
    else:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _end(ends: int) -> None:
    _signal_all(signal.SIGTERM)
    select.select([ends], [], [], _ORPHANS_GRACE)
    _signal_all(signal.SIGKILL)


def _signal_all(number: signal.Signals) -> None:
    """Send all descendants a signal; SIGKILL is repeated until none is left, because they may fork."""
    while pids := list(_below(os.getpid())):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if number != signal.SIGKILL:
            return
        time.sleep(0.01)


def _below(root: int) -> Iterator[int]:
    """Living descendants; orphans are children of this process, by prctl.

    `/proc/PID/stat` is "pid (name) state parent …", and a name may hold parentheses.
    """
    children: dict[int, list[int]] = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            with open(f"/proc/{entry}/stat", errors="replace") as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
            if state not in "ZX":
                children.setdefault(int(parent), []).append(int(entry))
    queue = children.get(root, [])
    while queue:
        pid = queue.pop()
        yield pid
        queue = queue + children.get(pid, [])


def _answer(text: str) -> None:
    with contextlib.suppress(OSError):  # the worker may have ended
        os.write(sys.stdout.fileno(), text.encode() + b"\n")


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    hold()
