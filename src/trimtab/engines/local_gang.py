"""Worker processes that begin together: made, put into their group, noted down, and only then let go.

Whoever makes them may die at any moment. Before it has let them go, they end without having run the command.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence

from trimtab.core import TrimtabError
from trimtab.kernel import Group

GRACE = 5.0
"""Seconds between asking the others to end, because one worker failed, and killing them."""

# What Python or the process beside the run ignores, and a command should not.
_HEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ)

_INPUT, _OUTPUT, _ERRORS = 0, 1, 2


class Gang:
    """The processes of one run, by rank. Their output goes where this process's standard error goes."""

    def __init__(
        self, command: Sequence[str], environments: Sequence[Mapping[str, str]], group: Group
    ) -> None:
        self._command = list(command)
        self._group = group
        self._waits_at, self._gate = os.pipe()
        self._faults, self._complains_to = os.pipe()
        self.pids = tuple(self._fork(environment) for environment in environments)
        os.close(self._waits_at)
        os.close(self._complains_to)

    def go(self) -> None:
        """Let them run the command; raises with a sentence where it cannot be run."""
        os.write(self._gate, b"." * len(self.pids))
        os.close(self._gate)
        with os.fdopen(self._faults, encoding="utf-8", errors="replace") as faults:
            fault = faults.readline().strip()  # nothing comes once the last of them runs the command
        if fault:
            raise TrimtabError(fault)

    def wait(self, on_purpose: Callable[[], bool]) -> int:
        """The status when all have ended; of the first that failed, whereupon the others are ended.

        They are not where their end is `on_purpose`: whoever wants it gives them the time they need.
        """
        left, status = set(self.pids), 0
        while left and not (status and not on_purpose()):
            pid, raw = os.wait()
            left.discard(pid)
            status = status or _shell_status(raw)
        if left:
            self._group.signal(signal.SIGTERM)
            _reap(left, GRACE)
        return status

    def _fork(self, environment: Mapping[str, str]) -> int:
        pid = os.fork()
        if pid:
            return pid
        try:
            os.close(self._gate)
            self._become_worker()
            if os.read(self._waits_at, 1):
                os.execvpe(self._command[0], self._command, dict(environment))
        except BaseException as error:
            os.write(self._complains_to, f"{_why(self._command[0], error)}\n".encode())
        finally:
            os._exit(127)

    def _become_worker(self) -> None:
        os.setsid()
        self._group.add(os.getpid())
        os.dup2(os.open(os.devnull, os.O_RDONLY), _INPUT)
        os.dup2(_ERRORS, _OUTPUT)
        for number in _HEARD:
            signal.signal(number, signal.SIG_DFL)


def _reap(left: set[int], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while left and time.monotonic() < deadline:
        with contextlib.suppress(ChildProcessError):
            left.discard(os.waitpid(-1, os.WNOHANG)[0])
        time.sleep(0.01)


def _shell_status(raw: int) -> int:
    status = os.waitstatus_to_exitcode(raw)
    return 128 - status if status < 0 else status


def _why(program: str, error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return f'there is no command "{program}"; check its name and your PATH'
    if isinstance(error, PermissionError):
        return f'"{program}" is not executable; make it so or name its interpreter'
    why = getattr(error, "strerror", None) or str(error)
    return f'"{program}" cannot be run: {why.lower()}'
