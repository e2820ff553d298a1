"""The process beside a run: starts its workers in their control group, waits, and writes down how they ended.

It outlives the Trimtab that launched the run, so that a restarted one still learns the exit status. What the
workers leave running when they end, ends with them. It is told `{"folder": …, "command": […], "environments":
[…], "lock": …}` on its standard input, where no other user can read it, and answers with `{"refused": …}`: a
sentence, or null once they run. Its standard error is the run's log. As long as the file descriptor `lock`
is open, nobody else launches: until it is written down which processes these are.
"""

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

from trimtab.core import StorageError, TrimtabError
from trimtab.engines.kept_run import KeptRun
from trimtab.engines.local_gang import Gang
from trimtab.engines.local_run import End, Start, group_of
from trimtab.kernel import read_process

_UNHEARD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_CANNOT_RUN = 127  # as a shell says it


def keep() -> None:
    """The whole life of the process."""
    told = json.loads(sys.stdin.readline() or "null")
    if told is None:  # whoever launched it died in the middle
        return
    run = KeptRun(Path(told["folder"]))
    group = group_of(run)
    os.set_inheritable(told["lock"], False)
    for number in _UNHEARD:
        signal.signal(number, signal.SIG_IGN)
    try:
        gang = Gang(told["command"], [{**os.environ, **more} for more in told["environments"]], group)
        me = read_process(os.getpid())
        run.keep(Start(time.time(), gang.pids, os.getpid(), me.started if me else 0))
        gang.go()
    except TrimtabError as error:
        group.remove()
        with contextlib.suppress(StorageError):
            run.keep(End(time.time(), _CANNOT_RUN, 0))
        _answer(str(error))
        return
    os.close(told["lock"])
    _answer(None)
    status = gang.wait(on_purpose=lambda: run.stopping)
    kills = group.out_of_memory_kills()
    group.remove()
    run.keep(End(time.time(), status, kills))


def _answer(refused: str | None) -> None:
    with contextlib.suppress(OSError):  # nobody may be there any more
        os.write(sys.stdout.fileno(), json.dumps({"refused": refused}).encode() + b"\n")
    with contextlib.suppress(OSError):
        os.close(sys.stdout.fileno())
