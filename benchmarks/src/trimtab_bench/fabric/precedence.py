"""What measures runs before what is measured, and notes when the machine itself paused.

On a machine with few cores a probe that waits for one would be taken for an outage's end. So processes that
measure are in a control group with a hundred times the usual CPU shares, where one can be made.
"""

import contextlib
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Self

from trimtab.core import TrimtabError
from trimtab.kernel import LimitedGroup, NoGroupError
from trimtab_bench.fabric import pauses_process
from trimtab_bench.fabric.beside import beside

_PRECEDENCE = 100 * 1024  # shares of a CPU, where others have 1024


class Precedence:
    """A context: `give` it to processes, and ask about `longest_pause`."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._group: LimitedGroup | None = None
        self._file = Path()

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(NoGroupError):
                self._group = stack.enter_context(LimitedGroup.create())
                self._group.weigh_cpu(_PRECEDENCE)
            self._file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "pauses"
            words = [sys.executable, "-I", pauses_process.__file__, str(self._file)]
            watching = stack.enter_context(beside(words, stdout=subprocess.PIPE))
            if watching.stdout is None or not watching.stdout.readline():
                raise TrimtabError("the process that notes pauses of this machine does not start")
            self.give(watching.pid)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stack.close()

    def give(self, *pids: int) -> None:
        """Let these processes, and what they start, run before others."""
        if self._group is not None:
            for pid in pids:
                self._group.add(pid)

    def longest_pause(self, begin: float, end: float) -> float:
        """Seconds for which nothing ran, at the longest, between two times of the monotonic clock."""
        content = self._file.read_bytes()
        whole = memoryview(content)[: len(content) // pauses_process.RECORD.size * pauses_process.RECORD.size]
        return max(
            (
                late
                for woke, late in pauses_process.RECORD.iter_unpack(whole)
                if woke > begin and woke - late < end
            ),
            default=0.0,
        )
