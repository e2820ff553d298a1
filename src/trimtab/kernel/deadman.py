"""The dead man's switch: a small process that puts safe limits and the killer back when the agent is gone.

It reads one JSON object per line: `{"path": …, "cpus": …, "memory": …}` is a container with its safe limits
(null is none), `{"gone": path}` one that needs no more care, `{}` only a sign of life. When the lines stay
away for too long everyone it knows of is set free, and an agent that was only asleep is notified; when they
end, everyone is set free for good. A line that says `{"end": true}` is a farewell: nothing is to be done.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from trimtab.core import TrimtabError
from trimtab.kernel.container import ContainerGroup, CpuRefusedError
from trimtab.kernel.hierarchy import Hierarchy
from trimtab.kernel.memory_trap import untrap

PATIENCE = 2.0  # s without a sign of life


@dataclass(frozen=True, slots=True)
class SafeLimits:
    """Limits that a container is left with: CPUs and bytes, None for no limit."""

    path: str
    cpus: float | None
    memory: float | None


class DeadManSwitch:
    """The agent's end of the line."""

    def __init__(self, hierarchy: Hierarchy, patience: float = PATIENCE) -> None:
        folders = {name: str(folder) for name, folder in hierarchy.folders.items()}
        watch = f"keep_watch({hierarchy.version}, {folders!r}, {patience!r})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from trimtab.kernel import keep_watch; {watch}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # what ends the agent's terminal does not end it
        )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)

    @property
    def alive(self) -> bool:
        """Whether its process is there."""
        return self._process.poll() is None

    def guard(self, limits: SafeLimits) -> bool:
        """Set this container free if I die. False when nobody listens any more."""
        return self._tell({"path": limits.path, "cpus": limits.cpus, "memory": limits.memory})

    def gone(self, path: str) -> bool:
        """Never mind this one."""
        return self._tell({"gone": path})

    def beat(self) -> bool:
        """I am alive. False where everyone has been set free, or may have been, since the last beat."""
        assert self._process.stdout is not None
        freed = self._process.stdout.read() or b""
        return self._tell({}) and not freed

    def end(self) -> None:
        """All has been put back; there is nothing left to do."""
        self._tell({"end": True})
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                assert pipe is not None
                pipe.close()
        self._process.wait()

    def _tell(self, what: dict[str, Any]) -> bool:
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(what).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            self._process.poll()
            return False
        return True


def listen(lines: BinaryIO, patience: float, free: Callable[[list[SafeLimits]], None]) -> None:
    """Read until the farewell; whenever signs of life stay away, and when the lines end, free everyone."""
    known: dict[str, SafeLimits] = {}
    rest = b""
    wait: float | None = patience
    while True:
        if not select.select([lines], [], [], wait)[0]:
            free(list(known.values()))
            wait = None  # once is enough, until it lives again
            continue
        chunk = os.read(lines.fileno(), 65536)
        if not chunk:
            free(list(known.values()))
            return
        wait = patience
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            message = json.loads(line)
            if message.get("end"):
                return
            if "path" in message:
                known[message["path"]] = SafeLimits(message["path"], message["cpus"], message["memory"])
            known.pop(message.get("gone"), None)


def set_free(everyone: Sequence[SafeLimits], hierarchy: Hierarchy) -> None:
    """Safe limits for everyone, from those with nobody below up to pods; for some it takes a second round.

    A group's limit of CPU must not be above that of a group above it, whichever of the two is set first.
    """
    upwards = sorted(everyone, key=lambda limits: -limits.path.count("/"))
    for limits in [limits for limits in upwards if not _set_one_free(limits, hierarchy)]:
        _set_one_free(limits, hierarchy)


def _set_one_free(limits: SafeLimits, hierarchy: Hierarchy) -> bool:
    """Safe limits first, so that nobody is killed for a limit that was too small, then the killer."""
    done = True
    try:
        group = ContainerGroup(hierarchy, limits.path)
    except TrimtabError:
        return True  # it has ended
    with group:
        try:
            group.limit_cpus(limits.cpus)
        except CpuRefusedError:
            done = False
        except TrimtabError:
            pass
        with contextlib.suppress(TrimtabError):
            group.limit_memory(limits.memory)
        with contextlib.suppress(TrimtabError):
            untrap(group)
    return done


def keep_watch(version: int, folders: dict[str, str], patience: float) -> None:
    """The process: it ends when its work is done, not when somebody presses Ctrl-C."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    hierarchy = Hierarchy(version, {name: Path(folder) for name, folder in folders.items()})

    def free(everyone: list[SafeLimits]) -> None:
        set_free(everyone, hierarchy)
        with contextlib.suppress(OSError):
            os.write(sys.stdout.fileno(), b"freed\n")

    listen(sys.stdin.buffer, patience, free)
