"""On a node of a Ray cluster: the process that holds a worker's command, and ends it with all it started.

A guest there: standard library only, and no part of Trimtab beside it. Its standard input tells it
`{"command": […], "environment": {…}, "folder": …}`, then names of signals, one per line. It answers with one
line on its standard output: the exit status as a shell gives it, or a sentence why nothing was started. Where
its input ends, whoever led the command is gone, and so must the command be.
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
_ORPHANS_GRACE = 2.0  # s between asking and killing where nobody leads any more
_TO_ALL = (signal.SIGTERM, signal.SIGKILL)


def hold() -> None:
    """The whole life of the process."""
    spec, orders = _introduced(sys.stdin.fileno())
    # Ray kills the children of its workers, and this process shall outlive its worker for a moment.
    if not spec or os.fork():
        os._exit(0)
    os.setsid()
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


def _introduced(pipe: int) -> tuple[dict[str, Any], bytes]:
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
        preexec_fn=_prepared(),
    )


def _prepared() -> Callable[[], None]:
    """In the child, before the command: it ends with this process, and hears all signals."""
    libc = ctypes.CDLL(None)

    def prepare() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())

    return prepare


def _follow(child: "subprocess.Popen[bytes]", text: bytes) -> None:
    """Pass signals on until the command ends, or nobody is there who would send any."""
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
    """To every process below this one; killing goes on until none is left, for they may make more."""
    while found := list(_below(os.getpid())):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        if number != signal.SIGKILL:
            return
        time.sleep(0.01)


def _below(root: int) -> Iterator[int]:
    """Living descendants; who has lost its parent is a child of this process, by prctl.

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
    with contextlib.suppress(OSError):  # nobody may be there any more
        os.write(sys.stdout.fileno(), text.encode() + b"\n")


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    hold()
