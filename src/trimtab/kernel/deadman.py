"""The dead-man switch: a small process that restores safe limits and the OOM killer when the agent is gone.

Every byte on its input is a heartbeat. When heartbeats stay away for too long it restores the limits in the
agent's journal, and reports that to an agent that was only suspended; when its input ends, it restores them,
removes the journal and ends. After an end byte it ends and changes nothing.

An agent starts two. Either suffices; the agent replaces one that dies. Where the kernel allows it, a
`ReleaseHelper` acts when both have died.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from trimtab.kernel.safe_limits import restore_journal

PATIENCE = 2.0  # s without a heartbeat
_BEAT, _END = b".", b"!"
# Before anything else: signals that end a terminal's processes do not end it.
_IGNORE = "import signal as s; [s.signal(number, s.SIG_IGN) for number in (s.SIGHUP, s.SIGINT, s.SIGTERM)]"
_NAME = "trimtab-switch"  # in `ps` and `/proc/PID/comm`, at most 15 characters


class DeadManSwitch:
    """Starts the process and sends it heartbeats."""

    def __init__(self, journal: Path, patience: float = PATIENCE) -> None:
        watch = f"keep_watch({str(journal)!r}, {patience!r})"
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"{_IGNORE}; from trimtab.kernel import keep_watch; {watch}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # signals of the agent's terminal do not end it
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for pipe in (self._process.stdin, self._process.stdout):
            os.set_blocking(pipe.fileno(), False)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def beat(self) -> bool:
        """Send a heartbeat, and wake a suspended process. False if it has restored limits since the last."""
        self._process.send_signal(signal.SIGCONT)
        self._send(_BEAT)
        assert self._process.stdout is not None
        return not self._process.stdout.read()

    def end(self) -> None:
        """End the process; nothing is left to restore."""
        self._send(_END)
        self._process.send_signal(signal.SIGCONT)
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                assert pipe is not None
                pipe.close()
        self._process.wait()

    def _send(self, byte: bytes) -> None:
        with contextlib.suppress(OSError):  # it has ended: `alive` shows that
            assert self._process.stdin is not None
            self._process.stdin.write(byte)


def listen(beats: BinaryIO, patience: float, restore: Callable[[bool], None]) -> None:
    """Read until the end byte; restore when heartbeats stay away, and when the input ends.

    `restore` is called with whether the agent has ended.
    """
    wait: float | None = patience
    while True:
        if not select.select([beats], [], [], wait)[0]:
            restore(False)
            wait = None  # once, until the next heartbeat
            continue
        received = os.read(beats.fileno(), 65536)
        if not received:
            restore(True)
            return
        if _END in received:
            return
        wait = patience


def keep_watch(journal: str, patience: float) -> None:
    """Run the process."""
    name_process(_NAME)

    def restore(agent_has_ended: bool) -> None:
        restore_journal(Path(journal), remove=agent_has_ended)
        with contextlib.suppress(OSError):
            os.write(sys.stdout.fileno(), b"restored\n")

    listen(sys.stdin.buffer, patience, restore)


def name_process(name: str) -> None:
    """Show this process under a name in `ps`."""
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name)
